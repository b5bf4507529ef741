package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// startGrace is how long a daemon may take until its mount answers.
const startGrace = 30 * time.Second

// native is the peer with which all others are compared.
const native = "native"

// peer is one way to see the source directory. lab.peers makes the table of peers.
type peer struct {
	name string
	skip string // why it cannot run here; empty if it can
	// argv is the command that mounts source on mnt and stays in the foreground,
	// nil for native.
	argv func(source, mnt string) []string
	sub  string // where the source appears below the mountpoint
	line bool   // prints a line when the mount answers; otherwise we poll
	// isLevel marks the one rootsfs peer of each cache level. Of the rootsfs peers, only these are
	// measured for revocation and memory.
	isLevel bool
	// names restricts the peer to the workloads about names: it shows the cost of
	// patterns.
	names bool
	// inside is true if the peer is a sandbox and mounts nothing on mnt: programs run in the peer,
	// and find the source at its own path.
	inside bool
	// upper is a pattern for the one directory below XDG_STATE_HOME in which the peer keeps
	// written files; "": in the source.
	upper string
	// exitsWith is the peer's exit status after SIGTERM: libfuse's examples report a failure.
	exitsWith int
}

// rootName is the name the source has in a rootsfs mount.
const rootName = "src"

// peers returns the table of peers. A peer that cannot run has the reason in its field skip.
func (l *lab) peers() []peer {
	ps := []peer{{name: native}}
	for _, level := range []string{"strict", "audit", "max"} {
		ps = append(ps, peer{
			name: "rootsfs-" + level, skip: cmp.Or(l.fuseMissing, l.rootsfsMissing), sub: rootName, line: true, isLevel: true,
			argv: func(source, mnt string) []string {
				return []string{l.rootsfs, "mount", "--cache", level, "--root", rootName + "=" + source + ":rw", mnt}
			},
		})
	}
	ps = append(ps, l.auditPeer(auditPlain, "--transport", "plain"))
	ps = append(ps, l.inRunPeer(), l.stagePeer(), l.overlayPeer(overlay, ""), l.overlayPeer(fuseOverlay, l.fuseOverlayMissing))
	ps = append(ps, patternPeer(l.auditPeer(noPatterns, "--no-default-policy")), patternPeer(l.auditPeer(manyPatterns, patternFlags()...)))
	ps = append(ps, l.bindfsPeer("bindfs", nil), l.bindfsPeer("bindfs-tuned", tuning(l.bindfsVersion)))
	ps = append(ps, peer{name: "passthrough_hp", skip: cmp.Or(l.fuseMissing, l.passthroughMissing), argv: func(source, mnt string) []string {
		return []string{l.passthrough, "--foreground", source, mnt}
	}, exitsWith: 1})
	return append(ps, peer{name: "loopback", skip: l.fuseMissing, line: true, argv: func(source, mnt string) []string {
		return []string{l.self, childLoopback, source, mnt}
	}})
}

// auditPeer is rootsfs with --cache audit and more flags.
func (l *lab) auditPeer(name string, flags ...string) peer {
	return peer{
		name: name, skip: cmp.Or(l.fuseMissing, l.rootsfsMissing), sub: rootName, line: true,
		argv: func(source, mnt string) []string {
			argv := append([]string{l.rootsfs, "mount", "--cache", "audit"}, flags...)
			return append(argv, "--root", rootName+"="+source+":rw", mnt)
		},
	}
}

// stagePeer is rootsfs with --cache audit and a root that stages its changes.
func (l *lab) stagePeer() peer {
	p := l.auditPeer(staged)
	p.upper = "rootsfs/stage/*/upper"
	p.argv = func(source, mnt string) []string {
		return []string{l.rootsfs, "mount", "--cache", "audit", "--root", rootName + "=" + source + ":stage", mnt}
	}
	return p
}

// overlayPeer is an overlay over the source, of the kernel or of fuse-overlayfs.
func (l *lab) overlayPeer(name, missing string) peer {
	if missing == "" && !l.root {
		missing = "needs root"
	}
	return peer{name: name, skip: missing, line: true, upper: overlayUpper, argv: func(source, mnt string) []string {
		return []string{l.self, childOverlay, name, source, mnt}
	}}
}

// patternPeer restricts p to the workloads about names.
func patternPeer(p peer) peer {
	p.names = true
	return p
}

// patternFlags are fifty patterns of all the shapes people write, on top of the
// built-in ones. None matches a name of the fixtures, since every peer has to see
// the same files.
func patternFlags() []string {
	var flags []string
	for i := range 10 {
		flags = append(flags,
			"--hide", fmt.Sprintf("*.secret%d", i),
			"--hide", fmt.Sprintf("/vault%d/", i),
			"--deny", fmt.Sprintf("docs/**/private%d.*", i),
			"--protect", fmt.Sprintf("release-%d-[0-9]*.lock", i),
			"--protect", fmt.Sprintf("**/generated%d/*.pb.go", i))
	}
	return flags
}

func (l *lab) bindfsPeer(name string, options []string) peer {
	return peer{name: name, skip: cmp.Or(l.fuseMissing, l.bindfsMissing), argv: func(source, mnt string) []string {
		argv := append([]string{l.bindfs, "-f"}, options...)
		if os.Geteuid() != 0 {
			argv = append(argv, "--no-allow-other") // allow_other, bindfs's default, needs user_allow_other in fuse.conf
		}
		return append(argv, source, mnt)
	}}
}

