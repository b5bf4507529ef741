package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Load reads and checks the file at path. A missing file is an error that wraps
// fs.ErrNotExist (see LoadIfPresent); every other error is an *Error.
func Load(path string) (*Config, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, &Error{File: path, Err: err}
	}
	doc, resolved, err := read(path)
	if err != nil {
		return nil, &Error{File: path, Err: err}
	}
	c, err := parse(path, homeDir(), doc)
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

// LoadIfPresent is Load, but a file that is not there is an empty
// configuration: nothing is configured, nobody is told.
func LoadIfPresent(path string) (*Config, error) {
	c, err := Load(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return c, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, &Error{File: path, Err: err}
	}
	return &Config{Path: path, Debounce: DefaultDebounce, Profiles: map[string][]Root{}}, nil
}

// LoadFlag is Load for the file that --config names, and LoadIfPresent for the default file
// if it names none. path is the file's, absolute; "": there is none, as err says.
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

// read returns the contents of a file that nobody else could have written.
func read(path string) (doc []byte, resolved string, err error) {
	resolved, err = trusted(path, os.Geteuid())
	if err != nil {
		return nil, "", err
	}
	// NONBLOCK, so that a FIFO is found out rather than waited for.
	f, err := os.OpenFile(resolved, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, "", names.Errno(err)
	}
	defer f.Close()
	// Once more on what was opened; the way to it is in trusted hands.
	info, err := f.Stat()
	if err != nil {
		return nil, "", names.Errno(err)
	}
	if err := trustedFile(info, os.Geteuid()); err != nil {
		return nil, "", err
	}
	doc, err = io.ReadAll(io.LimitReader(f, MaxSize+1))
	switch {
	case err != nil:
		return nil, "", names.Errno(err)
	case len(doc) > MaxSize:
		return nil, "", fmt.Errorf("is larger than the limit of %d bytes", MaxSize)
	}
	return doc, resolved, nil
}
