package control

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

const (
	infoFile   = "session.json"
	socketFile = "control.sock"
	// maxInfo bounds the size of a session.json.
	maxInfo = 64 << 10
)

// Info is the contents of session.json: the description of a session.
type Info struct {
	Name    string    `json:"name"`
	PID     int       `json:"pid"`
	Start   uint64    `json:"start"` // of the process, in clock ticks since boot
	Started time.Time `json:"started"`
	Point   string    `json:"mountpoint"`
	Version string    `json:"version"`
	Options []string  `json:"options"` // flags of the mount, without those about roots
	// Detached: the mount is detached, but a program still holds it, and not everything could
	// be revoked. The session refuses every request, and ends when no program holds the mount any
	// more.
	Detached bool `json:"detached,omitempty"`
	// Signal says that SIGUSR1 revokes every root; see RevokeBySignal.
	Signal bool `json:"sigusr1_revokes"`

	path string // of the directory
}

// maxName is the length of the longest name of a session, in bytes.
const maxName = 64

// CheckName returns an error if s cannot be the name of a session. The name is a file's name, a
// part of the names of audit files, and a word on the command line.
func CheckName(s string) error {
	if !audit.WellNamed(s, maxName) {
		return fmt.Errorf("session name %s: use 1 to 64 letters, digits, '.', '_', '-', '+' or '@', beginning with a letter or digit", names.Quote(s))
	}
	return nil
}

// nameFor makes a session name of a mountpoint's base name.
func nameFor(point string) string {
	base := strings.Map(func(r rune) rune {
		if r < 0x80 && (strings.ContainsRune("._-+@", r) || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			return r
		}
		return '-'
	}, filepath.Base(point))
	base = strings.TrimLeft(base, "._-+@")
	base = base[:min(len(base), 56)] // leaves room for a number
	if base == "" {
		base = "session"
	}
	return base
}

// CreateFor is Create with a name made from the mountpoint's, with a number if that name is
// taken.
func CreateFor(point string) (*Dir, error) {
	base := nameFor(point)
	for n := 1; ; n++ {
		name := base
		if n > 1 {
			name = base + "-" + strconv.Itoa(n)
		}
		d, err := Create(name)
		if err == nil || !errors.Is(err, ErrTaken) || n == 1000 {
			return d, err
		}
	}
}

// Publish writes session.json. From then on commands find the session.
func (d *Dir) Publish(in Info) error {
	in.Name, in.PID, in.Start = d.name, os.Getpid(), startTime(os.Getpid())
	data, err := json.MarshalIndent(in, "", "  ")
	if err != nil {
		return err
	}
	if err := d.publishPID(); err != nil {
		return err
	}
	return d.replace(infoFile, append(data, '\n'))
}

// Dirs returns the paths of the directories of this user's sessions, including sessions that are
// starting or have ended.
func Dirs() (dirs []string, err error) {
	base := RuntimeDir()
	fd, err := openPrivate(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, noPlace(err)
	}
	_ = unix.Close(fd)
	entries, err := os.ReadDir(base)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if CheckName(e.Name()) == nil && e.IsDir() {
			dirs = append(dirs, filepath.Join(base, e.Name()))
		}
	}
	return dirs, nil
}

