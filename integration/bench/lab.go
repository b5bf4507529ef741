package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lab is the work directory of the benchmarks, with the source directories, the programs,
// and the tools that a run may use. One run owns it at a time.
//
//	DIR/lock      held while a run lasts
//	DIR/src       the source of the workloads (fixtures.go), kept between runs
//	DIR/names     the source of the memory and revocation rows, kept between runs
//	DIR/mnt/*     mountpoints, one per run of a peer
//	DIR/home      XDG directories of the peers (see privateHome), while a run lasts
//	DIR/tracing   tracefs, while a run lasts
//
// DIR also has the rootsfs program, if the lab builds it, and the directories of the other rows.
type lab struct {
	dir   string
	lock  *os.File
	spawn *spawner
	size  sizes
	trace *tracer // nil where requests cannot be counted
	log   io.Writer
	limit time.Duration // see lab.round; 0 for none
	// settle is the time between two readings of a daemon's resident size (see settledRSS). It is
	// settleSpan, except in tests, where the size does not matter.
	settle time.Duration

	self           string // path of this program
	fuseMissing    string // why there is no FUSE; empty if there is
	rootsfs        string
	rootsfsMissing string // why there is no rootsfs; empty if there is
	bindfs         string
	bindfsMissing  string
	bindfsVersion  string
	// passthrough is the path of passthrough_hp, an example in the sources of libfuse.
	// passthroughMissing says why there is none.
	passthrough, passthroughMissing string
	fuseOverlayMissing              string // why there is no fuse-overlayfs
	root                            bool   // this process is root: it may drop caches and mount overlays
}

func (l *lab) path(elem ...string) string {
	return filepath.Join(append([]string{l.dir}, elem...)...)
}

// openLab makes or reuses dir. Leftovers of a run that was killed are removed.
// The caller closes the lab.
func openLab(dir string, size sizes, log io.Writer) (*lab, error) {
	l := &lab{dir: dir, size: size, log: log, settle: settleSpan, root: os.Geteuid() == 0}
	if err := ownDir(dir); err != nil {
		return nil, err
	}
	var err error
	if l.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if l.lock, err = os.OpenFile(l.path("lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600); err != nil {
		return nil, err
	}
	if err := unix.Flock(int(l.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is in use by another run: %w", dir, err), l.lock.Close())
	}
	for _, sub := range []string{"mnt", "home", "src", "names"} {
		if err := os.MkdirAll(l.path(sub), 0o700); err != nil {
			return nil, errors.Join(err, l.lock.Close())
		}
	}
	if err := l.sweep(); err != nil {
		return nil, errors.Join(err, l.lock.Close())
	}
	l.spawn = newSpawner()
	return l, nil
}

// ownDir makes dir, or makes sure that it is ours: the default lies in a
// directory where anyone may put a link of that name.
func ownDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err == nil || !errors.Is(err, os.ErrExist) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s is not a directory that only we can write to", dir)
	}
	return nil
}

// sweep removes mounts that an earlier run left, and their mountpoints.
func (l *lab) sweep() error {
	if detach(l.path("tracing")) > 0 {
		fmt.Fprintf(l.log, "bench: removed a mount left on %s\n", l.path("tracing"))
	}
	entries, err := os.ReadDir(l.path("mnt"))
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		mnt := l.path("mnt", e.Name())
		if n := detach(mnt); n > 0 {
			fmt.Fprintf(l.log, "bench: removed a mount left on %s\n", mnt)
		}
		errs = append(errs, os.Remove(mnt))
	}
	return errors.Join(errs...)
}

// close releases the lab. The source directories stay for the next run.
func (l *lab) close() error {
	var err error
	if l.trace != nil {
		err = l.trace.close()
	}
	close(l.spawn.queue)
	return errors.Join(err, l.sweep(), os.RemoveAll(l.path("home")), l.lock.Close())
}

// findPrograms looks for the peers' programs. Unless a path is given, rootsfs is built from the
// module of the current directory.
func (l *lab) findPrograms(ctx context.Context, rootsfs, bindfs string) error {
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		l.fuseMissing = err.Error()
	} else {
		_ = fuse.Close() // nothing was done with it
	}
	if l.bindfs, err = exec.LookPath(bindfs); err != nil {
		l.bindfsMissing = err.Error()
	} else {
		l.bindfsVersion = outputLine(ctx, l.bindfs, "--version") + ", " + outputLine(ctx, l.bindfs, "--fuse-version")
	}
	if _, err := exec.LookPath(fuseOverlay); err != nil {
		l.fuseOverlayMissing = err.Error()
	}
	if l.passthrough, err = exec.LookPath("passthrough_hp"); err != nil {
		l.passthroughMissing = err.Error()
	}
	if rootsfs != "" {
		l.rootsfs, err = exec.LookPath(rootsfs)
		if err == nil {
			l.rootsfs, err = filepath.Abs(l.rootsfs)
		}
		return err
	}
	gomod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	module := filepath.Dir(strings.TrimSpace(string(gomod)))
	main := filepath.Join(module, "cmd", "rootsfs")
	if _, statErr := os.Stat(filepath.Join(main, "main.go")); err != nil || statErr != nil {
		l.rootsfsMissing = "no cmd/rootsfs in the module of the current directory; give -rootsfs PATH"
		return nil
	}
	// Build a copy, as make build does; the Makefile says why.
	linked := l.path("rootsfs.linked")
	l.rootsfs = l.path("rootsfs")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", linked, "./cmd/rootsfs")
	build.Dir, build.Env = module, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./cmd/rootsfs: %w\n%s", err, out)
	}
	if out, err := exec.CommandContext(ctx, "cp", linked, l.rootsfs).CombinedOutput(); err != nil {
		return fmt.Errorf("cp %s: %w\n%s", linked, err, out)
	}
	return os.Remove(linked)
}

// outputLine returns the output of a command as one line; an empty string if the command fails.
func outputLine(ctx context.Context, argv ...string) string {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
	if err != nil {
		return ""
	}
	return strings.Join(strings.Split(strings.TrimSpace(string(out)), "\n"), ", ")
}

// writeBack writes the file system that holds dir back to disk. sync(2) would wait for
// every file system of the machine, of which one may hang.
func writeBack(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

// dropCaches empties the page, dentry and inode caches; source is on the file system
// that is measured. Needs root.
func dropCaches(source string) error {
	if err := writeBack(source); err != nil {
		return err
	}
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0)
}
