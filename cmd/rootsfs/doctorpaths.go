package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
)

// checkPaths looks at each path as a root, and whether the directories below all
// of them (without paths, below the configured roots) can be watched.
func checkPaths(ctx context.Context, conf *config.Config, paths []string) []check {
	rules := doctorRules(conf)
	var checks []check
	for _, p := range paths {
		checks = append(checks, checkPath(rules, p))
	}
	if len(paths) == 0 && conf != nil {
		for _, r := range conf.Roots {
			paths = append(paths, r.Path)
		}
	}
	return append(checks, checkWatches(ctx, rules, paths))
}

// doctorRules are the rules of a mount with the owner's places in this
// environment. Those of a mountpoint are not known yet.
func doctorRules(conf *config.Config) guard.Rules {
	rules := guard.Rules{Keep: []guard.Keep{{Path: control.RuntimeDir(), What: "the session directory"}}}
	if state, err := config.StateDir(); err == nil {
		rules.Keep = append(rules.Keep, guard.Keep{Path: state, What: "the directory of audit files and logs"})
	}
	if path, err := config.DefaultPath(); err == nil {
		rules.Keep = append(rules.Keep, guard.Keep{Path: filepath.Dir(path), What: "the configuration"})
	}
	if conf != nil {
		rules.Keep = append(rules.Keep, conf.Keep()...)
	}
	for i, k := range rules.Keep {
		if real, err := filepath.EvalSymlinks(k.Path); err == nil {
			rules.Keep[i].Path = real
		}
	}
	return rules
}

// rootInfo is what opening a path as a root tells.
type rootInfo struct {
	resolved, file, fsType string
	remote                 bool
	err                    error
}

// openTime is how long the file system of a path may take to answer.
const openTime = 5 * time.Second

// openRoot opens a path as `mount` would. A file system that does not answer
// keeps the goroutine, not the caller.
func openRoot(path string) rootInfo {
	answer := make(chan rootInfo, 1)
	go func() {
		src, err := vfs.Opener().OpenRoot(path)
		if err != nil {
			answer <- rootInfo{err: err}
			return
		}
		answer <- rootInfo{resolved: src.Resolved(), file: src.File(), fsType: src.FSType(), remote: src.Remote()}
		_ = src.Close() // an O_PATH descriptor: nothing to lose
	}()
	select {
	case in := <-answer:
		return in
	case <-time.After(openTime):
		return rootInfo{err: errors.New("the file system does not answer")}
	}
}

func checkPath(rules guard.Rules, path string) check {
	c := check{Name: "path", Path: path}
	in := openRoot(path)
	if in.err != nil {
		return c.fail("choose another path, or make this one readable", "cannot be a root: %s", oneLine(in.err))
	}
	what := "directory"
	root := in.resolved
	if in.file != "" {
		what = "single file"
	}
	what += " on " + in.fsType
	if abs, err := filepath.Abs(path); err != nil || abs != root {
		what += ", really " + shown(root)
	}
	if err := rules.Check(root, guard.ReadOnly); err != nil {
		return c.fail("choose another directory", "%s: %s", what, oneLine(err))
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
)

// countDirs counts the directories at and below path without leaving its file
// system; whole is false if it stopped at a bound.
func countDirs(ctx context.Context, path string) (dirs int, whole bool) {
	names, whole := 0, true
	dev := deviceOf(path)
	_ = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		names++
		switch {
		case ctx.Err() != nil || dirs >= maxCountedDirs || names >= maxCountedNames:
			whole = false
			return fs.SkipAll
		case err != nil && d != nil && d.IsDir():
			return fs.SkipDir // unreadable: not watched either
		case err != nil:
			return nil
		case d.IsDir() && p != path && deviceOf(p) != dev:
			return fs.SkipDir
		case d.IsDir():
			dirs++
		}
		return nil
	})
	return dirs, whole
}

// checkWatches compares what inotify allows with what the paths would need if
// every directory in them were looked at.
func checkWatches(ctx context.Context, rules guard.Rules, paths []string) check {
	c := check{Name: "inotify"}
	limit, err := readNumber("/proc/sys/fs/inotify/max_user_watches")
	if err != nil {
		return c.warn("mount /proc", "fs.inotify.max_user_watches cannot be read: %s", oneLine(err))
	}
	dirs, whole := 0, true
	for _, p := range paths {
		in := openRoot(p)
		if in.err != nil || in.remote || in.file != "" || rules.Check(in.resolved, guard.ReadOnly) != nil {
			continue // not watched
		}
		n, all := countDirs(ctx, in.resolved)
		dirs += n
		whole = whole && all
	}
	return judgeWatches(limit, dirs, whole, len(paths))
}

func judgeWatches(limit, dirs int, whole bool, paths int) check {
	c := check{Name: "inotify"}
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

// deviceOf is the number of the file system a name lies on, 0 if unknown.
func deviceOf(path string) uint64 {
	info, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Dev
	}
	return 0
}
