package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/initproc"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
)

// Level is a strength of confinement.
type Level uint8

// The levels, strongest first. The zero Level means the strongest level that this machine can
// reach.
const (
	// Namespaces: user, mount, pid, ipc, uts, cgroup and network namespaces
	// with a root directory of the command's own, Landlock's rules and the system call filter.
	Namespaces Level = iota + 1
	// Bubblewrap: the same root directory, which bwrap(1) makes, for machines that let only
	// bwrap make namespaces; also with Landlock's rules and the system call filter.
	Bubblewrap
	// Landlock: the host's own directories, with Landlock's rules and the
	// system call filter. Holes remain; Report names them.
	Landlock
	// None: nothing is confined. Start uses it only if it is named.
	None
)

var levelNames = [...]string{Namespaces: "namespaces", Bubblewrap: "bubblewrap", Landlock: "landlock", None: "none"}

// String returns the level's name; "strongest" for the zero Level and for unknown ones.
func (l Level) String() string {
	if l == 0 || int(l) >= len(levelNames) {
		return "strongest"
	}
	return levelNames[l]
}

// ParseLevel is the inverse of String for the four levels.
func ParseLevel(s string) (Level, error) {
	for l := Namespaces; l <= None; l++ {
		if levelNames[l] == s {
			return l, nil
		}
	}
	return 0, invalid("unknown level %s: write namespaces, bubblewrap, landlock or none", names.Quote(s))
}

// Shows reports whether every command at the level may see an absolute and clean path, such as a
// path in a system directory. Roots, interpreters and private directories do not count, because
// they depend on Options. For None and the zero Level it always reports false.
func (l Level) Shows(path string) bool {
	return l != 0 && l < None && strings.HasPrefix(path, "/") && layout.Shows(path)
}

// TopDirs returns the names of the host's top-level directories that the minimal
// root does not use, sorted. Start binds the tree's directory of each name at /NAME inside. So
// the layout of a Same mount always shows all of them, and a root that is granted later below one
// of them appears at once. Directories that are made in / after the start are not among them.
func TopDirs() []string { return layout.TopDirs() }

// Map is where the roots appear inside.
type Map uint8

// The maps.
const (
	// Same (the default): every root appears at the absolute path that it has outside. The tree
	// has absolute paths below it: TREE/home/u/code is /home/u/code.
	Same Map = iota
	// Flat: the tree appears as it is, at Options.FlatAt.
	Flat
)

const (
	// DefaultFlatAt is where a Flat tree appears.
	DefaultFlatAt = "/roots"
	// MinMemory is the memory that the init and a small program need, in bytes.
	MinMemory = 64 << 20
	// DefaultPids is enough for npx, which starts some fifty threads, and for
	// a build; a fork bomb of this size does no harm.
	DefaultPids = 512
	// MinPids suffices for a shell with a pipe, or for Node with its thread pool.
	MinPids = 16
	MaxPids = 4 << 20 // the kernel's own limit of pids (PID_MAX_LIMIT)
)

