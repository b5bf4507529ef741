package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

// checkPaths checks each path as a root.
func checkPaths(conf *config.Config, paths []string, opened map[string]rootInfo) (checks []check) {
	rules := doctorRules(conf)
	for _, p := range paths {
		checks = append(checks, checkPath(rules, p, opened[p]))
	}
	return checks
}

// doctorRules returns the rules that a mount would have for its roots: the paths that this
// environment and conf keep from roots, and the ceiling. Rules about the mountpoint are missing,
// because it is not known yet.
func doctorRules(conf *config.Config) rules.RootRules {
	var more []rules.ReservedPath
	if conf != nil {
		more = conf.ReservedPaths()
	}
	keeps, _ := session.RootReservedPaths("", more) // an error: there is no HOME, so no place to protect
	out := rules.RootRules{ReservedPaths: keeps}
	if c, err := config.LoadCeiling(); err == nil { // checkCeiling reports the error
		out.Ceilings = c.Roots
	}
	return out
}

// rootInfo has the facts from opening a path as a root.
type rootInfo struct {
	resolved, file, fsType string
	remote                 bool
	err                    error
}

// openTime bounds how long the file system of a path may take to answer.
const openTime = 5 * time.Second

// openRoots opens paths as `mount` would, concurrently. A file system that does not answer blocks a
// goroutine, but the caller waits for openTime at most.
func openRoots(ctx context.Context, paths []string) map[string]rootInfo {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	opened := map[string]rootInfo{}
	for i, in := range sideBySide(paths, func(path string) rootInfo {
		done := make(chan rootInfo, 1)
		go func() { done <- openRoot(path) }()
		select {
		case in := <-done:
			return in
		case <-ctx.Done():
			return rootInfo{err: errors.New("the file system does not answer")}
		}
	}) {
		opened[paths[i]] = in
	}
	return opened
}

// openRoot opens a path as a root. It hangs if the file system does.
func openRoot(path string) rootInfo {
	src, err := vfs.Opener().OpenRoot(path)
	if err != nil {
		return rootInfo{err: err}
	}
	defer src.Close() // an O_PATH descriptor: nothing to lose
	return rootInfo{resolved: src.Resolved(), file: src.File(), fsType: src.FSType(), remote: src.Remote()}
}

func checkPath(rules rules.RootRules, path string, in rootInfo) check {
	c := check{Name: "path", Path: path}
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
		what += ", really " + quoteIfNeeded(root)
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

// enoughWatches is the number of directories in a large project.
const enoughWatches = 32768

// checkWatches reports how many directories of the host can be watched for changes.
func checkWatches() check {
	c := check{Name: "inotify"}
	const file = "/proc/sys/fs/inotify/max_user_watches"
	text, err := os.ReadFile(file)
	if err != nil {
		return c.warn("mount /proc", "fs.inotify.max_user_watches cannot be read: %s", oneLine(err))
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || limit < enoughWatches {
		return c.warn("sysctl fs.inotify.max_user_watches=65536 (and in /etc/sysctl.d to keep it)",
			"%s directories can be watched; changes in those beyond are seen after up to one second", names.Escape(strings.TrimSpace(string(text))))
	}
	return c.ok("%d directories can be watched", limit)
}
