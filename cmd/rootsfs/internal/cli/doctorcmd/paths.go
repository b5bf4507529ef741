package doctorcmd

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
)

// checkPaths looks at each path as a root, and whether the directories below all
// of them (without paths, below the configured roots) can be watched.
func checkPaths(ctx context.Context, conf *config.Config, paths []string, open *openings) []Check {
	rules := DoctorRules(conf)
	var checks []Check
	for _, p := range paths {
		checks = append(checks, checkPath(rules, p, open.of(p)))
	}
	if len(paths) == 0 && conf != nil {
		for _, r := range conf.Roots {
			paths = append(paths, r.Path)
		}
	}
	return append(checks, checkWatches(ctx, rules, paths, open))
}

// DoctorRules are the rules of a mount with the owner's places in this
// environment. Those of a mountpoint are not known yet.
func DoctorRules(conf *config.Config) guard.Rules {
	var more []guard.Keep
	if conf != nil {
		more = conf.Keep()
	}
	keeps, _ := session.Keeps("", more) // without a HOME nothing is kept anywhere
	return guard.Rules{Keep: keeps}
}

// rootInfo is what opening a path as a root tells.
type rootInfo struct {
	resolved, file, fsType string
	remote                 bool
	err                    error
}

// openTime is how long the file system of a path may take to answer.
const openTime = 5 * time.Second

// openings opens paths as `mount` would, side by side: all file systems have openTime
// together. One that does not answer keeps its goroutine, not the caller.
type openings struct {
	until  time.Time
	byPath map[string]*opening
}

// opening is one of them.
type opening struct {
	done chan struct{} // closed when in is there
	in   rootInfo
}

// begin opens paths, without waiting.
func (o *openings) begin(paths ...string) {
	if o.byPath == nil {
		o.byPath, o.until = map[string]*opening{}, time.Now().Add(openTime)
	}
	for _, path := range paths {
		if o.byPath[path] != nil {
			continue
		}
		one := &opening{done: make(chan struct{})}
		o.byPath[path] = one
		go func() {
			defer close(one.done)
			one.in = openRoot(path)
		}()
	}
}

// of waits for what opening a path has told, which begin has begun.
func (o *openings) of(path string) rootInfo {
	one := o.byPath[path]
	select {
	case <-one.done:
	case <-time.After(time.Until(o.until)):
	}
	select {
	case <-one.done:
		return one.in
	default:
		return rootInfo{err: errors.New("the file system does not answer")}
	}
}

// openRoot opens a path, which may hang.
func openRoot(path string) rootInfo {
	src, err := vfs.Opener().OpenRoot(path)
	if err != nil {
		return rootInfo{err: err}
	}
	defer src.Close() // an O_PATH descriptor: nothing to lose
	return rootInfo{resolved: src.Resolved(), file: src.File(), fsType: src.FSType(), remote: src.Remote()}
}

func checkPath(rules guard.Rules, path string, in rootInfo) Check {
	c := Check{Name: "path", Path: path}
	if in.err != nil {
		return c.fail("choose another path, or make this one readable", "cannot be a root: %s", cli.OneLine(in.err))
	}
	what := "directory"
	root := in.resolved
	if in.file != "" {
		what = "single file"
	}
	what += " on " + in.fsType
	if abs, err := filepath.Abs(path); err != nil || abs != root {
		what += ", really " + cli.QuoteIfNeeded(root)
	}
	if err := rules.Check(root, guard.ReadOnly); err != nil {
		return c.fail("choose another directory", "%s: %s", what, cli.OneLine(err))
	}
	may := "may be a root, :ro or :rw"
	if err := rules.Check(root, guard.ReadWrite); err != nil {
		may = "may be a root, :ro only (a system directory)"
	}
	if in.remote {
		return c.warn("use --cache strict where one second is too long",
			"%s; %s; changes made elsewhere are not reported, so they are seen after up to one second", what, may)
	}
	return c.ok("%s; %s; changes are noticed", what, may)
}

// The bounds of counting directories: beyond them the answer is "at least".
const (
	maxCountedDirs  = 500_000
	maxCountedNames = 5_000_000
	maxCountingTime = 30 * time.Second
)

// countDirs counts the directories at and below path without leaving its file
// system; whole is false if it stopped at a bound. The file system may stop answering.
func countDirs(ctx context.Context, path string) (dirs int, whole bool) {
	ctx, cancel := context.WithTimeout(ctx, maxCountingTime)
	defer cancel()
	var count atomic.Int64
	done := make(chan bool, 1)
	go func() { done <- walkDirs(ctx, path, &count) }()
	select {
	case whole = <-done:
	case <-ctx.Done():
	}
	return int(count.Load()), whole
}

// walkDirs counts, and reports whether it saw everything.
func walkDirs(ctx context.Context, path string, dirs *atomic.Int64) (whole bool) {
	whole = true
	dev, names := deviceOf(path), 0
	_ = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		names++
		switch {
		case ctx.Err() != nil || dirs.Load() >= maxCountedDirs || names >= maxCountedNames:
			whole = false
			return fs.SkipAll
		case err != nil && d != nil && d.IsDir():
			return fs.SkipDir // unreadable: not watched either
		case err != nil:
			return nil
		case d.IsDir() && p != path && deviceOf(p) != dev:
			return fs.SkipDir
		case d.IsDir():
			dirs.Add(1)
		}
		return nil
	})
	return whole
}

// checkWatches compares what inotify allows with what the paths would need if
// every directory in them were looked at.
func checkWatches(ctx context.Context, rules guard.Rules, paths []string, open *openings) Check {
	c := Check{Name: "inotify"}
	limit, err := readNumber("/proc/sys/fs/inotify/max_user_watches")
	if err != nil {
		return c.warn("mount /proc", "fs.inotify.max_user_watches cannot be read: %s", cli.OneLine(err))
	}
	var watched []string
	for _, p := range paths {
		in := open.of(p)
		if in.err == nil && !in.remote && in.file == "" && rules.Check(in.resolved, guard.ReadOnly) == nil {
			watched = append(watched, in.resolved)
		}
	}
	type counted struct {
		dirs  int
		whole bool
	}
	dirs, whole := 0, true
	for _, got := range SideBySide(watched, func(p string) counted {
		n, all := countDirs(ctx, p)
		return counted{n, all}
	}) {
		dirs += got.dirs
		whole = whole && got.whole
	}
	return judgeWatches(limit, dirs, whole, len(paths))
}

func judgeWatches(limit, dirs int, whole bool, paths int) Check {
	c := Check{Name: "inotify"}
	least := ""
	if !whole {
		least = "at least "
	}
	switch {
	case paths == 0:
		return c.ok("%d directories can be watched; give paths to compare", limit)
	// Others of this user's watch too, and servers do: a fifth is left to each.
	case dirs > limit/5*3:
		return c.warn("sysctl fs.inotify.max_user_watches="+strconv.Itoa(max(2*dirs, 65536))+" (and in /etc/sysctl.d to keep it)",
			"%d directories can be watched, there are %s%d; those beyond are seen after up to one second", limit, least, dirs)
	}
	return c.ok("%d directories can be watched, there are %s%d", limit, least, dirs)
}

func readNumber(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// deviceOf is the number of the file system a name lies on, 0 if unknown. What is
// mounted there is not asked: it may hang.
func deviceOf(path string) uint64 {
	var st unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
	if unix.Statx(unix.AT_FDCWD, path, flags, unix.STATX_TYPE, &st) != nil {
		return 0
	}
	return unix.Mkdev(st.Dev_major, st.Dev_minor)
}
