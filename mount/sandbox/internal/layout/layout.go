// Package layout plans the root directory of a confined command: which directories and files
// of the host and of the tree (the mount with the command's roots) appear at which paths, and which
// are the command's own. The init (package initproc) builds this root directory with system calls;
// bwrap builds it from arguments.
//
// The package changes nothing on the host. A layout shows only the system's files,
// read-only, and files that were asked for by name. A file that a layout names may be gone when
// the root directory is built.
package layout

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/landlock"
)

// SystemDirs are the host's directories that the minimal root shows, read-only, if they exist.
// On most machines /bin, /sbin and the directories /lib* are links into /usr, and then the minimal
// root has the same links. The stores of Nix and Guix take the place of /usr: they are public by
// design.
var SystemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"}

// PrivateDir has the command's private directories: HOME, TMPDIR and so on. No distribution uses
// this name, so the directory hides nothing of the tree.
const PrivateDir = "/private"

// The directories in the private file system.
const (
	Home    = PrivateDir + "/home"
	Tmp     = PrivateDir + "/tmp"
	Run     = PrivateDir + "/run"
	Runtime = PrivateDir + "/runtime"
	varTmp  = PrivateDir + "/var-tmp"
	shm     = PrivateDir + "/shm"
)

// PrivateModes are the modes of the directories in the private file system.
var PrivateModes = map[string]uint32{
	Home: 0o700, Runtime: 0o700, Run: 0o755, Tmp: 0o1777, varTmp: 0o1777, shm: 0o1777,
}

// SocketDir is the directory, in the command's root, that holds the granted sockets.
const SocketDir = Runtime + "/sockets"

// ownDirs has directories that the minimal root makes itself, whatever the host has there.
var ownDirs = []string{"/etc", "/proc", "/dev", "/sys", PrivateDir, "/tmp", "/var", "/run"}

// treeDirs has the directories of ownDirs that are bound from the tree if a root lies in them.
// Of /tmp only single directories are bound, because the command must be able to write to the
// rest.
var treeDirs = []string{"/var", "/run"}

// SysDirs are the directories of /sys that programs read to size their pools: lscpu, the
// runtimes of Go, Java and Node, OpenMP. What everybody may read there about processors and
// memory is also in /proc/cpuinfo and /proc/meminfo. Only the host's root can read the files
// that identify the machine.
var SysDirs = []string{"/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage"}

// groupDir is where control groups are mounted, by every convention.
const groupDir = "/sys/fs/cgroup"

// Devices has the devices that programs need. They give no access to the host.
var Devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// Spec describes the command that a layout is for.
type Spec struct {
	Tree   string   // where the tree is mounted
	FlatAt string   // path at which the whole tree appears; "": each root appears at its own path
	Roots  []string // paths of the roots in the tree, if FlatAt is ""
	Links  []string // links that the tree shows
	Spare  []string // spare directories of the tree, which can show a root later
	// Interpreters are shown read-only at their own paths.
	Interpreters []string
	KeptHome     string // directory of the host that appears as HOME; "": none
	HomeAt       string // HOME inside
	UID, GID     uint32
	Net          bool   // the host's network
	ResolvConf   []byte // for a network of the command's own; nil: there is no such network
	Trust        *Trust // nil: the machine's authorities alone
	TmpSize      int64  // bytes of the private file system
	// Group is the directory of the command's own control group, "" if there is none.
	Group     string
	GroupIsV1 bool // Group is of version 1
}

// Bind is one directory or file of the host that appears inside.
type Bind struct {
	From, To string // From may have been opened by the caller: see File
	Write    bool   // writable, if its own file system permits that
	Device   bool
	Kernel   bool // the kernel makes its files, so it has no socket
	Optional bool // left out if it cannot be reached
	System   bool // a system directory, shown by an overlay
}

// TreeFile is the name of the tree's descriptor, if the caller has opened the tree because only the
// caller may enter its directory. Bind.File names the descriptors of binds in the same way.
const TreeFile = "tree"

