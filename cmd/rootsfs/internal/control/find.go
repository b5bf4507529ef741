package control

import (
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
	// maxInfo bounds what is read of a session.json.
	maxInfo = 64 << 10
)

// Info is what session.json holds: what a session is, for those who look for
// it.
type Info struct {
	Name    string    `json:"name"`
	PID     int       `json:"pid"`
	Start   uint64    `json:"start"` // of the process, in clock ticks since boot
	Started time.Time `json:"started"`
	Point   string    `json:"mountpoint"`
	Version string    `json:"version"`
	Options []string  `json:"options"` // flags of the mount, those about roots apart
	// Detached: unmounted, but held by somebody; the session refuses
	// everything and ends with the last holder.
	Detached bool `json:"detached,omitempty"`
	// Signal says that SIGUSR1 revokes every root; see RevokeBySignal.
	Signal bool `json:"sigusr1_revokes"`

	path string // of the directory
}

// maxName is the longest name of a session, bytes.
const maxName = 64

// CheckName says whether s can name a session: it is a file's name, part of the
// audit files' names and a word on the command line.
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

// CreateFor is Create with a name made of the mountpoint's, and of a number if
// that name is taken.
func CreateFor(point string) (*Dir, error) {
	base := nameFor(point)
	for n := 1; ; n++ {
		name := base
		if n > 1 {
			name = base + "-" + strconv.Itoa(n)
		}
		d, err := Create(name)
		if err == nil || !errors.Is(err, errTaken) || n == 1000 {
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

// List returns the live sessions of this user, by name, and removes what dead
// daemons left.
func List() ([]Info, error) {
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
	var out []Info
	for _, e := range entries {
		if CheckName(e.Name()) != nil || !e.IsDir() {
			continue
		}
		if in, ok := look(filepath.Join(base, e.Name()), e.Name()); ok {
			out = append(out, in)
		}
	}
	slices.SortFunc(out, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// look reads one session directory; ok is false if there is no live, published
// session in it.
func look(path, name string) (Info, bool) {
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

// Find returns the live session called which, or mounted at which. With which
// empty there must be exactly one. The error wraps ErrNoSession and lists what
// there is.
func Find(which string) (Info, error) {
	all, err := List()
	if err != nil {
		return Info{}, err
	}
	if which == "" {
		if mounted := attached(all); len(mounted) > 0 {
			all = mounted
		}
		switch len(all) {
		case 0:
			return Info{}, fmt.Errorf("%w: none is live; start one: rootsfs mount --root PATH MOUNTPOINT", ErrNoSession)
		case 1:
			return all[0], nil
		}
		return Info{}, fmt.Errorf("%w chosen: several are live (%s); say which with --session NAME", ErrNoSession, listNames(all))
	}
	for _, in := range all {
		if in.Name == which {
			return in, nil
		}
	}
	point := ResolvePoint(which)
	for _, in := range attached(all) {
		if in.Point == point {
			return in, nil
		}
	}
	if len(all) == 0 {
		return Info{}, fmt.Errorf("%w: %s (none is live); start one: rootsfs mount --root PATH MOUNTPOINT", ErrNoSession, names.Quote(which))
	}
	return Info{}, fmt.Errorf("%w: %s; live are %s", ErrNoSession, names.Quote(which), listNames(all))
}

// attached leaves out the sessions whose mount has left the tree: another one
// may be mounted in the same place by now.
func attached(all []Info) []Info {
	return slices.DeleteFunc(slices.Clone(all), func(in Info) bool { return in.Detached })
}

// At returns the live session mounted at the resolved path point.
func At(point string) (Info, error) {
	all, err := List()
	if err != nil {
		return Info{}, err
	}
	for _, in := range attached(all) {
		if in.Point == point {
			return in, nil
		}
	}
	return Info{}, ErrNoSession
}

// ResolvePoint makes a path absolute and free of links, if there is such a file.
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
	var b strings.Builder
	for i, in := range all {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(in.Name)
		if in.Point != "" {
			b.WriteString(" at " + names.Escape(in.Point))
		}
	}
	return b.String()
}

// startTime is field 22 of /proc/PID/stat: with the pid it names a process for
// as long as the machine is up. 0 if it cannot be read.
func startTime(pid int) uint64 {
	data, err := readFile("/proc/"+strconv.Itoa(pid)+"/stat", 4<<10)
	if err != nil {
		return 0
	}
	// The second field is the program's name in parentheses and may hold both
	// spaces and parentheses.
	_, rest, ok := strings.Cut(string(data[max(0, strings.LastIndexByte(string(data), ')')):]), " ")
	f := strings.Fields(rest)
	if !ok || len(f) < 20 {
		return 0
	}
	n, _ := strconv.ParseUint(f[19], 10, 64)
	return n
}
