package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/landlock"
)

// systemDirs are the host's directories that the minimal root shows, read-only,
// where they exist. On most machines all but the first are links into /usr, and
// then the minimal root has the same links. The stores of Nix and Guix are what
// /usr is elsewhere: public by their design.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"}

// privateDir holds the private places inside: HOME, TMPDIR and so on. It is a
// name that no distribution uses, so that it hides nothing of the tree.
const privateDir = "/private"

// ownDirs are made by us inside, whatever the host has there.
var ownDirs = []string{"/etc", "/proc", "/dev", "/sys", privateDir, "/tmp", "/var", "/run"}

// treeDirs are those of ownDirs that become the tree's when a root lies in them. Of
// /tmp only the directories in it do: the rest is the command's to write in.
var treeDirs = []string{"/var", "/run"}

// TopDirs returns the names of the host's top-level directories that the minimal
// root does not use, sorted. Start binds the tree's directory of each name over
// the place of that name, so the layout of a Same mount shows all of them,
// always: a root that is granted later below one of them appears at once.
// Directories that are made in / after the start are not among them.
func TopDirs() []string {
	entries, err := os.ReadDir("/")
	if err != nil {
		return nil
	}
	var tops []string
	for _, e := range entries {
		if p := "/" + e.Name(); e.IsDir() && !slices.Contains(systemDirs, p) && !slices.Contains(ownDirs, p) {
			tops = append(tops, e.Name())
		}
	}
	return tops
}

// bind is one directory or file of the host that appears inside.
type bind struct {
	From string `json:"from"` // host path, which the caller may have opened (file)
	To   string `json:"to"`
	// Write leaves it writable as far as its own file system lets it.
	Write    bool `json:"write,omitempty"`
	Device   bool `json:"device,omitempty"`
	Optional bool `json:"optional,omitempty"` // left out if it cannot be reached
	System   bool `json:"system,omitempty"`   // a directory of the system's: see screen.go
}

// treeFile, and the file of a bind, are the names (config.Files) of what only the caller may open.
const treeFile = "tree"

func (m bind) file() string { return "bind:" + m.To }

type link struct {
	At     string `json:"at"`
	Target string `json:"target"`
}

// file is one that is written into the minimal root.
type file struct {
	At   string `json:"at"`
	Data []byte `json:"data"`
}

// copied is a file of the host's that is copied to a path inside. From has no links: the
// init resolves it below the new root, where a link with .. in it would lead there.
type copied struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// layout is the minimal root, before it is built: by build.go with system calls,
// by bwrap.go as arguments.
type layout struct {
	Dirs  []string `json:"dirs"` // in an order in which they can be made
	Links []link   `json:"links"`
	Files []file   `json:"files"`
	// Copies are copied if they exist and can be read: small, and replaced by
	// renaming on the host, so that a bind mount would not follow them anyway.
	Copies []copied `json:"copies"`
	Binds  []bind   `json:"binds"`
	// Places are binds of directories in privateDir: /tmp and the like.
	Places []bind `json:"places"`
	// TreeFrom is the path of the tree, which the caller may have opened (treeFile).
	TreeFrom string `json:"treeFrom"`
	FlatAt   string `json:"flatAt,omitempty"` // "": Same
	// Tops are paths inside bound from the tree's directory of that path, if
	// the tree has it; Nested likewise, over what a system directory shows.
	Tops   []string `json:"tops,omitempty"`
	Nested []string `json:"nested,omitempty"`
	// Spare are Options.Spare, where something can be shown later.
	Spare []string `json:"spare,omitempty"`

	TmpSize int64 `json:"tmpSize"`
}

