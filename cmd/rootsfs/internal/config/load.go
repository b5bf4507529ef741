package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/xdg"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Load reads and checks the file at path. Every error is an *Error. For a missing file, the error
// wraps fs.ErrNotExist (see LoadIfPresent).
func Load(path string) (*Config, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, &Error{File: path, Err: err}
	}
	doc, resolved, err := read(path, os.Geteuid())
	if err != nil {
		return nil, &Error{File: path, Err: err}
	}
	return parseAt(path, resolved, doc)
}

// parseAt is parse, and also refuses roots that contain resolved, the path of the file without
// links.
func parseAt(path, resolved string, doc []byte) (*Config, error) {
	c, err := parse(path, xdg.Home(), doc)
	if err != nil {
		return nil, err
	}
	c.Resolved = resolved
	for _, set := range append(slices.Collect(maps.Values(c.Profiles)), c.Roots) {
		for _, r := range set {
			if names.Under(resolved, r.Path) {
				return nil, &Error{File: path, Line: r.Line, Key: "root.path", Err: fmt.Errorf(
					"%q contains this configuration file (%q), which no root may; choose a directory that does not", r.Path, resolved)}
			}
		}
	}
	return c, nil
}

// LoadIfPresent is Load, but for a missing file it returns an empty configuration and no error.
func LoadIfPresent(path string) (*Config, error) {
	c, err := Load(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return c, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, &Error{File: path, Err: err}
	}
	return &Config{Path: path, Debounce: defaultDebounce, Profiles: map[string][]Root{}}, nil
}

// LoadFlag loads the file that --config names. If file is "", it loads the default file with
// LoadIfPresent. path is the absolute path of the file. It is "" if that path is unknown; err
// then says why.
func LoadFlag(file string) (c *Config, path string, err error) {
	if file != "" {
		if path, err = filepath.Abs(file); err == nil {
			c, err = Load(path)
		}
		return c, path, err
	}
	if path, err = DefaultPath(); err == nil {
		c, err = LoadIfPresent(path)
	}
	return c, path, err
}

// read returns the contents of the file at path, and its path without links. It refuses a file
// that a confined program, or a user other than root and uid, could have written.
func read(path string, uid int) (doc []byte, resolved string, err error) {
	resolved, err = trusted(path, uid)
	if err != nil {
		return nil, "", err
	}
	if err := writabledirs.NewJudge().File(path); err != nil {
		return nil, "", err
	}
	// NONBLOCK, so that opening a FIFO does not wait.
	f, err := os.OpenFile(resolved, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, "", names.Errno(err)
	}
	defer f.Close()
	// Check the opened file once more. The directories on the way are trusted.
	info, err := f.Stat()
	if err != nil {
		return nil, "", names.Errno(err)
	}
	if err := trustedFile(info, uid); err != nil {
		return nil, "", err
	}
	doc, err = io.ReadAll(io.LimitReader(f, maxSize+1))
	switch {
	case err != nil:
		return nil, "", names.Errno(err)
	case len(doc) > maxSize:
		return nil, "", fmt.Errorf("is larger than the limit of %d bytes", maxSize)
	}
	return doc, resolved, nil
}

// maxWait bounds how long continuing changes put off a reload, in multiples of the debounce.
const maxWait = 4

// Watch calls fn when the file has changed: as soon as the file has then stayed the same for the
// debounce (0: defaultDebounce), and after four debounces at the latest. Watch looks at the file
// when it receives a value from changes; see package hostwatch. One goroutine calls fn with the
// results of Load. A slow fn delays the next call, but the last state is always reported. A file
// that was touched, or written with the same contents, is reported too; DiffRoots then finds no
// change.
//
// The file need not exist, nor its directory. Changes before the call of Watch are not
// reported, so call Watch first and then Load.
//
// The watch ends with ctx. done is closed when fn will not be called again.
func Watch(ctx context.Context, path string, changes <-chan struct{}, debounce time.Duration, fn func(*Config, error)) (done <-chan struct{}) {
	return follow(ctx, changes, debounce, func() any { return stampOf(path) }, func() { fn(Load(path)) })
}

// WatchCeiling calls fn with each new state of the ceiling, as Watch does with those of the
// configuration.
func WatchCeiling(ctx context.Context, changes <-chan struct{}, fn func(*Ceiling, error)) (done <-chan struct{}) {
	look := func() any {
		files, err := ceilingFiles(CeilingDir, 0)
		text := fmt.Sprintln(err)
		for _, f := range files {
			text += fmt.Sprintln(f, stampOf(f))
		}
		if _, f, err := FleetDir(); err == nil {
			text += fmt.Sprintln(f, stampOf(f))
		}
		return text
	}
	return follow(ctx, changes, 0, look, func() { fn(LoadCeiling()) })
}

// follow calls look for each value of changes, and report if the state that look returns has
// changed. Before the report, it waits until the state has stayed the same for the debounce, but
// for maxWait debounces at most.
func follow(ctx context.Context, changes <-chan struct{}, debounce time.Duration, look func() any, report func()) (done <-chan struct{}) {
	if debounce <= 0 {
		debounce = defaultDebounce
	}
	ended := make(chan struct{})
	reported := look()
	go func() {
		defer close(ended)
		for {
			select {
			case <-ctx.Done():
				return
			case <-changes:
			}
			now := look()
			if now == reported {
				continue
			}
			reported = nil // a state that still changes is reported again
			for range maxWait {
				if !sleep(ctx, debounce) {
					return
				}
				last := now
				if now = look(); now == last {
					reported = now
					break
				}
			}
			report()
		}
	}()
	return ended
}

// sleep waits for d. It reports false if ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// stamp identifies a state of the file: every change of its contents or attributes moves its
// change time.
type stamp struct {
	dev, ino uint64
	size     int64
	changed  unix.Timespec
	err      error // a syscall.Errno: why stat failed
}

// stampOf returns the stamp of the file that path leads to, through links.
func stampOf(path string) stamp {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return stamp{err: err}
	}
	return stamp{dev: st.Dev, ino: st.Ino, size: st.Size, changed: st.Ctim}
}
