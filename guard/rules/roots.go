package rules

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/rootsfs/rootsfs/guard/names"
)

// RootRules are the session-wide rules about which directories may be roots.
type RootRules struct {
	AllowSystem  bool // writable roots on system directories
	AllowRootDir bool // "/" as a root
	// ReservedPaths are rootsfs's own files and directories, which no root may contain or lie in:
	// the mountpoint, the configuration, audit, session and state files.
	ReservedPaths []ReservedPath
	// Ceilings are the bounds of this machine, which no grant lifts.
	Ceilings []Ceiling
}

// ReservedPath is one file or directory of RootRules.ReservedPaths.
type ReservedPath struct {
	Path string // absolute, resolved
	What string // "the mountpoint", "the configuration file", ...
	// Remedy is advice for the owner; "": choose another directory.
	Remedy string
}

// remedy returns the advice at the end of an error about k.
func (k *ReservedPath) remedy() string { return cmp.Or(k.Remedy, "choose a directory that does not") }

// kernelDirs are directories with kernel interfaces instead of files. They can never be roots.
var kernelDirs = []string{"/proc", "/sys", "/dev"}

// System directories are writable only with AllowSystem. For systemTrees this includes
// everything in them, for systemDirs it does not.
var (
	systemTrees = []string{"/etc", "/boot", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"}
	systemDirs  = []string{"/", "/var", "/var/lib", "/root", "/home", "/run"}
	// systemTreesExcept are places inside the trees where people keep work.
	systemTreesExcept = []string{"/usr/local/src", "/usr/src"}
)

// With returns the rules for one grant, without those that the grant lifts for itself.
func (r RootRules) With(g *Grant) RootRules {
	r.AllowSystem = r.AllowSystem || g.AllowSystem
	r.AllowRootDir = r.AllowRootDir || g.AllowRootDir
	return r
}

// Check returns an error if the rules do not allow a root at the resolved path.
func (r RootRules) Check(resolved string, rights Rights) error {
	refuse := func(format string, args ...any) error {
		return &names.Error{Kind: names.Permission, Err: errors.New(names.Quote(resolved) + " " + fmt.Sprintf(format, args...))}
	}
	for _, dir := range kernelDirs {
		if names.Under(resolved, dir) {
			return refuse("cannot be a root: %s holds kernel interfaces, not files; choose another directory", dir)
		}
	}
	// Reserved paths come before the rules that a flag lifts: the error for a reserved path names
	// no flag, because none would help.
	for _, k := range r.ReservedPaths {
		if names.Under(k.Path, resolved) {
			return refuse("contains %s (%s); %s", k.What, names.Quote(k.Path), k.remedy())
		}
		if names.Under(resolved, k.Path) {
			return refuse("lies inside %s (%s); %s", k.What, names.Quote(k.Path), k.remedy())
		}
	}
	if resolved == "/" && !r.AllowRootDir {
		return refuse("as a root exposes everything; use --allow-root-dir if that is meant")
	}
	if rights.Mutating() && !r.AllowSystem && isSystem(resolved) {
		return refuse("is a system directory and may only be read-only (:ro); use --allow-system if writing is meant")
	}
	return r.CheckCeilings(resolved, rights)
}

func isSystem(p string) bool {
	for _, e := range systemTreesExcept {
		if names.Under(p, e) {
			return false
		}
	}
	for _, t := range systemTrees {
		if names.Under(p, t) {
			return true
		}
	}
	for _, d := range systemDirs {
		if p == d {
			return true
		}
	}
	return false
}

// The owner approves a root by a path, and links on that path decide what is granted. A program
// that can write a directory can put links into it. A root is refused if its path passes a link
// that a program or another user can change. The error names the link and the resolved path, and an
// owner who means that path can write it instead. If a person is asked (guard.Proposal), the root
// is not refused: the question shows the resolved path.

// Link is a symbolic link that the path of a root passes.
type Link struct {
	Path     string // absolute; the directory that holds the link is resolved
	Location string // the location of the link, see guard.Source; "" if it is not known
	// Others names the users other than the owner who can change the link; ""
	// if there are none.
	Others string
}

// History remembers the directories that programs were allowed to write, in this
// session and in others.
type History interface {
	// NoteWritable is called with a directory before a program can write it. An error refuses the
	// grant.
	NoteWritable(dir string) error
	// Writer returns the directory passed to NoteWritable in which path lies; "" if there is none.
	Writer(path string) string
}

// LinkError is the reason why a root was refused whose path passes a link that
// others can change.
type LinkError struct {
	Asked, Link string
	Others      string // who can change the link
	Resolved    string // the path without links
}

func (e *LinkError) Error() string {
	return fmt.Sprintf("%s passes the link %s, which %s can change, and leads to %s; if that place is meant, write its path instead",
		names.Quote(e.Asked), names.Quote(e.Link), e.Others, names.Quote(e.Resolved))
}

// CheckLinks returns a *LinkError, in a *names.Error, if a program or another user can change one
// of the links on the path asked. That path leads to resolved. writers returns the names of the
// programs that can change a link, or could in the past; "" if there are none.
func CheckLinks(asked, resolved string, links []Link, writers func(*Link) string) error {
	for i := range links {
		who := links[i].Others
		if who == "" {
			who = writers(&links[i])
		}
		if who != "" {
			return &names.Error{Kind: names.Permission, Err: &LinkError{Asked: asked, Link: links[i].Path, Others: who, Resolved: resolved}}
		}
	}
	return nil
}

// CheckLocation checks ReservedPaths as Check does, but compares locations (see guard.Source)
// instead of paths. So it finds reserved paths that a mount shows in the root. locationOf returns
// the location of a path, "" if it is not known.
func (r RootRules) CheckLocation(resolved, location string, locationOf func(path string) string) error {
	if location == "" {
		return nil
	}
	for _, k := range r.ReservedPaths {
		reserved := locationOf(k.Path)
		if reserved == "" || !names.Under(reserved, location) && !names.Under(location, reserved) {
			continue
		}
		return &names.Error{Kind: names.Permission, Err: fmt.Errorf(
			"%s overlaps, through a mount, with %s (%s); %s",
			names.Quote(resolved), k.What, names.Quote(k.Path), k.remedy())}
	}
	return nil
}