// File names the descriptor for the bind, if the caller has opened one.
func (m Bind) File() string { return "bind:" + m.To }

// Link is a symbolic link.
type Link struct{ At, Target string }

// File is a file that is written into the minimal root.
type File struct {
	At   string
	Data []byte // nil: the caller has opened a file with the data, see Name
}

// Name names the descriptor of the file with the data, if the caller has opened one.
func (f File) Name() string { return "file:" + f.At }

// Copy is a file of the host's that is copied to a path inside. From has no links: when the init
// resolves From, the new root is mounted over the host's root, and a link with .. could lead into
// the new root.
type Copy struct{ From, To string }

// CopyMax is the size of the largest file that is copied.
const CopyMax = 1 << 20

// Layout is the minimal root, before it is built.
type Layout struct {
	Dirs  []string // directories to make, also as parents of other entries
	Links []Link
	Files []File
	// Copies has small files that are copied if they exist and can be read. The host replaces
	// such files by renaming, so a bind mount would not show their changes either.
	Copies       []Copy
	Binds        []Bind
	Masks        []string // files in Binds that an empty file replaces
	PrivateBinds []Bind   // binds of directories in PrivateDir, such as /tmp
	// TreeFrom is the path of the tree, which the caller may have opened (TreeFile).
	TreeFrom string
	FlatAt   string // "": each root appears at its own path
	// Tops has paths inside that are bound from the tree's directory of the same path, if the
	// tree has it. Nested has the paths of roots outside of Tops, such as roots in system
	// directories. They are bound in the same way, but the tree must have them.
	Tops, Nested []string
	Spare        []string // spare directories of the tree
	TmpSize      int64
}

