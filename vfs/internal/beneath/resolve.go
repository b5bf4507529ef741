package beneath

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/guard/rules"
)

const (
	// chunk bounds one openat2: PATH_MAX is 4096 with the NUL, and one call
	// with a 5,020-byte path was measured to fail with ENAMETOOLONG.
	chunk = 4000
	// maxRetries bounds the repetition of an openat2 that lost a race with a
	// rename (EAGAIN). filepath-securejoin uses the same number: an attacker
	// who wins 128 times in a row is denied service, nothing more.
	maxRetries = 128
)

// Dir is a reference (O_PATH) to a directory of a root, or to another file (see Node), and the
// domain in which it lies: the epoch of the innermost nested root that was entered on its path, 0
// for none.
type Dir struct {
	fd     int
	Domain uint64
	owned  bool
	across bool // names that lead to other file systems may be followed
	local  bool // the source's file system cannot hang; file systems that are mounted in it can
	// id is the directory's identity. Zero: not looked up yet, see ID.
	id rules.Identity
	// union has the two sides of a directory of a staged root; nil in other roots.
	union *union
	// source lets the owner's apply change the directory, which lies in the source of a staged
	// root. It has no effect in other roots.
	source bool
	// spelled is the path below the root as the source spells it, if that differs from the path
	// that was asked for.
	spelled string
}

// FD is the directory's descriptor, for calls that change nothing.
func (d Dir) FD() int { return d.fd }

// acrossAny is the directory, as if the grant allowed other file systems.
func (d Dir) acrossAny() Dir {
	d.across = true
	return d
}

// Rel returns the directory's path below the root, for judging names in it. asked is the path
// by which the directory was resolved.
func (d Dir) Rel(asked string) string {
	if d.spelled != "" {
		return d.spelled
	}
	return asked
}

// Spell records the path by which the directory was found, if the caller asked for another path.
// It does not replace the source's own spelling.
func (d *Dir) Spell(rel string) {
	if d.spelled == "" {
		d.spelled = rel
	}
}

// Root is the directory of the lease's root. Other file systems are entered from the directory only
// if the grant allows that.
func Root(l *guard.Lease) Dir {
	if st := stageOf(l); st != nil {
		return Dir{fd: st.up, local: true, union: st.top}
	}
	return Dir{fd: l.Source().FD(), across: l.OtherFileSystems(), local: !l.Source().Remote()}
}

// resolve returns the resolve flags of openat2(2) for names in the directory.
func (d Dir) resolve() uint64 {
	if d.across {
		return stayBeneath
	}
	return stayBeneath | unix.RESOLVE_NO_XDEV
}

// Close closes the descriptor if d owns it: not the descriptor of the root, nor that of a directory
// from Share. A deferred Close closes the descriptor that d has at that time: Change may have
// replaced it by the descriptor of a copy.
func (d *Dir) Close() {
	if d.union != nil {
		d.union.close()
	}
	if d.owned {
		_ = unix.Close(d.fd)
	}
}

// Share returns the directory for a second use. Close of the result does nothing, so d must stay open
// until the second use has ended. Share reports false for a directory of a staged root, which cannot
// be shared.
func (d Dir) Share() (Dir, bool) {
	d.owned = false
	return d, d.union == nil
}

// Keep returns the descriptor of d as a Handle, or a duplicate of a descriptor that d does not own.
// The caller must close the Handle. On an error, Keep closes a descriptor that d owns.
func Keep(d Dir) (Handle, error) {
	if !d.owned {
		kept, err := Dup(d)
		return Handle{fd: kept.fd}, err
	}
	ownID, err := d.ownID(d.fd)
	if err != nil {
		d.Close()
		return Handle{}, err
	}
	return d.keep(ownID)
}

// keep is Keep for a Dir that owns its descriptor. ownID is the identity that the file has on its
// file system.
func (d Dir) keep(ownID rules.Identity) (Handle, error) {
	if err := keepOrClose(d.fd); err != nil {
		return Handle{}, err
	}
	if d.union != nil {
		d.union.close()
	}
	return d.handle(d.fd, ownID, false)
}

// Reference opens a file of any type (O_PATH) by its name in a directory. It does not follow a
// link. The caller may keep the Handle between operations.
func Reference(l *guard.Lease, d Dir, name string) (Handle, Info, error) {
	child, err := OpenChild(d, name)
	if err != nil {
		return Handle{}, Info{}, err
	}
	info, err := stat(child.fd)
	if err != nil {
		child.Close()
		return Handle{}, Info{}, err
	}
	h, err := child.keep(info.ID())
	showIn(l, &info)
	return h, info, err
}

// OpenDir resolves a directory of the lease's root, and judges it and those above.
func OpenDir(l *guard.Lease, rel string) (Dir, error) {
	switch {
	case l.Source().File() != "":
		return Dir{}, unix.ENOTDIR
	case rel == "":
		return Root(l), nil
	}
	if err := l.Judge().Dir(rel); err != nil {
		return Dir{}, err
	}
	return walk(l, rel, unix.O_DIRECTORY)
}