// devices are those that programs need and that reach nothing of the host.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// newLayout decides what appears inside and where. It looks at the host and
// changes nothing.
func newLayout(o *Options, places Places) (*layout, error) {
	l := &layout{TmpSize: o.TmpSize, TreeFrom: o.Tree}
	for _, dir := range systemDirs {
		l.system(dir)
	}
	l.Dirs = append(l.Dirs, "/etc", "/proc", "/dev", "/dev/pts", "/dev/shm", privateDir, "/tmp", "/var", "/run")
	for _, name := range devices {
		l.Binds = append(l.Binds, bind{From: "/dev/" + name, To: "/dev/" + name, Device: true})
	}
	l.Links = append(l.Links,
		link{"/dev/ptmx", "pts/ptmx"}, link{"/dev/fd", "/proc/self/fd"}, link{"/dev/stdin", "/proc/self/fd/0"},
		link{"/dev/stdout", "/proc/self/fd/1"}, link{"/dev/stderr", "/proc/self/fd/2"})
	l.etc(o, places)
	if o.Map == Same {
		l.Spare = o.Spare
	}
	l.tree(o)
	l.private(o, places)
	for _, p := range o.Interpreters {
		if err := l.interpreter(o, p); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// system shows one of the host's system directories, or the link that stands
// for it.
func (l *layout) system(dir string) {
	info, err := os.Lstat(dir)
	if err != nil {
		return
	}
	if info.Mode()&os.ModeSymlink != 0 {
		if target, err := os.Readlink(dir); err == nil {
			l.Links = append(l.Links, link{dir, target})
		}
		return
	}
	l.mkdir(dir)
	l.Binds = append(l.Binds, bind{From: dir, To: dir, System: true})
}

// mkdir adds a directory and its parents.
func (l *layout) mkdir(dir string) {
	if dir == "/" || slices.Contains(l.Dirs, dir) {
		return
	}
	l.mkdir(filepath.Dir(dir))
	l.Dirs = append(l.Dirs, dir)
}

// tree places the roots.
func (l *layout) tree(o *Options) {
	if o.Map == Flat {
		l.FlatAt = o.FlatAt
		if !l.inSystem(o.FlatAt) {
			l.mkdir(o.FlatAt)
		}
		return
	}
	for _, name := range TopDirs() {
		l.Dirs = append(l.Dirs, "/"+name)
		l.Tops = append(l.Tops, "/"+name)
	}
	l.hostLinks()
	for _, dir := range treeDirs {
		if slices.ContainsFunc(o.Roots, func(r string) bool { return names.Under(r, dir) }) {
			l.Tops = append(l.Tops, dir)
		}
	}
	l.Tops = append(l.Tops, tmpTops(o.Roots)...)
	for _, r := range o.Roots {
		if r != "/" && !slices.ContainsFunc(l.Tops, func(t string) bool { return names.Under(r, t) }) {
			l.Nested = append(l.Nested, r)
		}
	}
	slices.Sort(l.Nested) // an outer one is bound before what lies in it
	l.Nested = slices.Compact(l.Nested)
}

// tmpTops are the directories in /tmp that have roots below them. One that is a root
// itself is none: it is bound as that root.
func tmpTops(roots []string) []string {
	var tops []string
	for _, r := range roots {
		rel, ok := strings.CutPrefix(r, "/tmp/")
		if first, _, deeper := strings.Cut(rel, "/"); ok && deeper && !slices.Contains(roots, "/tmp/"+first) && !slices.Contains(roots, "/tmp") {
			tops = append(tops, "/tmp/"+first)
		}
	}
	slices.Sort(tops)
	return slices.Compact(tops)
}

// hostLinks repeats the host's links in /, so that a path through one of them
// (/data, which leads to /mnt/data) means the same inside.
func (l *layout) hostLinks() {
	entries, err := os.ReadDir("/")
	if err != nil {
		return
	}
	for _, e := range entries {
		p := "/" + e.Name()
		if e.Type()&os.ModeSymlink == 0 || slices.Contains(systemDirs, p) || slices.Contains(ownDirs, p) {
			continue
		}
		if target, err := os.Readlink(p); err == nil {
			l.Links = append(l.Links, link{p, target})
		}
	}
}

// private places what belongs to the command alone.
func (l *layout) private(o *Options, places Places) {
	mine := func(dir string) bool { return !slices.Contains(l.Tops, dir) }
	l.Places = append(l.Places, bind{From: placeShm, To: "/dev/shm", Write: true})
	l.Places = append(l.Places, bind{From: placeTmp, To: "/tmp", Write: true})
	if mine("/run") {
		l.Places = append(l.Places, bind{From: placeRun, To: "/run", Write: true})
	}
	if mine("/var") {
		l.mkdir("/var/tmp")
		l.Links = append(l.Links, link{"/var/run", "/run"})
		l.Places = append(l.Places, bind{From: placeVarTmp, To: "/var/tmp", Write: true})
	}
	if o.Home != "" {
		l.Binds = append(l.Binds, bind{From: o.Home, To: places.Home, Write: true})
	}
}

// interpreter shows one more installation at its own path.
func (l *layout) interpreter(o *Options, p string) error {
	if l.inSystem(p) {
		return nil
	}
	if slices.ContainsFunc(l.Tops, func(t string) bool { return names.Under(p, t) }) {
		if slices.ContainsFunc(o.Roots, func(r string) bool { return names.Under(p, r) }) {
			return nil
		}
		return invalid("Interpreters: %s would lie in a directory of the tree: make it a root instead", names.Quote(p))
	}
	if slices.ContainsFunc([]string{"/etc", "/proc", "/dev", "/sys"}, func(d string) bool { return names.Under(p, d) }) || p == "/" {
		return invalid("Interpreters: %s cannot be shown: it is a directory that every command gets one of its own of", names.Quote(p))
	}
	l.Binds = append(l.Binds, bind{From: p, To: p})
	return nil
}

// inSystem reports whether a path lies in a directory of the host's that is
// shown as it is.
func (l *layout) inSystem(p string) bool {
	for _, b := range l.Binds {
		if slices.Contains(systemDirs, b.To) && names.Under(p, b.To) {
			return true
		}
	}
	return false
}

// rules are Landlock's for what this layout shows: a second line behind the
// flags of the mounts.
func (l *layout) rules() landlock.Rules {
	r := landlock.Rules{Read: []string{"/"}, Write: []string{privateDir, "/dev/pts"}}
	for _, name := range devices {
		r.Write = append(r.Write, "/dev/"+name)
	}
	for dir := range placeModes {
		// A HOME that is kept is the host's: programs outside could connect there.
		if !slices.ContainsFunc(l.Binds, func(b bind) bool { return b.Write && b.To == dir }) {
			r.Sockets = append(r.Sockets, dir)
		}
	}
	for _, b := range l.Places {
		r.Write = append(r.Write, b.To)
	}
	for _, b := range l.Binds {
		if b.Write {
			r.Write = append(r.Write, b.To)
		}
	}
	if l.FlatAt != "" {
		r.Write = append(r.Write, l.FlatAt)
	}
	r.Write = append(append(r.Write, l.Tops...), l.Nested...)
	r.Spare = l.Spare
	return r
}
