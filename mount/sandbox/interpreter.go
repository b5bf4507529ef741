package sandbox

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
)

// Needed is a file, directory or link that a command needs.
type Needed struct {
	Path string
	// Link is the target of the link at Path, as the link has it; "": Path is no link.
	Link string
	// FoundVia is the first untrusted place through which Path was found (see Interpreter), such
	// as a link, a script, or the configuration of a virtual environment. "": there was none.
	FoundVia string
}

// Interpreter returns the files that a command needs and the minimal root lacks. Examples are
// the installation of a Node under ~/.nvm, one of pyenv, a virtual environment, a Go
// toolchain, and a program's own file. Interpreter follows links, scripts' first lines
// (also through env), virtual environments to the Python they were made from,
// shims to their version manager, and programs to their loader and libraries.
// The paths are absolute, and their directories are no links. Each is a directory, a single file,
// or a link through which one was found (a version manager's "current", a program's second name).
// They are sorted, and none lies within another. A command without a slash is looked for on PATH.
// One with a slash is a path; a relative path begins at the working directory.
//
// isUntrusted reports whether someone other than the caller controls a place, an absolute
// path whose directories are no links. It is called for the places through which a needed
// file is found, up to the first untrusted one, which becomes Needed.FoundVia. It is also called
// for places that only decide which code runs, such as the directories in which a program's
// libraries are looked for. nil: every place is trusted.
//
// Interpreter does not take HOME, a directory above HOME, or a directory that is
// known to hold more than one installation (~/.local) for an installation. From there it
// returns single files, and the lib/python3* of a virtual environment. Interpreter cannot find
// files whose names a program computes; the owner must make their directory a root.
//
// The error is of kind NotExist if there is no such command, and has ErrNotExecutable in its
// chain if the command cannot be executed.
func Interpreter(path string, isUntrusted func(place string) bool) ([]Needed, error) {
	found, err := exec.LookPath(path)
	switch {
	case err != nil && errors.Is(err, fs.ErrPermission):
		return nil, notExecutable(path, "it is no program: make it executable with chmod +x")
	case errors.Is(err, unix.EISDIR):
		return nil, notExecutable(path, "it is a directory: write the path of a program")
	case err != nil && !errors.Is(err, exec.ErrDot) && !strings.Contains(path, "/"):
		return nil, &names.Error{Kind: names.NotExist, Err: fmt.Errorf("the command %s is in no directory of PATH: install it, or write its full path", names.Quote(path))}
	case err != nil && !errors.Is(err, exec.ErrDot):
		return nil, notFound(path)
	}
	if found, err = filepath.Abs(found); err != nil {
		return nil, failed("find the working directory: %v", err)
	}
	s := &search{isUntrusted: isUntrusted, seen: map[string]string{}, needed: map[string]string{}, links: map[string]string{}}
	s.addFile(found, "")
	return s.result(), nil
}

// openRegular opens a regular file to read. A file that a command may write can be
// anything by now, and opening a named pipe would wait.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%s is not a regular file", names.Quote(path))
	}
	return f, nil
}

// search collects the files that a command needs. It notes every file with the untrusted place
// through which the file was found, "" for none. Files found through this file inherit the place.
type search struct {
	isUntrusted func(place string) bool
	seen        map[string]string // untrusted places by examined path; "" replaces another place
	needed      map[string]string // untrusted places by needed path; "" replaces another place
	links       map[string]string // targets by path, for the links among needed
}

// untrustedPlace returns via, the untrusted place through which path was found. If via is "", it
// returns the first untrusted place of path itself, or "". addScript and addELF call untrustedPlace
// only so that isUntrusted is called for a path: the function isUntrusted may record its results.
func (s *search) untrustedPlace(path, via string) string {
	if via != "" || s.isUntrusted == nil {
		return via
	}
	links, end := walk(path)
	for _, l := range links {
		if s.isUntrusted(l.at) {
			return l.at
		}
	}
	if s.isUntrusted(end) {
		return end
	}
	return ""
}

// pathLink is a link on a path.
type pathLink struct {
	at, target string
	isLast     bool // it is the last element of the path
}

// walk returns the links on a path, including the links they lead to, and the end of the
// path. Changing one of these places can change what the path means.
func walk(path string) (links []pathLink, end string) {
	end, _ = names.WalkLinks(path, func(s names.LinkStep) (string, error) {
		if len(links) == maxLinks {
			return "", nil
		}
		target, err := os.Readlink(s.Path())
		if err == nil {
			links = append(links, pathLink{s.Path(), target, s.Last})
		}
		return target, nil //nolint:nilerr // no link, or one that cannot be read: then the command cannot either
	}, nil)
	return links, end
}