// Options describe one confined command. The zero values are the defaults where
// a field says so.
type Options struct {
	// Args is the command and its arguments. A command without a slash is
	// looked for on the PATH of Env (as the command itself will see it). If Env
	// has no PATH, it is looked for in the system's directories of programs.
	Args []string
	// Program is the absolute path, inside, of the program to execute. The command still gets
	// Args[0] as its name. "": Start finds the program by Args[0].
	Program string
	// Links maps the path of each link of the host that the tree shows to the link's target.
	// Directories on the PATH may lead through these links.
	Links map[string]string
	// Dir is the working directory, a path inside; "" is the private HOME.
	Dir string
	// Tree is the mountpoint of the private mount, a resolved path. It is the sole entry of
	// a directory that only the caller's uid may enter.
	Tree string
	Map  Map
	// FlatAt is where a Flat tree appears; default DefaultFlatAt.
	FlatAt string
	// Roots are the roots granted at the start, as absolute paths inside, for Map Same. They
	// decide whether /tmp, /var and /run are private or bound from the tree, and which paths
	// below system directories are replaced.
	Roots []string
	// Spare has the paths, in the tree, of directories in which the tree shows nothing
	// yet. With them Process.Bind can show roots at places where no directory was bound
	// at the start, in Map Same at level Namespaces.
	Spare []string
	// Env is the command's environment (see Environ). Start adds the variables of private
	// places that Env lacks.
	Env []string
	// Home is a directory that is kept between runs and appears as HOME; ""
	// is an empty one in memory. It must belong to the uid the command gets.
	Home string
	// Private is a directory for this run alone, on the host, where levels
	// without namespaces put HOME and TMPDIR; the caller removes it. It must
	// not contain Tree. Only levels Landlock and None need it.
	Private string
	// TmpSize bounds the contents of private directories in memory, in bytes; default: a
	// quarter of the machine's memory, at most 2 GiB, and at most half of MemoryMax; but at
	// least MinTmpSize.
	TmpSize int64
	// Net gives the host's network; without it there is a loopback interface
	// of the command's own (none at all at level Landlock).
	Net bool
	// Network, if not nil, is served by the caller in the command's own network; without
	// Net, and at levels Namespaces and Bubblewrap only.
	Network *Network `json:"-"`
	// Trust is a certificate authority that programs trust besides the machine's; nil: none.
	Trust *Trust `json:"-"`
	// HomeFiles are written into the private HOME, at levels Namespaces and Bubblewrap, before
	// the command is started; not with Home.
	HomeFiles []HomeFile
	// Listen has the ports, of TCP and UDP, on which the command may listen in the host's
	// network; with Net only.
	Listen []uint16
	// Sockets has sockets of the host to which the command may connect, at level Namespaces
	// only; nil: none. They are cut when the command has ended, and when Start fails.
	Sockets *Sockets `json:"-"`
	// PidsMax bounds processes and threads together; default DefaultPids.
	PidsMax int
	// MemoryMax bounds the memory of the command and its descendants, in bytes, including
	// their files in memory; 0: no limit. DefaultMemory is a sensible limit. The kernel ends
	// one of these processes when the limit is reached. If this machine gives the caller no
	// control group, there is no limit, and Report says so.
	MemoryMax int64
	// Group is the name of the control group that sets this limit, for RemoveControlGroup;
	// needed with MemoryMax.
	Group string
	// UID and GID are the ids of the command when the caller is root. The default is
	// DefaultID; at Level None, if both are 0, the command runs as root. They are ignored for
	// any other caller, whose command runs as the caller.
	UID, GID uint32
	Level    Level
	// Least is the weakest level that Start takes if Level is zero; zero: Landlock.
	Least Level
	// Interpreters has further files and directories that are shown read-only at their own
	// paths. Unlike a root, they cannot be revoked.
	Interpreters []string
	// Stdin, Stdout and Stderr are relayed through pipes: the command never holds them. A
	// stream that is /dev/null is /dev/null inside, too, because programs test for that. A
	// stream that was closed when a Go program started looks like /dev/null, which the Go
	// runtime has opened in its place. A nil stream is a pipe that Process exposes.
	Stdin, Stdout, Stderr *os.File
	// TTY gives the command a terminal of its own in place of each stream
	// above that is a terminal.
	TTY bool
	// JobControl makes this process stop and continue together with the command, as a job
	// of the shell that started it. It is for a program that runs one command and nothing
	// else. With TTY, when the command is stopped, the terminal gets its former mode, and the
	// process group of this process is stopped; SIGTSTP is passed on to the command. While
	// this process is stopped, it does not serve Tree.
	JobControl bool

	// Umask is the command's; nil: the caller's own when Start is called.
	Umask *int
	// CheckProgram, if not nil, may refuse a program of the host that is about to run
	// unconfined, by its absolute path; for level Bubblewrap.
	CheckProgram func(path string) error `json:"-"`
	// OnLevel, if not nil, is called before each try to start at a level. The level of
	// the last call is the command's.
	OnLevel func(Level) `json:"-"`
	// BeforeExec, if not nil, is called when the confinement is complete, before the
	// program is started. If it returns an error nothing runs, and Start returns that
	// error.
	BeforeExec func() error `json:"-"`

	probe bool          // only try the confinement; see Probe
	trust *layout.Trust // made by Start from Trust
}

// HomeFile is a file of the command's HOME, by its path there.
type HomeFile = initproc.HomeFile

// idBase is where DefaultID begins: a range that neither distributions' users
// nor systemd's dynamic ones (61184 to 65519) nor containers' sub-uids (100000
// and up) use.
const idBase = 65600

// DefaultID is the uid and gid that a command of root runs as by default. No user has these ids.
// After a run only the files in a kept HOME still have them.
func DefaultID() (uid, gid uint32) { return idBase, idBase }