// tuning returns the options that make bindfs fast. libfuse 2 writes 4 KiB at a time without
// big_writes; libfuse 3 does not know big_writes.
func tuning(fuseVersion string) []string {
	opts := "kernel_cache,entry_timeout=3600,attr_timeout=3600,negative_timeout=3600"
	if strings.Contains(fuseVersion, "version 2.") {
		opts += ",big_writes"
	}
	return []string{"--multithreaded", "-o", opts}
}

// startedPeer is a peer that runs.
type startedPeer struct {
	dir     string // the source, seen through the peer
	mnt     string // the mountpoint; empty for native
	written string // the directory with the files that are written through the peer
	dev     uint32 // the FUSE connection, as the tracepoint names it
	env     []string
	inside  *process // the sandbox that programs run in; nil: programs run outside
	*process
}

// start mounts source through p and returns when the mount answers.
func (l *lab) start(ctx context.Context, p peer, source string) (*startedPeer, error) {
	if p.argv == nil {
		return &startedPeer{dir: source, written: source}, nil
	}
	mnt, err := os.MkdirTemp(l.path("mnt"), p.name+"-")
	if err != nil {
		return nil, err
	}
	m := &startedPeer{dir: filepath.Join(mnt, p.sub), mnt: mnt, written: source}
	if m.env, err = l.privateHome(filepath.Base(mnt)); err != nil {
		return nil, errors.Join(err, os.Remove(mnt))
	}
	if m.process, err = l.spawn.launch(p.name, p.argv(source, mnt), m.env); err != nil {
		return nil, errors.Join(err, os.Remove(mnt))
	}
	m.exitsWith = p.exitsWith
	if p.inside {
		m.dir, m.inside = source, m.process
	}
	if err := m.await(ctx, p.line); err != nil {
		m.kill()
		<-m.done
		detach(mnt)
		return nil, errors.Join(err, os.Remove(mnt))
	}
	if p.upper != "" {
		found, err := filepath.Glob(l.path("home", filepath.Base(mnt), "state_home", p.upper))
		if err != nil || len(found) != 1 {
			return nil, errors.Join(fmt.Errorf("%s keeps what is written in %q", p.name, found), err, m.stop())
		}
		m.written = found[0]
	}
	return m, nil
}

// privateHome gives a peer empty directories for its configuration, sessions and records.
// So neither the user's settings nor an earlier run count, and nothing is written into
// the user's directories. privateHome returns the directories as environment variables. No two
// peers that run at the same time may have the same name.
func (l *lab) privateHome(peer string) ([]string, error) {
	var env []string
	for _, name := range []string{"RUNTIME_DIR", "CONFIG_HOME", "STATE_HOME", "DATA_HOME", "CACHE_HOME"} {
		dir := l.path("home", peer, strings.ToLower(name))
		if err := os.RemoveAll(dir); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		env = append(env, "XDG_"+name+"="+dir)
	}
	return env, nil
}

func (m *startedPeer) await(ctx context.Context, line bool) error {
	ctx, cancel := context.WithTimeout(ctx, startGrace)
	defer cancel()
	if line {
		first, err := m.line(ctx)
		if err == nil && m.inside != nil {
			_, err = fmt.Sscan(first, &m.dev)
			return err
		}
		if err != nil {
			return err
		}
	}
	for {
		dev, isMount, err := mountDevice(m.mnt)
		if err == nil && isMount {
			m.dev = dev
			_, err = os.ReadDir(m.dir)
			return err
		}
		if line {
			return fmt.Errorf("%s said it was ready, but nothing is mounted on %s", m.name, m.mnt)
		}
		select {
		case <-m.done:
			return m.ended()
		case <-ctx.Done():
			return fmt.Errorf("%s did not mount: %w", m.name, ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// stop ends the peer. If a mount outlives its daemon, stop detaches the mount and returns an error.
func (m *startedPeer) stop() error {
	if m.process == nil {
		return nil
	}
	err := m.process.stop()
	if n := detach(m.mnt); n > 0 {
		err = errors.Join(err, fmt.Errorf("%s left its mount behind", m.name))
	}
	return errors.Join(err, os.Remove(m.mnt))
}

// abort kills the peer's process. If the process is a FUSE daemon that hangs, its requests in
// flight fail, and the system calls that wait for them return.
func (m *startedPeer) abort() {
	if m.process != nil {
		m.kill()
	}
}

// mountDevice reports whether dir is a mountpoint, and of which device (the minor
// number; FUSE devices have major 0).
func mountDevice(dir string) (dev uint32, isMount bool, err error) {
	var here, above unix.Stat_t
	if err := unix.Lstat(dir, &here); err != nil {
		return 0, false, err
	}
	if err := unix.Lstat(filepath.Dir(dir), &above); err != nil {
		return 0, false, err
	}
	return unix.Minor(here.Dev), here.Dev != above.Dev, nil
}

// detach removes all mounts on dir, up to 16, and returns how many it removed. It does not stat dir
// first, because the stat fails if the daemon of the mount is dead.
func detach(dir string) int {
	n := 0
	for ; n < 16; n++ { // stacked mounts are possible, an endless stack is not
		if unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
			continue
		}
		if os.Geteuid() == 0 || exec.Command("fusermount3", "-uz", dir).Run() != nil {
			break
		}
	}
	return n
}