// LinksOn returns the targets of the links on an absolute path, by the paths of the links. The
// directories of these paths are no links.
func LinksOn(path string) map[string]string {
	found := map[string]string{}
	links, _ := walk(path)
	for _, l := range links {
		found[l.at] = l.target
	}
	return found
}

// need notes a needed path with the untrusted place via.
func (s *search) need(path, via string) {
	if had, ok := s.needed[path]; !ok || had != "" {
		s.needed[path] = via
	}
}

// maxLinks is the number of links after which the kernel gives up (MAXSYMLINKS).
const maxLinks = 40

// addFile adds one file and the files to which it leads. It leaves out a file that does not exist,
// and adds a file that it cannot read without looking further: the command will fail at such a file
// and say so itself.
func (s *search) addFile(path, via string) {
	if names.Under(path, "/proc") {
		return // such a path means another file for the command than for this process
	}
	via = s.untrustedPlace(path, via)
	if had, ok := s.seen[path]; ok && (had == "" || via != "") {
		return
	}
	s.seen[path] = via
	links, end := walk(path)
	for _, l := range links {
		s.addLink(l, via)
	}
	if venv := venvOf(end); venv != "" {
		s.addVenv(venv, via)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return
	}
	s.addInstallation(real, via)
	f, err := openRegular(real)
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
		s.addShim(real, via)
		s.addScript(string(line), via)
		return
	}
	s.addELF(f, real, via)
}

// addScript adds the files to which a script's first line leads: "/usr/bin/env -S node --flag"
// leads to env and to node. Every path on the line can decide which code runs, as a script or as
// an option's directory (-I/path), so isUntrusted is called for it, too.
func (s *search) addScript(line, via string) {
	line, _, _ = strings.Cut(line, "\n")
	words := strings.Fields(line)
	if len(words) == 0 {
		return
	}
	s.addFile(words[0], via)
	for _, part := range strings.FieldsFunc(strings.Join(words[1:], " "), func(c rune) bool { return strings.ContainsRune(" =:,;@\"'", c) }) {
		if i := strings.IndexByte(part, '/'); i == 0 || i > 0 && part[0] == '-' {
			s.untrustedPlace(filepath.Clean(part[i:]), via)
		}
	}
	if filepath.Base(words[0]) != "env" {
		return
	}
	for _, w := range words[1:] {
		if strings.HasPrefix(w, "-") || strings.Contains(w, "=") {
			continue
		}
		if p, err := exec.LookPath(w); err == nil && filepath.IsAbs(p) {
			s.addFile(p, via)
		}
		return
	}
}

// addLink adds a link through which a file is found, unless IsShown is true for it: the program to
// which the link leads may depend on the link's name. If the link is the last element of the path,
// the installation that the link belongs to is needed, too.
func (s *search) addLink(l pathLink, via string) {
	if l.isLast {
		if venv := venvOf(l.at); venv != "" {
			s.addVenv(venv, via)
		}
		s.addShim(l.at, via)
		s.addInstallation(l.at, via)
	}
	if !IsShown(l.at) {
		s.links[l.at] = l.target
		s.need(l.at, via)
	}
}

// IsShown reports whether a path lies in a directory that every command has at that path: one of
// the host's system directories, or an /etc, /proc, /dev or /sys of the command's own.
func IsShown(path string) bool {
	return slices.ContainsFunc(slices.Concat(layout.SystemDirs, []string{"/etc", "/proc", "/dev", "/sys"}), func(d string) bool { return names.Under(path, d) })
}

// IsPrivate reports whether a path inside lies in a private directory of the command, such as
// HOME.
func IsPrivate(path string) bool { return names.Under(path, layout.PrivateDir) }

// CanShowLink reports whether the tree can show a link at a path. It cannot where the command has
// files of its own: in /var or /run, unless one of roots lies in this directory; directly in /tmp;
// in a private directory; and where IsShown is true.
func CanShowLink(at string, roots []string) bool {
	for _, dir := range []string{"/var", "/run"} {
		if names.Under(at, dir) && !slices.ContainsFunc(roots, func(r string) bool { return names.Under(r, dir) }) {
			return false
		}
	}
	return !IsShown(at) && !IsPrivate(at) && filepath.Dir(at) != "/tmp"
}

// addShim adds the directory in which a version manager keeps the versions, if path is a shim of
// the manager.
func (s *search) addShim(path, via string) {
	if shim, ok := ShimOf(path); ok && !isShared(shim.Dir) {
		s.need(shim.Dir, via)
	}
}