// Parent resolves the directory that holds p's last element, and judges that name for an
// access. A root's own path has no parent, except that of a single-file root, whose parent
// is the root's descriptor.
func Parent(l *guard.Lease, p guard.Path, a rules.Access) (Dir, string, error) {
	if p.IsRoot() {
		if f := l.Source().File(); f != "" {
			return Root(l), f, nil
		}
		return Dir{}, "", &guard.Error{Kind: names.Invalid, Err: unix.EBUSY}
	}
	dir, base := p.Split()
	d, err := OpenDir(l, dir.Rel())
	if err != nil {
		return Dir{}, "", err
	}
	if err = Enter(l, &d, base); err == nil {
		err = Judge(l, d, dir.Rel(), base, a)
	}
	if err != nil {
		d.Close()
		return Dir{}, "", err
	}
	return d, base, nil
}

// Judge judges a name, for an access, in an open directory that was resolved by rel. If the name
// may be another spelling of a name on the disk, the name on the disk is judged, too.
func Judge(l *guard.Lease, d Dir, rel, name string, a rules.Access) error {
	if !l.Judge().Patterned() {
		return nil
	}
	if err := l.Judge().As(a, d.Rel(rel), name, pattern.Unknown); err != nil || !l.Judge().Spells(name) {
		return err
	}
	real, err := realSpellings(d, name)
	for _, r := range real {
		if err == nil {
			err = l.Judge().As(a, d.Rel(rel), r, pattern.Unknown)
		}
	}
	return err
}

// Enter tells the lease that an operation is about one name of d. If the name is a nested
// single-file root, Enter sets d.Domain to that root's domain.
func Enter(l *guard.Lease, d *Dir, name string) error {
	if !l.HasNested() || name == "" || l.Source().File() != "" {
		return nil
	}
	entered, err := crossName(l, d, name)
	if entered != 0 {
		d.Domain = entered
	}
	return err
}

func crossName(l *guard.Lease, d *Dir, name string) (uint64, error) {
	id, err := d.ID(l)
	if err != nil {
		return 0, err
	}
	return l.EnterIfNested(id, name)
}

// ID returns the identity of the directory. It asks the source once: a descriptor stays with
// its directory.
func (d *Dir) ID(l *guard.Lease) (rules.Identity, error) {
	if d.id == (rules.Identity{}) {
		info, err := d.Stat(l)
		if err != nil {
			return rules.Identity{}, err
		}
		d.id = info.ID()
	}
	return d.id, nil
}

// Node resolves p, to a file of any type (O_PATH), and judges it for an access. It does not
// follow a link.
func Node(l *guard.Lease, p guard.Path, a rules.Access) (Dir, error) {
	switch f := l.Source().File(); {
	case !p.IsRoot() && f != "":
		return Dir{}, unix.ENOTDIR
	case !p.IsRoot():
		if err := JudgePath(l, p, a); err != nil {
			return Dir{}, err
		}
		return walk(l, p.Rel(), unix.O_NOFOLLOW)
	case f != "":
		return step(nil, Root(l), f, unix.O_NOFOLLOW)
	}
	return Root(l), nil
}

// JudgePath judges the last element of a path, and the directories above it.
func JudgePath(l *guard.Lease, p guard.Path, a rules.Access) error {
	if !l.Judge().Patterned() || p.IsRoot() {
		return nil
	}
	dir, base := p.Split()
	if !spells(l, p.Rel()) {
		if err := l.Judge().Dir(dir.Rel()); err != nil {
			return err
		}
		return l.Judge().As(a, dir.Rel(), base, pattern.Unknown)
	}
	d, err := OpenDir(l, dir.Rel())
	if err != nil {
		return err
	}
	defer d.Close()
	return Judge(l, d, dir.Rel(), base, a)
}

// spells reports whether a name of the path may be another spelling of a name on the disk.
func spells(l *guard.Lease, rel string) bool {
	if !l.Judge().Patterned() {
		return false
	}
	for elem := range strings.SplitSeq(rel, "/") {
		if l.Judge().Spells(elem) {
			return true
		}
	}
	return false
}

// stayBeneath has the resolve flags of openat2(2) for every path below an open directory.
const stayBeneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_SYMLINKS

// walk resolves rel from the root's descriptor.
func walk(l *guard.Lease, rel string, last uint64) (Dir, error) {
	d := Root(l)
	if !l.HasNested() && !spells(l, rel) {
		return walkFrom(nil, d, rel, last)
	}
	d.id = l.Source().ID()
	return walkFrom(l, d, rel, last)
}

