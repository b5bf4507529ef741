package main

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// dirs are the user's own directories, which no test may change.
type dirs struct {
	// ours are directories of rootsfs below the XDG directories: there any change is
	// the tests' doing.
	ours []string
	// all are the directories whose files are all listed. A user's browser writes
	// there, too, so a change there is a failure in CI only.
	all []string
	// caches are directories that are not listed.
	caches []string
}

// userDirs returns the directories that the environment names.
func userDirs(env func(string) string) dirs {
	home := env("HOME")
	or := func(name, rest string) string {
		if dir := env(name); dir != "" {
			return dir
		}
		return filepath.Join(home, rest)
	}
	cache := or("XDG_CACHE_HOME", ".cache")
	config := or("XDG_CONFIG_HOME", ".config")
	named := []string{config, or("XDG_STATE_HOME", ".local/state"), or("XDG_DATA_HOME", ".local/share"), cache}
	if run := env("XDG_RUNTIME_DIR"); run != "" {
		named = append(named, run)
	}
	d := dirs{all: append([]string{home}, named...)}
	for _, dir := range named {
		d.ours = append(d.ours, filepath.Join(dir, "rootsfs"))
	}
	d.caches = []string{
		filepath.Join(cache, "rootsfs-test"),  // programs of npm that setup.sh and the tests install once
		filepath.Join(config, "go/telemetry"), // the go command counts its own use there
		or("GOPATH", "go"), or("npm_config_cache", ".npm"),
		or("GOCACHE", ".cache/go-build"), filepath.Join(cache, "go-build"),
		filepath.Join(cache, "staticcheck"), filepath.Join(cache, "goimports"),
	}
	return d
}

// fileState holds the properties that show a change of a file.
type fileState struct {
	size     int64
	modified time.Time
}

// list returns the files and directories in d, by path.
func (d dirs) list() map[string]fileState {
	found := map[string]fileState{}
	here, _ := os.Getwd() // a checkout in the home directory is not the user's settings
	for _, dir := range slices.Concat(d.ours, d.all) {
		if dir == "" || dir == "/" {
			continue
		}
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // unreadable files are not listed, before or after
			}
			if e.IsDir() {
				if path == here || slices.Contains(d.caches, path) {
					return fs.SkipDir
				}
				found[path] = fileState{} // the directory's time changes with its entries: they are listed
				return nil
			}
			if in, err := e.Info(); err == nil {
				found[path] = fileState{in.Size(), in.ModTime()}
			}
			return nil
		})
	}
	return found
}

// changed reports the files that were created, changed or removed. It reports files outside of
// rootsfs's own directories in CI only.
func (d dirs) changed(before map[string]fileState, ci bool) (problems []string) {
	after := d.list()
	note := func(what, path string) {
		ours := slices.ContainsFunc(d.ours, func(dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") })
		if ours || ci {
			problems = append(problems, fmt.Sprintf("a test %s %s, which is the user's", what, path))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(after)) {
		old, was := before[path]
		switch {
		case !was:
			note("made", path)
		case old != after[path]:
			note("changed", path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(before)) {
		if _, is := after[path]; !is {
			note("removed", path)
		}
	}
	return problems
}