// addELF adds a program's loader, and the libraries that the program names by a path or that lie in
// a directory that the program names. Such a directory can decide which code runs, even if it has
// no library yet: the libraries of the libraries are looked for there, too. So isUntrusted is
// called for it.
func (s *search) addELF(r io.ReaderAt, path, via string) {
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
			s.addFile(strings.TrimRight(string(b), "\x00"), via)
		}
	}
	libs, err := f.ImportedLibraries()
	if err != nil {
		return
	}
	for _, lib := range libs {
		if strings.Contains(lib, "/") { // the loader looks nowhere else for it
			s.addFile(filepath.Join("/", lib), via)
		}
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
		if filepath.IsAbs(dir) {
			s.untrustedPlace(filepath.Clean(dir), via)
		}
		for _, lib := range libs {
			if p := filepath.Join(dir, lib); filepath.IsAbs(p) {
				if _, err := os.Stat(p); err == nil {
					s.addFile(p, via)
				}
			}
		}
	}
}

// venvOf returns the virtual environment of a program's path, or "".
func venvOf(path string) string {
	prefix := filepath.Dir(filepath.Dir(path))
	if _, err := os.Stat(filepath.Join(prefix, "pyvenv.cfg")); err != nil {
		return ""
	}
	return prefix
}

// addVenv adds a virtual environment and the Python it was made from. From an environment that
// was made in a shared directory, such as HOME itself, it adds only the environment's own parts;
// addFile adds the program.
func (s *search) addVenv(dir, via string) {
	conf := filepath.Join(dir, "pyvenv.cfg")
	via = s.untrustedPlace(conf, via)
	own := []string{dir}
	if isShared(dir) {
		own, _ = filepath.Glob(filepath.Join(dir, "lib", "python3*"))
		own = append(own, conf)
	}
	for _, path := range own {
		if real, err := filepath.EvalSymlinks(path); err == nil && real == path {
			s.need(path, via)
		}
	}
	f, err := openRegular(conf)
	if err != nil {
		return
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, ok := strings.Cut(lines.Text(), "=")
		if ok && strings.TrimSpace(key) == "home" {
			s.addFile(filepath.Join(strings.TrimSpace(value), "python3"), via)
		}
	}
}

// addInstallation adds the installation that a file belongs to, or else the file alone. It adds
// nothing if IsShown is true for the file.
func (s *search) addInstallation(path, via string) {
	if IsShown(path) {
		return
	}
	dir, marker := installation(path)
	if marker != "" {
		via = s.untrustedPlace(marker, via)
	}
	s.need(dir, via)
}

// markers are paths beside bin that mark the directory around them as one installation.
var markers = []string{"lib/node_modules", "include/node", "lib/python3*", "conda-meta", "pkg/tool", "lib/modules", "lib/ruby", "lib/perl5", "lib/rustlib"}

// installation returns the directory PREFIX of a program such as PREFIX/bin/program, if one of
// markers marks PREFIX as one installation, and the path of that marker. For a program of a Node
// package outside such a directory it returns the package's directory and its package.json, or the
// directory node_modules and no marker. Otherwise it returns the program itself and no marker.
func installation(path string) (dir, marker string) {
	dir = filepath.Dir(path)
	for range 4 { // PREFIX/lib/node_modules/npm/bin/npx-cli.js is four directories below PREFIX
		prefix := filepath.Dir(dir)
		if isShared(prefix) {
			break
		}
		for _, m := range markers {
			if hit, err := filepath.Glob(filepath.Join(prefix, m)); err == nil && len(hit) > 0 {
				return prefix, hit[0]
			}
		}
		dir = prefix
	}
	// A Node package that is not in an installation: add its whole directory.
	for dir := filepath.Dir(path); !isShared(dir); dir = filepath.Dir(dir) {
		if filepath.Base(dir) == "node_modules" {
			return dir, ""
		}
		mark := filepath.Join(dir, "package.json")
		if _, err := os.Stat(mark); err == nil && filepath.Base(filepath.Dir(dir)) != "node_modules" {
			return dir, mark
		}
	}
	return path, ""
}

// isShared reports whether a directory may hold more than one program's installation: HOME, the
// directories above HOME, .local, .config and .cache in HOME, and the directories in /.
func isShared(dir string) bool {
	if filepath.Dir(dir) == "/" {
		return true
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return false
	}
	if real, err := filepath.EvalSymlinks(home); err == nil && names.Under(real, dir) {
		return true
	}
	return names.Under(home, dir) || slices.Contains([]string{".local", ".config", ".cache"}, filepath.Base(dir)) && filepath.Dir(dir) == home
}

// result returns the needed paths, without those that lie in another needed path.
func (s *search) result() []Needed {
	var out []Needed
	for _, p := range slices.Sorted(maps.Keys(s.needed)) {
		if !slices.ContainsFunc(out, func(o Needed) bool { return names.Under(p, o.Path) }) {
			out = append(out, Needed{p, s.links[p], s.needed[p]})
		}
	}
	return out
}