// walkFrom resolves rel from d, which must not own its descriptor, and opens the file there with the
// flags last. Without a lease, walkFrom makes as few system calls as PATH_MAX allows. With a
// lease, walkFrom goes name by name, tells the lease of each nested root that the path enters, and
// judges directories that the source spells differently.
func walkFrom(l *guard.Lease, d Dir, rel string, last uint64) (Dir, error) {
	for {
		part, rest := cut(rel)
		if l != nil {
			part, rest, _ = strings.Cut(rel, "/")
		}
		flags := uint64(unix.O_DIRECTORY)
		if rest == "" {
			flags = last
		}
		next, err := step(l, d, part, flags)
		d.Close()
		if err != nil || rest == "" {
			return next, err
		}
		d, rel = next, rest
	}
}

// step opens a path below d (O_PATH); with a lease, one name, as walkFrom says.
func step(l *guard.Lease, d Dir, part string, flags uint64) (Dir, error) {
	next := Dir{Domain: d.Domain, owned: true, across: d.across, local: d.local, source: d.source}
	if l != nil {
		err := Enter(l, &d, part)
		if err == nil {
			next.spelled, err = spelling(l, d, part, flags&unix.O_DIRECTORY != 0)
		}
		if err != nil {
			return Dir{}, err
		}
		next.Domain = d.Domain
	}
	var err error
	if d.union != nil {
		next.fd, next.union, err = d.union.enter(part, unix.O_PATH|flags)
	} else {
		next.fd, err = open(d.fd, part, unix.O_PATH|flags, d.resolve())
	}
	if err != nil {
		return Dir{}, err
	}
	if l != nil {
		if _, err := cross(l, &next); err != nil {
			next.Close()
			return Dir{}, err
		}
	}
	return next, nil
}

// Step takes a reference to a file of any type, by its name in a directory. It is one step of a
// resolution that began at the root: it follows no link, enters another file system only if the
// grant allows it, and shows a directory to the lease. The caller has judged the name.
func Step(l *guard.Lease, d Dir, name string) (Dir, Info, error) {
	if err := Enter(l, &d, name); err != nil {
		return Dir{}, Info{}, err
	}
	next, err := step(nil, d, name, unix.O_NOFOLLOW)
	if err != nil {
		return Dir{}, Info{}, err
	}
	info, err := cross(l, &next)
	if err != nil {
		next.Close()
		return Dir{}, Info{}, err
	}
	return next, info, nil
}

// cut takes the longest leading part of rel that one openat2 can resolve.
func cut(rel string) (part, rest string) {
	if len(rel) <= chunk {
		return rel, ""
	}
	i := strings.LastIndexByte(rel[:chunk+1], '/')
	return rel[:i], rel[i+1:]
}

// spelling returns the path of a name of d as the source spells it. If the source spells it
// differently and enter is set, spelling judges that path as a directory.
func spelling(l *guard.Lease, d Dir, name string, enter bool) (string, error) {
	path := join(d.spelled, name)
	if !l.Judge().Spells(name) {
		return path, nil
	}
	real, err := realSpellings(d, name)
	for _, r := range real {
		path = join(d.spelled, r)
		if err == nil && enter {
			err = l.Judge().Dir(path)
		}
	}
	return path, err
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// cross sets d.id to the identity of the file that d refers to. If that is a directory, cross
// tells the lease of it, and if it is a nested root, sets d.Domain to that root's domain.
func cross(l *guard.Lease, d *Dir) (Info, error) {
	info, err := d.Stat(l)
	if err != nil {
		return Info{}, err
	}
	d.id = info.ID()
	entered, err := CrossChild(l, &info)
	if entered != 0 {
		d.Domain = entered
	}
	return info, err
}

// CrossEntry tells the lease of one name of a directory, if there are nested roots. It is for
// operations on a name that do not open it. It returns the domain of the nested root at that name,
// or 0 if no nested root is there.
func CrossEntry(l *guard.Lease, d Dir, name string, info *Info) (uint64, error) {
	if !l.HasNested() || l.Source().File() != "" {
		return 0, nil
	}
	if domain, err := crossName(l, &d, name); domain != 0 || err != nil {
		return domain, err
	}
	return CrossChild(l, info)
}

// CrossChild is CrossEntry, but ignores nested single-file roots.
func CrossChild(l *guard.Lease, info *Info) (uint64, error) {
	if !l.HasNested() || !info.IsDir() {
		return 0, nil
	}
	return l.EnterIfNested(info.ID(), "")
}

// OpenChild takes a reference to one name of a directory, not following a link. The caller
// closes it.
func OpenChild(d Dir, base string) (Dir, error) {
	if d.union != nil {
		return step(nil, d, base, unix.O_NOFOLLOW)
	}
	fd, err := openChild(d, base)
	if err != nil {
		return Dir{}, err
	}
	return Dir{fd: fd, owned: true, across: d.across, local: d.local, source: d.source}, nil
}

func openChild(d Dir, base string) (int, error) {
	if d.union != nil {
		fd, _, err := d.union.openName(base, unix.O_PATH|unix.O_NOFOLLOW)
		return fd, err
	}
	return open(d.fd, base, unix.O_PATH|unix.O_NOFOLLOW, d.resolve())
}
