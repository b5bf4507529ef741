package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// kinds are the kinds of output that can contain a file of the description: the archive, the
// installation by -install, and the packages. nfpm builds the packages of packageKinds.
var (
	packageKinds = []string{"deb", "rpm", "apk"}
	kinds        = append([]string{"tar", "install"}, packageKinds...)
)

// description is the content of dist.toml.
type description struct {
	Name        string   `toml:"name"`
	Summary     string   `toml:"summary"`
	Description string   `toml:"description"`
	License     string   `toml:"license"`
	Section     string   `toml:"section"`
	Homepage    string   `toml:"homepage"`
	Maintainer  string   `toml:"maintainer"`
	Downloads   string   `toml:"downloads"`
	Arches      []string `toml:"arches"`
	NPM         struct {
		Package string `toml:"package"`
		Scope   string `toml:"scope"`
	} `toml:"npm"`
	Registry struct {
		Name string `toml:"name"`
	} `toml:"registry"`
	Recommends map[string][]string `toml:"recommends"`
	Depends    []string            `toml:"-"` // of a companion
	Companion  companion           `toml:"companion"`
	Files      []fileEntry         `toml:"file"`

	dir string // the directory of dist.toml
}

// companion is a second package, with a program of its own.
type companion struct {
	Name        string      `toml:"name"`
	Summary     string      `toml:"summary"`
	Description string      `toml:"description"`
	Depends     []string    `toml:"depends"`
	Files       []fileEntry `toml:"file"`
}

// companion returns the description of the second package. Its name, texts, dependencies and files
// are the second package's own, it recommends nothing, and the rest is copied from the first
// package.
func (d *description) companion() *description {
	c := *d
	c.Name, c.Summary, c.Description = d.Companion.Name, d.Companion.Summary, d.Companion.Description
	c.Depends, c.Recommends, c.Files = d.Companion.Depends, nil, d.Companion.Files
	return &c
}

// fileEntry is one [[file]] of the description.
type fileEntry struct {
	Source string      `toml:"source"`
	Target string      `toml:"target"`
	Mode   os.FileMode `toml:"mode"`
	Kinds  []string    `toml:"kinds"`
	Gzip   []string    `toml:"gzip"`
}

// readDescription reads dist.toml in dir, without the companion unless withCompanion is set. An
// unknown key or kind is an error.
func readDescription(dir string, withCompanion bool) (*description, error) {
	name := filepath.Join(dir, "dist.toml")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	d := &description{dir: dir}
	if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(d); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if !withCompanion {
		d.Companion = companion{}
	}
	if len(d.Arches) == 0 {
		return nil, fmt.Errorf("%s: arches is missing", name)
	}
	for _, files := range [][]fileEntry{d.Files, d.Companion.Files} {
		for i := range files {
			if err := files[i].check(); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return d, nil
}

// check refuses unknown kinds, and sets the mode if there is none.
func (f *fileEntry) check() error {
	for _, k := range append(f.Kinds, f.Gzip...) {
		if !slices.Contains(kinds, k) {
			return fmt.Errorf("file %s: unknown kind %q: write one of %s", f.Source, k, strings.Join(kinds, ", "))
		}
	}
	if f.Mode == 0 {
		f.Mode = 0o644
	}
	return nil
}

// file is a file of a package. Its content comes from source.
type file struct {
	source string
	target string // relative to the prefix
	mode   os.FileMode
	gzip   bool
}

// files returns the files of a kind, sorted by target. A source that begins with
// "built/" lies in the directory built.
func (d *description) files(kind, built string) ([]file, error) {
	var all []file
	for _, e := range d.Files {
		if !slices.Contains(e.Kinds, kind) {
			continue
		}
		pattern := filepath.Join(d.dir, e.Source)
		if rest, ok := strings.CutPrefix(e.Source, "built/"); ok {
			pattern = filepath.Join(built, rest)
		}
		sources, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		if len(sources) == 0 {
			return nil, fmt.Errorf("dist.toml: no file is %s", e.Source)
		}
		for _, s := range sources {
			f := file{source: s, target: e.Target, mode: e.Mode, gzip: slices.Contains(e.Gzip, kind)}
			if strings.HasSuffix(f.target, "/") {
				f.target = path.Join(f.target, filepath.Base(s))
			}
			if f.gzip {
				f.target += ".gz"
			}
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b file) int { return strings.Compare(a.target, b.target) })
	return all, nil
}
