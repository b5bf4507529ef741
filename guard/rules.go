package guard

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Rules are the session-wide rules about which directories may be roots.
type Rules struct {
	AllowSystem  bool // writable roots on system directories
	AllowRootDir bool // "/" as a root
	// Keep are places of the owner's plane that no root may contain or lie
	// in: the mountpoint, the configuration, audit, session and state files.
	Keep []Keep
}

// Keep is one such place.
type Keep struct {
	Path string // absolute, resolved
	What string // "the mountpoint", "the configuration file", ...
}

// never are kernel interfaces, not files: no approval makes them roots.
var never = []string{"/proc", "/sys", "/dev"}

// system directories are writable only with AllowSystem; those in the first
// list together with what lies in them.
var (
	systemTrees = []string{"/etc", "/boot", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"}
	systemDirs  = []string{"/", "/var", "/var/lib", "/root", "/home", "/run"}
	// systemTreesExcept are places inside the trees where people keep work.
	systemTreesExcept = []string{"/usr/local/src", "/usr/src"}
)

// Check refuses what the rules do not allow for a root at the resolved path.
func (r Rules) Check(resolved string, rights Rights) error {
	refuse := func(format string, args ...any) error {
		return &Error{Kind: names.Permission, Err: errors.New(names.Quote(resolved) + " " + fmt.Sprintf(format, args...))}
	}
	for _, n := range never {
		if inside(n, resolved) {
			return refuse("cannot be a root: %s holds kernel interfaces, not files; choose another directory", n)
		}
	}
	// First what no flag lifts, so that nobody is sent to one in vain.
	for _, k := range r.Keep {
		if inside(resolved, k.Path) {
			return refuse("contains %s (%s); choose a directory that does not", k.What, names.Quote(k.Path))
		}
		if inside(k.Path, resolved) {
			return refuse("lies inside %s (%s); choose a directory that does not", k.What, names.Quote(k.Path))
		}
	}
	if resolved == "/" && !r.AllowRootDir {
		return refuse("as a root exposes everything; use --allow-root-dir if that is meant")
	}
	if rights.Mutating() && !r.AllowSystem && isSystem(resolved) {
		return refuse("is a system directory and may only be read-only (:ro); use --allow-system if writing is meant")
	}
	return nil
}

func isSystem(p string) bool {
	for _, e := range systemTreesExcept {
		if inside(e, p) {
			return false
		}
	}
	for _, t := range systemTrees {
		if inside(t, p) {
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

// inside reports whether p is dir or lies below it, by whole elements; both are
// absolute and clean.
func inside(dir, p string) bool {
	if dir == p || dir == "/" {
		return true
	}
	return strings.HasPrefix(p, dir) && len(p) > len(dir) && p[len(dir)] == '/'
}