// check fills the defaults in and refuses values that cannot work, naming the field.
func (o *Options) check() error {
	if len(o.Args) == 0 || o.Args[0] == "" {
		return invalid("no command: give at least one argument")
	}
	if o.Level > None {
		return invalid("unknown level %d: use Namespaces, Bubblewrap, Landlock or None", o.Level)
	}
	if o.FlatAt == "" {
		o.FlatAt = DefaultFlatAt
	}
	if o.Umask == nil {
		own := Umask()
		o.Umask = &own
	}
	if o.PidsMax == 0 {
		o.PidsMax = DefaultPids
	}
	if o.PidsMax < MinPids || o.PidsMax > MaxPids {
		return invalid("PidsMax is %d: choose %d to %d", o.PidsMax, MinPids, MaxPids)
	}
	if o.TmpSize == 0 {
		o.TmpSize = defaultTmpSize()
		if o.MemoryMax != 0 {
			// A full directory is an error for the command that fills it. But if files
			// alone reach the limit of memory, the kernel can end only the init.
			o.TmpSize = min(o.TmpSize, max(o.MemoryMax/2, MinTmpSize))
		}
	}
	if o.TmpSize < MinTmpSize {
		return invalid("TmpSize is %d bytes: choose at least %d", o.TmpSize, MinTmpSize)
	}
	if o.MemoryMax != 0 && (o.MemoryMax < MinMemory || o.Group == "" || strings.Contains(o.Group, "/")) {
		return invalid("MemoryMax is %d bytes, for Group %s: choose at least %d, and a name without a slash", o.MemoryMax, names.Quote(o.Group), int64(MinMemory))
	}
	if o.Network != nil && o.Net {
		return invalid("Network is not possible with Net: the command has the host's network")
	}
	if len(o.Listen) > 0 && !o.Net {
		return invalid("Listen needs Net: without the host's network nobody else reaches the command")
	}
	if err := o.checkPaths(); err != nil {
		return err
	}
	for _, f := range o.HomeFiles {
		if !filepath.IsLocal(f.Path) || o.Home != "" {
			return invalid("HomeFiles has %s: give a path below HOME, and no Home", names.Quote(f.Path))
		}
	}
	for _, e := range o.Env {
		if i := strings.IndexByte(e, '='); i <= 0 || strings.IndexByte(e, 0) >= 0 {
			return invalid("Env holds %s: write NAME=VALUE", names.Quote(e))
		}
	}
	for _, a := range o.Args {
		if strings.IndexByte(a, 0) >= 0 {
			return invalid("Args holds %s: an argument cannot contain a zero byte", names.Quote(a))
		}
	}
	o.setIDs()
	return nil
}

func (o *Options) checkPaths() error {
	optional := func(path string) []string {
		return slices.DeleteFunc([]string{path}, func(p string) bool { return p == "" })
	}
	for field, paths := range map[string][]string{
		"Tree": {o.Tree}, "FlatAt": {o.FlatAt}, "Roots": o.Roots, "Interpreters": o.Interpreters,
		"Dir": optional(o.Dir), "Program": optional(o.Program), "Home": optional(o.Home), "Private": optional(o.Private),
	} {
		for _, p := range paths {
			if !filepath.IsAbs(p) || filepath.Clean(p) != p || strings.IndexByte(p, 0) >= 0 {
				return invalid("%s is %s: give an absolute path without . and ..", field, names.Quote(p))
			}
		}
	}
	if o.FlatAt == "/" {
		return invalid("FlatAt is /: give a directory below it")
	}
	return nil
}

// setIDs sets the ids with which the command runs.
func (o *Options) setIDs() {
	if os.Geteuid() != 0 {
		o.UID, o.GID = uint32(os.Geteuid()), uint32(os.Getegid())
		return
	}
	if o.Level == None && o.UID == 0 && o.GID == 0 {
		return
	}
	uid, gid := DefaultID()
	if o.UID == 0 {
		o.UID = uid
	}
	if o.GID == 0 {
		o.GID = gid
	}
}

// Network is a network namespace of the command's own that the caller serves. A socket stays in
// the namespace in which it was opened, so the init opens the sockets and passes them to the
// caller.
type Network struct {
	// Listeners is how many sockets Serve gets to listen on single ports.
	Listeners int
	// Optional lets Start take a level without a network namespace, where Serve is not called.
	Optional bool
	// Offline makes Start set variables that tell programs that they cannot download, as
	// without a Network.
	Offline bool
	// ResolvConf is the command's /etc/resolv.conf.
	ResolvConf []byte
	// Serve is called once, before the command is started, with sockets by their names (see
	// package initproc). It owns them. If it returns an error, Start fails with the text of that
	// error.
	Serve func(sockets map[string][]*os.File) error
}
