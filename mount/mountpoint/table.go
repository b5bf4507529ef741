// Package mountpoint makes, attaches, finds and detaches FUSE mounts, and says what keeps
// a session from being mounted somewhere.
//
// # Promises
//
// No child of this process gets the descriptor that Attach returns. Find, Mounts, Ours,
// WatchGone and Abort ask no mounted file system. Check, IsStale and ClearStale give a
// file system that does not answer five seconds. Detach and ClearStale unmount only
// rootsfs mounts. Every error for a user is one line with the path and the remedy.
//
// # Not promised
//
// What a function has found can change before its caller acts on it. A mount in another
// mount namespace is not found. Detaching takes nothing away from a program that holds
// something in the mount: revoking its roots does (package mount).
package mountpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
)

// FSType is what the kernel calls a mount of ours: the file system "fuse" with
// the subtype that the mount option Name "rootsfs" sets.
const FSType = "fuse.rootsfs"

// mountinfoFile names the process, not the thread: every thread of a Go
// process sees the same table unless one has unshared its mount namespace.
const mountinfoFile = "/proc/self/mountinfo"

// What is wrong with a mount. The errors of Find, Check, ClearStale,
// Detach, Abort, CheckFUSE and CheckAllowOther are one line that
// names the path and the remedy; these values say, through errors.Is, which
// kind it is.
var (
	ErrNotMounted = errors.New("not mounted")              // nothing is mounted exactly there
	ErrNotOurs    = errors.New("not a mount of ours")      // of another type, or another user's
	ErrStale      = errors.New("stale mount")              // its daemon is gone
	ErrBusy       = errors.New("mount is busy")            // somebody holds something in it
	ErrNoFUSE     = errors.New("the system lacks FUSE")    // or withholds it from this user
	ErrNoFusectl  = errors.New("fusectl is not available") // connections cannot be aborted
)

// Info is one line of /proc/self/mountinfo (proc(5)), its escapes undone.
// Strings are bytes as the kernel keeps them; they need not be UTF-8.
type Info struct {
	ID           int    // of the mount; the kernel uses it again once the mount is gone
	Parent       int    // ID of the mount this one lies in; need not be in the table
	Dev          string // "major:minor" of the file system's device, decimal
	Root         string // the directory of the file system that is mounted
	Point        string // absolute mount point, seen from this process's root directory
	FSType       string // "ext4", "fuse.rootsfs"
	Source       string // "/dev/sda1", or what the mounter chose; may be empty
	Options      string // of this mount: "rw,nosuid,relatime"
	SuperOptions string // of the file system: "rw,user_id=0,group_id=0"
}

// Mounts returns the mounts this process can see, in the kernel's order. It
// touches no mounted file system. Safe for concurrent use.
func Mounts() ([]Info, error) {
	data, err := os.ReadFile(mountinfoFile)
	if err != nil {
		return nil, fmt.Errorf("read the table of mounts: %w", err)
	}
	return parseMountinfo(data)
}

// Find returns the mount that a walk to point arrives at, if that mount's
// mount point is exactly point; with several stacked there, the top-most. A
// mount hidden below another one is not found. Links in point are not
// followed. The error wraps ErrNotMounted if there is none.
func Find(point string) (Info, error) {
	abs, err := filepath.Abs(point)
	if err != nil {
		return Info{}, err
	}
	all, err := Mounts()
	if err != nil {
		return Info{}, err
	}
	if in, ok := covering(all, abs); ok && in.Point == abs {
		return in, nil
	}
	return Info{}, errorf(ErrNotMounted, "nothing is mounted at %s", names.ShellWord(abs))
}

// Ours returns the mounts of type FSType, whoever mounted them.
func Ours() ([]Info, error) {
	all, err := Mounts()
	if err != nil {
		return nil, err
	}
	var ours []Info
	for _, in := range all {
		if in.FSType == FSType {
			ours = append(ours, in)
		}
	}
	return ours, nil
}

// covering returns the mount that path lies in. It walks the tree of mounts as the kernel walks a path: of the mounts
// lying in the one it is in, it enters the first that the path meets. The
// order of the lines says nothing about what covers what (since Linux 6.8 they
// are sorted by age), the parents do.
func covering(all []Info, path string) (Info, bool) {
	known := make(map[int]bool, len(all))
	for _, in := range all {
		known[in.ID] = true
	}
	// In a chroot the mount the root directory lies in is not listed, so the
	// top of the tree is whatever has no listed parent.
	isTop := func(in Info) bool { return in.Parent == in.ID || !known[in.Parent] }

	cur := -1
	for range all { // a step per mount at most, so a table with a cycle ends too
		next := -1
		for i, in := range all {
			below := cur < 0 && isTop(in) || cur >= 0 && in.Parent == all[cur].ID && i != cur
			if below && names.Under(path, in.Point) && (next < 0 || len(in.Point) < len(all[next].Point)) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		cur = next
	}
	if cur < 0 {
		return Info{}, false
	}
	return all[cur], true
}

func parseMountinfo(data []byte) ([]Info, error) {
	var all []Info
	for n := 1; len(data) > 0; n++ {
		line, rest, _ := bytes.Cut(data, []byte{'\n'})
		data = rest
		in, err := parseMountLine(string(line))
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", mountinfoFile, n, err)
		}
		all = append(all, in)
	}
	return all, nil
}

// parseMountLine splits at single spaces, not at runs of them: a source may be
// the empty string.
func parseMountLine(line string) (Info, error) {
	f := strings.Split(line, " ")
	const fixed = 6 // ID parent dev root point options, before the optional fields
	sep := -1
	for i := fixed; i < len(f); i++ {
		if f[i] == "-" {
			sep = i
			break
		}
	}
	if sep < 0 || len(f) < sep+4 {
		return Info{}, fmt.Errorf("too few fields in %q", line)
	}
	id, err := strconv.Atoi(f[0])
	if err != nil {
		return Info{}, fmt.Errorf("mount ID %q is not a number", f[0])
	}
	parent, err := strconv.Atoi(f[1])
	if err != nil {
		return Info{}, fmt.Errorf("parent ID %q is not a number", f[1])
	}
	if _, err := deviceNumber(f[2]); err != nil {
		return Info{}, err
	}
	return Info{
		ID: id, Parent: parent, Dev: f[2],
		Root: unescapeMount(f[3]), Point: unescapeMount(f[4]), Options: unescapeMount(f[5]),
		FSType: unescapeMount(f[sep+1]), Source: unescapeMount(f[sep+2]),
		// A few file systems print their options with bare spaces.
		SuperOptions: unescapeMount(strings.Join(f[sep+3:], " ")),
	}, nil
}

// unescapeMount undoes the kernel's mangling: \040 and the like, always three
// octal digits of one byte. Anything else after a backslash is left as it is.
func unescapeMount(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out = append(out, byte(v))
				i += 3
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}

// deviceNumber is the kernel's own 12:20 encoding of "major:minor", which is
// also what names a FUSE connection; for FUSE the major is 0 unless the file
// system lies on a block device.
func deviceNumber(dev string) (uint, error) {
	major, minor, ok := strings.Cut(dev, ":")
	ma, err1 := strconv.ParseUint(major, 10, 12)
	mi, err2 := strconv.ParseUint(minor, 10, 20)
	if !ok || err1 != nil || err2 != nil {
		return 0, fmt.Errorf("device %q is not \"major:minor\"", dev)
	}
	return uint(ma<<20 | mi), nil
}