// New makes the layout of the root that a Spec describes.
func New(o *Spec) (*Layout, error) {
	l := &Layout{TmpSize: o.TmpSize, TreeFrom: o.Tree, FlatAt: o.FlatAt}
	for _, dir := range SystemDirs {
		l.addSystemDir(dir)
	}
	l.Dirs = append(l.Dirs, "/etc", "/var", "/run")
	for _, path := range Devices {
		l.Binds = append(l.Binds, Bind{From: path, To: path, Device: true})
	}
	l.Links = append(l.Links,
		Link{"/dev/ptmx", "pts/ptmx"}, Link{"/dev/fd", "/proc/self/fd"}, Link{"/dev/stdin", "/proc/self/fd/0"},
		Link{"/dev/stdout", "/proc/self/fd/1"}, Link{"/dev/stderr", "/proc/self/fd/2"})
	l.addSys(o)
	l.addEtc(o)
	if o.FlatAt == "" {
		l.Spare = o.Spare
		l.addRoots(o.Roots, o.Links)
	}
	l.addPrivate(o)
	for _, p := range o.Interpreters {
		if err := l.addInterpreter(o, p); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// addSystemDir adds one of the host's system directories, or the link at its path.
func (l *Layout) addSystemDir(dir string) {
	info, err := os.Lstat(dir)
	if err != nil {
		return
	}
	if info.Mode()&os.ModeSymlink != 0 {
		l.addLink(dir)
		return
	}
	l.Binds = append(l.Binds, Bind{From: dir, To: dir, System: true})
}

// addSys adds the command's parts of /sys: SysDirs, and its control group if it has one. Each of
// them is left out of the root directory if it cannot be reached.
func (l *Layout) addSys(o *Spec) {
	for _, dir := range SysDirs {
		l.Binds = append(l.Binds, Bind{From: dir, To: dir, Kernel: true, Optional: true})
	}
	at := groupDir
	if o.GroupIsV1 {
		at += "/memory"
	}
	if o.Group != "" {
		l.Binds = append(l.Binds, Bind{From: o.Group, To: at, Kernel: true, Optional: true})
	}
}

// addLink adds a link with the path and the target of one of the host's links.
func (l *Layout) addLink(at string) {
	if target, err := os.Readlink(at); err == nil {
		l.Links = append(l.Links, Link{at, target})
	}
}

// topEntries returns the entries of the host's / that the minimal root does not use.
func topEntries() []os.DirEntry {
	entries, err := os.ReadDir("/")
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(entries, func(e os.DirEntry) bool { return isUsed("/" + e.Name()) })
}

// isUsed reports whether a top-level directory is one of ownDirs, or is or contains one of
// SystemDirs. The tree's directory of the same name must not be bound there: it would hide, for
// example, /nix/store.
func isUsed(top string) bool {
	return slices.Contains(ownDirs, top) || slices.ContainsFunc(SystemDirs, func(dir string) bool { return names.Under(dir, top) })
}

// TopDirs returns the names of the host's top-level directories that the minimal
// root does not use, sorted.
func TopDirs() []string {
	var tops []string
	for _, e := range topEntries() {
		if e.IsDir() {
			tops = append(tops, e.Name())
		}
	}
	return tops
}

// addRoots adds, at their own paths, the directories of the tree that can have roots or links in
// them, and the roots that lie elsewhere. It also adds the host's top-level links.
func (l *Layout) addRoots(roots, links []string) {
	for _, e := range topEntries() {
		p := "/" + e.Name()
		if e.IsDir() {
			l.Dirs = append(l.Dirs, p)
			l.Tops = append(l.Tops, p)
		} else if e.Type()&os.ModeSymlink != 0 {
			l.addLink(p) // a path through the link (/data, which leads to /mnt/data) means the same inside
		}
	}
	for _, dir := range treeDirs {
		if slices.ContainsFunc(roots, func(r string) bool { return names.Under(r, dir) }) {
			l.Tops = append(l.Tops, dir)
		}
	}
	l.Tops = append(l.Tops, tmpTops(roots, links)...)
	for _, r := range roots {
		if r != "/" && !l.inTops(r) {
			l.Nested = append(l.Nested, r)
		}
	}
	slices.Sort(l.Nested) // an outer root is bound before the roots in it
	l.Nested = slices.Compact(l.Nested)
}

// inTops reports whether a path lies in one of Tops, which are bound from the tree.
func (l *Layout) inTops(p string) bool {
	return slices.ContainsFunc(l.Tops, func(top string) bool { return names.Under(p, top) })
}

// tmpTops returns the directories in /tmp that have roots or links below them. A directory
// that is a root itself is left out, because it is bound as a root. If /tmp itself is a root,
// tmpTops returns none.
func tmpTops(roots, links []string) []string {
	var tops []string
	for _, r := range slices.Concat(roots, links) {
		rel, ok := strings.CutPrefix(r, "/tmp/")
		if first, _, deeper := strings.Cut(rel, "/"); ok && deeper && !slices.Contains(roots, "/tmp/"+first) && !slices.Contains(roots, "/tmp") {
			tops = append(tops, "/tmp/"+first)
		}
	}
	slices.Sort(tops)
	return slices.Compact(tops)
}

// addPrivate adds the command's private directories, and the kept HOME if there is one.
func (l *Layout) addPrivate(o *Spec) {
	l.PrivateBinds = []Bind{{From: shm, To: "/dev/shm", Write: true}, {From: Tmp, To: "/tmp", Write: true}}
	if !slices.Contains(l.Tops, "/run") {
		l.PrivateBinds = append(l.PrivateBinds, Bind{From: Run, To: "/run", Write: true})
	}
	if !slices.Contains(l.Tops, "/var") {
		l.Links = append(l.Links, Link{"/var/run", "/run"})
		l.PrivateBinds = append(l.PrivateBinds, Bind{From: varTmp, To: "/var/tmp", Write: true})
	}
	if o.KeptHome != "" {
		l.Binds = append(l.Binds, Bind{From: o.KeptHome, To: o.HomeAt, Write: true})
	}
}

// addInterpreter adds a directory or file of the host, one of Spec.Interpreters, at its own path. It
// adds nothing if a system directory or a root shows the path already. It returns an error if the
// path is /, or lies in another directory of the tree or in /etc, /proc, /dev or /sys.
func (l *Layout) addInterpreter(o *Spec, p string) error {
	below := func(dir string) bool { return names.Under(p, dir) }
	switch {
	case l.inSystem(p):
		return nil
	case l.inTops(p) && slices.ContainsFunc(o.Roots, below):
		return nil
	case l.inTops(p):
		return invalid("Interpreters: %s would lie in a directory of the tree: make it a root instead", names.Quote(p))
	case p == "/" || slices.ContainsFunc([]string{"/etc", "/proc", "/dev", "/sys"}, below):
		return invalid("Interpreters: %s cannot be shown: every command has its own /, /etc, /proc, /dev and /sys", names.Quote(p))
	}
	l.Binds = append(l.Binds, Bind{From: p, To: p})
	return nil
}

func invalid(format string, args ...any) error {
	return &names.Error{Kind: names.Invalid, Err: fmt.Errorf(format, args...)}
}

// inSystem reports whether a path lies in one of SystemDirs that is bound, not linked.
func (l *Layout) inSystem(p string) bool {
	return slices.ContainsFunc(l.Binds, func(b Bind) bool {
		return slices.Contains(SystemDirs, b.To) && names.Under(p, b.To)
	})
}

// Rules returns Landlock's rules for this layout. They protect in addition to the flags of the
// mounts.
func (l *Layout) Rules() landlock.Rules {
	r := landlock.Rules{Read: []string{"/"}, Write: append([]string{PrivateDir, "/dev/pts"}, Devices...), Spare: l.Spare}
	for dir := range PrivateModes {
		// A kept HOME is on the host, where programs outside could connect to a socket.
		if !slices.ContainsFunc(l.Binds, func(b Bind) bool { return b.Write && b.To == dir }) {
			r.Sockets = append(r.Sockets, dir)
		}
	}
	for _, b := range slices.Concat(l.PrivateBinds, l.Binds) {
		if b.Write {
			r.Write = append(r.Write, b.To)
		}
	}
	tree := slices.Concat(l.Tops, l.Nested)
	if l.FlatAt != "" {
		tree = append(tree, l.FlatAt)
	}
	r.Write = append(r.Write, tree...)
	for _, dir := range tree {
		// If a kept HOME lies in dir, no socket may be made in dir: a process outside could reach
		// a socket in that HOME. Such a process can reach no other socket in the tree.
		if !slices.ContainsFunc(l.Binds, func(b Bind) bool { return b.Write && names.Under(b.To, dir) }) {
			r.Sockets = append(r.Sockets, dir)
		}
	}
	return r
}

// shownProcEntries are the entries of /proc, besides those of processes, that programs
// read to learn about the machine. Other entries belong to the host (kcore, keys, kallsyms,
// sysrq-trigger, scsi, acpi and entries of drivers), and root can write to some of them. They are
// hidden, except the ones that their modes close to the command: see HidesProc.
var shownProcEntries = []string{
	"self", "thread-self", "mounts", "net", "cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems", "cgroups", "devices", "pressure", "vmstat", "swaps",
}

// dangerousProcEntries are entries that act on the machine, or show its memory.
var dangerousProcEntries = []string{"sysrq-trigger", "kcore", "kmsg", "kmem"}

// HidesProc reports whether an entry of /proc is hidden.
func HidesProc(e os.DirEntry) bool {
	name := e.Name()
	if name[0] >= '0' && name[0] <= '9' || slices.Contains(shownProcEntries, name) {
		return false
	}
	// An entry without rights for others is closed to any uid inside. The most dangerous
	// entries are hidden nevertheless.
	info, err := e.Info()
	return err != nil || info.Mode()&0o007 != 0 || slices.Contains(dangerousProcEntries, name)
}