// List returns the live sessions of this user, sorted by name. It removes the directories of dead
// sessions.
func List() ([]Info, error) {
	dirs, err := Dirs()
	if err != nil {
		return nil, err
	}
	var out []Info
	for _, dir := range dirs {
		if in, ok := readSession(dir, filepath.Base(dir)); ok {
			out = append(out, in)
		}
	}
	slices.SortFunc(out, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// readSession reads one session directory. It reports false if there is no live, published session
// in it. It removes the directory of a dead session.
func readSession(path, name string) (Info, bool) {
	fd, err := openPrivate(path)
	if err != nil {
		return Info{}, false
	}
	d := &Dir{name: name, path: path, fd: fd}
	if dead, err := d.lock(); err == nil && dead {
		_ = d.Remove()
		return Info{}, false
	}
	defer unix.Close(fd)
	data, err := readFile(filepath.Join(path, infoFile), maxInfo)
	var in Info
	if err != nil || json.Unmarshal(data, &in) != nil {
		return Info{}, false
	}
	in.Name, in.path = name, path
	return in, true
}

// ErrNoSession means that no live session answers to the description.
var ErrNoSession = errors.New("no such session")

// severalError lists the live sessions if the command line does not choose one of them. It wraps
// ErrNoSession.
type severalError string

func (e severalError) Error() string {
	return "several sessions are live (" + string(e) + "): say which with --session NAME"
}

func (severalError) Unwrap() error { return ErrNoSession }

// Find returns the live session with a name, or mounted at a path. If nameOrPoint is empty, there
// must be exactly one session; sessions whose mount is detached count only if there are no others.
// If no session, or no single one, is found, the error wraps ErrNoSession and lists the sessions.
func Find(nameOrPoint string) (Info, error) {
	all, err := List()
	if err != nil {
		return Info{}, err
	}
	if nameOrPoint == "" {
		if mounted := attached(all); len(mounted) > 0 {
			all = mounted
		}
		switch len(all) {
		case 0:
			return Info{}, fmt.Errorf("%w: none is live; start one: rootsfs mount --root PATH MOUNTPOINT", ErrNoSession)
		case 1:
			return all[0], nil
		}
		return Info{}, severalError(listNames(all))
	}
	for _, in := range all {
		if in.Name == nameOrPoint {
			return in, nil
		}
	}
	if in, ok := mountedAt(all, ResolvePoint(nameOrPoint)); ok {
		return in, nil
	}
	if len(all) == 0 {
		return Info{}, fmt.Errorf("%w: %s (none is live); start one: rootsfs mount --root PATH MOUNTPOINT", ErrNoSession, names.Quote(nameOrPoint))
	}
	return Info{}, fmt.Errorf("%w: %s; live are %s", ErrNoSession, names.Quote(nameOrPoint), listNames(all))
}

// attached leaves out the sessions whose mount is detached: another one may be mounted in the
// same place by now.
func attached(all []Info) []Info {
	return slices.DeleteFunc(slices.Clone(all), func(in Info) bool { return in.Detached })
}

func mountedAt(all []Info, point string) (Info, bool) {
	for _, in := range attached(all) {
		if in.Point == point {
			return in, true
		}
	}
	return Info{}, false
}

// FindByMountpoint returns the live session mounted at the resolved path point.
func FindByMountpoint(point string) (Info, error) {
	all, err := List()
	if in, ok := mountedAt(all, point); ok {
		return in, nil
	}
	return Info{}, cmp.Or(err, ErrNoSession)
}

// ResolvePoint makes a path absolute and, if there is such a file, free of links. It returns "" if
// the working directory is gone and path is relative.
func ResolvePoint(path string) string {
	if point, err := mountpoint.Resolve(path); err == nil {
		return point
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	return abs
}

func listNames(all []Info) string {
	list := make([]string, len(all))
	for i, in := range all {
		if list[i] = in.Name; in.Point != "" {
			list[i] += " at " + names.Escape(in.Point)
		}
	}
	return strings.Join(list, ", ")
}

// startTime returns field 22 of /proc/PID/stat, or 0 if it cannot be read. With the pid it
// identifies a process for as long as the machine is up.
func startTime(pid int) uint64 {
	f := statFields(pid)
	if len(f) < 20 {
		return 0
	}
	n, _ := strconv.ParseUint(f[19], 10, 64)
	return n
}

// isStopped reports whether a process is stopped, as by Ctrl-Z.
func isStopped(pid int) bool {
	f := statFields(pid)
	return len(f) > 0 && f[0] == "T"
}

// statFields returns the fields of /proc/PID/stat from the third one on, or nil if they cannot
// be read.
func statFields(pid int) []string {
	data, err := readFile("/proc/"+strconv.Itoa(pid)+"/stat", 4<<10)
	if err != nil {
		return nil
	}
	// The second field is the program's name in parentheses and may hold both
	// spaces and parentheses.
	_, rest, _ := strings.Cut(string(data[max(0, strings.LastIndexByte(string(data), ')')):]), " ")
	return strings.Fields(rest)
}

// RuntimeDir returns the directory of this user's sessions: $XDG_RUNTIME_DIR/rootsfs, or, if
// that variable names no suitable directory of this user, rootsfs-UID in the directory for
// temporary files. It creates nothing.
func RuntimeDir() string {
	dir, _ := RuntimePlace()
	return dir
}

// RuntimePlace returns RuntimeDir, and the reason if it is not in $XDG_RUNTIME_DIR although
// that is set.
func RuntimePlace() (dir, why string) {
	x := os.Getenv("XDG_RUNTIME_DIR")
	if x != "" {
		if why = unfit(x); why == "" {
			return filepath.Join(x, "rootsfs"), ""
		}
		why = "XDG_RUNTIME_DIR " + names.Quote(x) + " " + why
	}
	return filepath.Join(os.TempDir(), "rootsfs-"+strconv.Itoa(os.Geteuid())), why
}

// unfit returns the reason why a directory cannot hold the sessions, or "" if it can.
func unfit(dir string) string {
	if !filepath.IsAbs(dir) {
		return "is relative"
	}
	var st unix.Stat_t
	switch err := unix.Stat(dir, &st); {
	case errors.Is(err, unix.ENOENT):
		return "does not exist"
	case err != nil:
		return "cannot be looked at (" + err.Error() + ")"
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return "is not a directory"
	case int(st.Uid) != os.Geteuid():
		// Under sudo the variable may still name the directory of another user, who could
		// rename the sessions' directory away.
		return fmt.Sprintf("belongs to the user with id %d", st.Uid)
	}
	if _, err := os.Lstat(filepath.Join(dir, "rootsfs")); err == nil {
		return "" // it exists already, and sessions may be live in it
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return "cannot be written (" + err.Error() + ")"
	}
	return ""
}

// EnsureRuntimeDir makes the directory if it is missing, and verifies that it belongs to this
// user, is closed to others, and is no link. It returns the path. The error has the class
// System and a remedy.
func EnsureRuntimeDir() (string, error) {
	dir := RuntimeDir()
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", noPlace(fmt.Errorf("%s cannot be made (%w)", names.Quote(dir), errnoOf(err)))
	}
	fd, err := openPrivate(dir)
	if err != nil {
		return "", noPlace(err)
	}
	_ = unix.Close(fd)
	return dir, nil
}

// noPlace returns the error that the directory of the sessions cannot be used, with err as the
// cause.
func noPlace(err error) error {
	text := "no place for sessions: "
	if _, why := RuntimePlace(); why != "" {
		text += why + ", and "
	}
	return &Error{Text: text + err.Error() + "; or set XDG_RUNTIME_DIR to a directory of your own", Class: System}
}

// errnoOf returns the number in an error of package os. The text of the error would repeat the path
// or name the system call. errnoOf returns an error without a number as it is.
func errnoOf(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// openPrivate opens a directory that only this user can reach and change.
func openPrivate(dir string) (int, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
			return -1, fmt.Errorf("%s is not a directory but a link or a file, which somebody else may have put there: remove it", names.Quote(dir))
		}
		return -1, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return -1, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	switch {
	case int(st.Uid) != os.Geteuid():
		err = fmt.Errorf("%s belongs to the user with id %d, not to you", names.Quote(dir), st.Uid)
	case st.Mode&0o077 != 0:
		err = fmt.Errorf("%s is open to other users (mode %04o): chmod 0700 %s", names.Quote(dir), st.Mode&0o7777, names.ShellWord(dir))
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Dir is the directory of one session, locked by the process that serves the session.
type Dir struct {
	name string
	path string
	fd   int // open and locked
}

// ErrTaken means that a live session has the name.
var ErrTaken = errors.New("a live session has this name")

// Create makes the directory of a session and locks it. It removes the remains of a dead daemon
// with the same name. The error wraps ErrTaken if a live session has the name.
func Create(name string) (*Dir, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	base, err := EnsureRuntimeDir()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(base, name)
	// Another process may be removing a dead session's directory at the same time. A few rounds
	// are enough for that.
	for range 20 {
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("make the session directory: %w", err)
		}
		fd, err := openPrivate(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		d := &Dir{name: name, path: path, fd: fd}
		switch ok, err := d.lock(); {
		case err != nil:
			_ = unix.Close(fd)
			return nil, err
		case ok:
			d.clear()
			return d, nil
		}
		_ = unix.Close(fd)
		if _, err := os.Stat(filepath.Join(path, infoFile)); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil, fmt.Errorf("session %s: %w; choose another one with --name", names.Quote(name), ErrTaken)
}

// lock locks the directory. It reports false if another process has locked it, or if the path
// leads to another directory by now.
func (d *Dir) lock() (bool, error) {
	err := unix.Flock(d.fd, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock the session directory %s: %w", names.Quote(d.path), err)
	}
	var held, named unix.Stat_t
	if unix.Fstat(d.fd, &held) != nil || unix.Lstat(d.path, &named) != nil {
		return false, nil
	}
	return held.Dev == named.Dev && held.Ino == named.Ino, nil
}

// Path is the directory's path.
func (d *Dir) Path() string { return d.path }

// Name is the session's name.
func (d *Dir) Name() string { return d.name }

// clear removes the files of a session from its directory. It does not remove unknown names:
// they may belong to another program.
func (d *Dir) clear() {
	for _, f := range []string{infoFile, infoFile + ".new", socketFile, pidFile, pidFile + ".new", revokedFile, revokedFile + ".new"} {
		_ = unix.Unlinkat(d.fd, f, 0)
	}
}

// Remove removes the directory, at the end of the session.
func (d *Dir) Remove() error {
	d.clear()
	err := os.Remove(d.path)
	_ = unix.Close(d.fd)
	return err
}
