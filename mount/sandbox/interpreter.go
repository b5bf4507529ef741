package sandbox

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Interpreter returns what a command needs that the minimal root lacks: the
// installation of a Node under ~/.nvm, of a pyenv, a virtual environment, a Go
// toolchain, or a program's own file. It follows links, scripts' first lines
// (also through env), virtual environments to the Python they were made from,
// shims to the tool they belong to, and programs to their loader and libraries.
// The paths are absolute and resolved, each a directory or a single file, none
// within another, sorted. A command without a slash is looked for on PATH.
//
// It never returns a home directory or anything above one, nor a directory
// that is known to hold more than one installation (~/.local): there it names
// single files. It cannot know what a program opens by a name of its own
// making; such a directory must be made a root by hand.
//
// The error is of kind NotExist if there is no such command.
func Interpreter(path string) ([]string, error) {
	found, err := exec.LookPath(path)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return nil, &names.Error{Kind: names.NotExist, Err: &cannotFind{path}}
	}
	if found, err = filepath.Abs(found); err != nil {
		return nil, failed("find the working directory: %v", err)
	}
	s := &search{seen: map[string]bool{}}
	s.file(found)
	return s.result(), nil
}

// search collects an interpreter's files.
type search struct {
	seen  map[string]bool
	paths []string
}

// maxLinks is where the kernel gives up (MAXSYMLINKS).
const maxLinks = 40

// file looks at one file and what it leads to. What cannot be read is left out:
// then the command will not run either, and says so itself.
func (s *search) file(path string) {
	for range maxLinks {
		if s.seen[path] {
			return
		}
		s.seen[path] = true
		if venv := venvOf(path); venv != "" {
			s.venv(venv)
		}
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		// The link itself is what PATH finds, so it must be there too.
		s.add(path)
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = filepath.Clean(target)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return
	}
	s.add(real)
	f, err := os.Open(real)
	if err != nil {
		return
	}
	defer f.Close()
	head := make([]byte, 256) // BINPRM_BUF_SIZE: the kernel reads no further
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return
	}
	if line, ok := bytes.CutPrefix(head[:n], []byte("#!")); ok {
		s.script(string(line))
		s.shim(real)
		return
	}
	s.elf(f, real)
}

// script follows a first line: "/usr/bin/env -S node --flag" leads to env and
// to node.
func (s *search) script(line string) {
	line, _, _ = strings.Cut(line, "\n")
	words := strings.Fields(line)
	if len(words) == 0 {
		return
	}
	s.file(words[0])
	if filepath.Base(words[0]) != "env" {
		return
	}
	for _, w := range words[1:] {
		if strings.HasPrefix(w, "-") || strings.Contains(w, "=") {
			continue
		}
		if p, err := exec.LookPath(w); err == nil && filepath.IsAbs(p) {
			s.file(p)
		}
		return
	}
}

// shims are directories of scripts that choose a version: what they belong to
// is the directory above.
func (s *search) shim(path string) {
	dir := filepath.Dir(path)
	if filepath.Base(dir) != "shims" {
		return
	}
	if home := filepath.Dir(dir); !wide(home) {
		s.paths = append(s.paths, home)
	}
}

// elf follows a program to its loader and to libraries that it names by places
// of its own.
func (s *search) elf(r io.ReaderAt, path string) {
	f, err := elf.NewFile(r)
	if err != nil {
		return
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		if b, err := io.ReadAll(io.LimitReader(p.Open(), 4096)); err == nil {
			s.file(strings.TrimRight(string(b), "\x00"))
		}
	}
	libs, err := f.ImportedLibraries()
	if err != nil {
		return
	}
	var dirs []string
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		if vals, err := f.DynString(tag); err == nil {
			for _, v := range vals {
				dirs = append(dirs, filepath.SplitList(v)...)
			}
		}
	}
	for _, dir := range dirs {
		for _, origin := range []string{"$ORIGIN", "${ORIGIN}"} {
			dir = strings.ReplaceAll(dir, origin, filepath.Dir(path))
		}
		for _, lib := range libs {
			if p := filepath.Join(dir, lib); filepath.IsAbs(p) {
				if _, err := os.Stat(p); err == nil {
					s.file(p)
				}
			}
		}
	}
}

// venvOf is the virtual environment that a path is the program of.
func venvOf(path string) string {
	prefix := filepath.Dir(filepath.Dir(path))
	if _, err := os.Stat(filepath.Join(prefix, "pyvenv.cfg")); err != nil {
		return ""
	}
	return prefix
}

// venv adds a virtual environment and the Python it was made from.
func (s *search) venv(dir string) {
	s.paths = append(s.paths, dir)
	f, err := os.Open(filepath.Join(dir, "pyvenv.cfg"))
	if err != nil {
		return
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, ok := strings.Cut(lines.Text(), "=")
		if ok && strings.TrimSpace(key) == "home" {
			s.file(filepath.Join(strings.TrimSpace(value), "python3"))
		}
	}
}

// add adds the installation that a file belongs to, or else the file alone.
func (s *search) add(path string) {
	if slices.ContainsFunc(systemDirs, func(d string) bool { return under(path, d) }) {
		return
	}
	s.paths = append(s.paths, installation(path))
}

// markers are names beside bin that make a directory one installation.
var markers = []string{"lib/node_modules", "include/node", "lib/python3*", "conda-meta", "pkg/tool", "lib/modules", "lib/ruby", "lib/perl5", "lib/rustlib"}

// installation is the directory that holds PREFIX/bin/program with its
// libraries, if that is all it holds; the file itself if not.
func installation(path string) string {
	dir := filepath.Dir(path)
	for range 4 { // PREFIX/lib/node_modules/npm/bin/npx-cli.js is four below
		prefix := filepath.Dir(dir)
		if wide(prefix) {
			break
		}
		for _, m := range markers {
			if hit, err := filepath.Glob(filepath.Join(prefix, m)); err == nil && len(hit) > 0 {
				return prefix
			}
		}
		dir = prefix
	}
	// A package of Node's that is not in an installation: all of it.
	for dir := filepath.Dir(path); !wide(dir); dir = filepath.Dir(dir) {
		if filepath.Base(dir) == "node_modules" {
			return dir
		}
		if _, err := os.Stat(filepath.Join(dir, "package.json")); err == nil && filepath.Base(filepath.Dir(dir)) != "node_modules" {
			return dir
		}
	}
	return path
}

// wide reports whether a directory holds more than one program's installation:
// a home directory and what is above it, its hidden collections, and the top
// of the tree.
func wide(dir string) bool {
	if filepath.Dir(dir) == "/" {
		return true
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return false
	}
	if real, err := filepath.EvalSymlinks(home); err == nil && under(real, dir) {
		return true
	}
	return under(home, dir) || slices.Contains([]string{".local", ".config", ".cache"}, filepath.Base(dir)) && filepath.Dir(dir) == home
}

// result is what was found, without what lies in something else that was.
func (s *search) result() []string {
	slices.Sort(s.paths)
	var out []string
	for _, p := range slices.Compact(s.paths) {
		if !slices.ContainsFunc(out, func(o string) bool { return under(p, o) }) {
			out = append(out, p)
		}
	}
	return out
}
