// Package trash keeps the files that the operations of a root with a trash (guard.Trash)
// remove, in the directory rules.TrashName of the root:
//
//   - A name that is unlinked is moved there by one rename, so the file that is kept is
//     the one that had the name at that moment.
//   - A file that another is about to replace first gets a second name there. So its old
//     name is never without a file, and the kept file is the one that was examined. If
//     the source has no second names, the file is copied.
//   - A file that is truncated to nothing is copied, by reference where the file
//     system can.
//
// Beside each file lies its note, a JSON object in a file of the same name with ".json"
// behind it.
//
// # Promises
//
// A file that fits and cannot be kept is not removed: the operation is refused. A file
// that takes more of the disk than nine tenths of the trash's bound is not kept, and the
// record says so. When a trash exceeds its bound, its oldest files are removed. Files that are
// older than the age limit of the trash are removed, too. Files in a trash count towards no quota.
//
// # Not promised
//
// A kept file that is still open for writing may grow beyond the bound until Prune runs again.
// Prune runs when a file is kept, if the trash then exceeds its bound or the last run was more
// than a minute ago. A caller can also run Prune.
//
// Directories and sockets are not kept.
package trash

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/wholefile"
)

// noteSuffix ends the names of notes.
const noteSuffix = ".json"

// stampFormat begins the names in the trash, so that they sort by time.
const stampFormat = "20060102T150405.000000000"

// entryCost is the size of an entry besides its contents, in bytes: it bounds the number of
// entries, too.
const entryCost = 4096

// note describes a kept file.
type note struct {
	Path    string        `json:"path"`               // below the root
	Raw     []byte        `json:"raw_path,omitempty"` // if the path is not UTF-8
	Op      string        `json:"op"`
	Subject guard.Subject `json:"subject,omitempty"`
	Via     string        `json:"via"`
	UID     uint32        `json:"uid"`
	PID     int32         `json:"pid,omitempty"`
}

// Bin is a root's trash as one operation uses it. A nil Bin keeps nothing and has no
// entries.
type Bin struct {
	store *Store
	ctx   context.Context
	l     *guard.Lease
	d     beneath.Dir
	id    rules.Identity
	below string // path of the trash's root, below the lease's
	size  int64
	age   time.Duration
}

// Open opens the trash that the removals of an operation go to; nil if there is none.
func (s *Store) Open(ctx context.Context, l *guard.Lease) (*Bin, error) {
	return s.open(ctx, l, func(root int) (beneath.Dir, beneath.Info, error) { return beneath.MakeTrash(l, root) })
}

// OpenAlways is Open, but makes a trash even if the root keeps none. It is for files that an
// operation of the owner must not lose.
func (s *Store) OpenAlways(ctx context.Context, l *guard.Lease) (*Bin, error) {
	if b, err := s.Open(ctx, l); b != nil || err != nil {
		return b, err
	}
	d, info, err := beneath.MakeTrash(l, l.Source().FD())
	if err != nil {
		return nil, err
	}
	b := &Bin{store: s, ctx: ctx, l: l, d: d, id: info.ID()}
	b.size, b.age = rules.Trash{}.Bounds()
	return b, nil
}

// OpenExisting is Open for an operation that removes no file. It returns nil also if no file
// was ever kept.
func (s *Store) OpenExisting(ctx context.Context, l *guard.Lease) (*Bin, error) {
	b, err := s.open(ctx, l, beneath.OpenTrash)
	return b, beneath.IgnoreAbsent(err)
}

// open opens the trash of an operation; nil if there is none. openDir opens the trash's directory,
// given the descriptor of the trash's root.
func (s *Store) open(ctx context.Context, l *guard.Lease, openDir func(root int) (beneath.Dir, beneath.Info, error)) (*Bin, error) {
	root, below, how, ok := l.Trash()
	if !ok {
		return nil, nil
	}
	d, info, err := openDir(root)
	if err != nil {
		return nil, err
	}
	b := &Bin{store: s, ctx: ctx, l: l, d: d, id: info.ID(), below: below}
	b.size, b.age = how.Bounds()
	return b, nil
}

// Close closes the trash.
func (b *Bin) Close() {
	if b != nil {
		b.d.Close()
	}
}

// writeNote writes the note of a new entry for the file at rel, below the lease's root. It
// returns the entry's id.
func (b *Bin) writeNote(rel string) (id string, err error) {
	c := b.l.Caller()
	n := note{Path: guard.PathBelow(b.below, rel), Op: b.l.Op().String(), Subject: c.Subject, Via: c.Via.String(), UID: c.UID, PID: c.PID}
	if !utf8.ValidString(n.Path) {
		n.Raw, n.Path = []byte(n.Path), strings.ToValidUTF8(n.Path, "\uFFFD")
	}
	text, err := json.Marshal(n)
	if err != nil {
		return "", err
	}
	id = time.Now().UTC().Format(stampFormat) + "-" + strings.ToLower(rand.Text()[:8])
	w, _, err := beneath.CreateFile(b.l, b.d, id+noteSuffix, unix.O_WRONLY, 0o600, beneath.Owner{})
	if err != nil {
		return "", err
	}
	defer w.Close()
	if _, err := beneath.Pwritev(b.l, w, [][]byte{text}, 0, false); err != nil {
		b.drop(id)
		return "", err
	}
	return id, nil
}

// drop removes the entry id, unless id is "". It ignores errors: the entry may be gone already.
func (b *Bin) drop(id string) {
	if id == "" {
		return
	}
	b.store.forget(binEntry{b.id, id})
	_ = beneath.Unlink(b.l, b.d, id)
	_ = beneath.Unlink(b.l, b.d, id+noteSuffix)
}

// recordKept records that an entry was kept. isOriginal means that the entry is the removed file
// itself and no copy, so that programs that have it open can still write to it.
func (b *Bin) recordKept(id string, info *beneath.Info, isOriginal bool) {
	b.l.Notes().Remark("kept in the trash as " + id)
	if isOriginal && info.IsRegular() && (info.Nlink > 1 || b.store.isWritten(info.ID())) {
		b.store.noteWritten(info.ID(), binEntry{b.id, id})
	}
	b.countEntry(b.diskUsage(info))
}

// isExcluded reports whether a file is not kept: a directory, a socket, or a file that is too
// large.
func (b *Bin) isExcluded(info *beneath.Info) bool {
	return info.IsDir() || info.Type() == unix.S_IFSOCK || b.tooLarge(info)
}

// tooLarge reports whether a file is too large to be kept, and says so in the record.
func (b *Bin) tooLarge(info *beneath.Info) bool {
	if b.diskUsage(info) <= b.largest() {
		return false
	}
	b.l.Notes().Remark("not kept: it is larger than the trash may be")
	return true
}

// Unlink removes a name, which must not be a directory's, and keeps its file. rel is the name's
// path below the lease's root.
func (b *Bin) Unlink(l *guard.Lease, d beneath.Dir, name, rel string) error {
	if b == nil {
		return beneath.Unlink(l, d, name)
	}
	info, err := beneath.StatIn(d, name)
	if err != nil || b.isExcluded(&info) {
		return beneath.Unlink(l, d, name) // Unlink returns the right error
	}
	id, err := b.writeNote(rel)
	if err != nil {
		return err
	}
	err = beneath.RenameNew(l, d, name, b.d, id)
	if err != nil {
		b.drop(id)
		if err == unix.EXDEV { //nolint:errorlint // bare errno
			return b.unlinkCopied(d, name, rel)
		}
		return err
	}
	got, err := beneath.StatIn(b.d, id)
	if err == nil && got.IsDir() {
		// Exchanged for a directory by the host, at this moment.
		if err := beneath.RenameNew(l, b.d, id, d, name); err == nil {
			b.drop(id)
		}
		return unix.EISDIR
	}
	if err == nil {
		b.recordKept(id, &got, true)
	}
	return nil
}

// unlinkCopied is Unlink of a name on another file system than the trash.
func (b *Bin) unlinkCopied(d beneath.Dir, name, rel string) error {
	id, err := b.keep(d, name, rel)
	if err == nil {
		if err = beneath.Unlink(b.l, d, name); err != nil {
			b.drop(id)
		}
	}
	return err
}

// keep keeps a file whose name another file is about to get, or a file that is about to be removed
// and cannot be renamed into the trash. It returns the entry's id, "" if the file is not kept.
func (b *Bin) keep(d beneath.Dir, name, rel string) (id string, err error) {
	old, err := beneath.OpenChild(d, name)
	if err != nil {
		return "", beneath.IgnoreAbsent(err)
	}
	defer old.Close()
	info, err := old.Stat(b.l)
	if err != nil || b.isExcluded(&info) {
		return "", err
	}
	w, err := old.Change(b.l)
	if err != nil {
		return "", err
	}
	if id, err = b.writeNote(rel); err != nil {
		return "", err
	}
	switch err = beneath.Link(b.l, w, b.d, id); err { //nolint:errorlint // bare errno
	case nil:
		b.recordKept(id, &info, true)
		return id, nil
	case unix.EXDEV, unix.EPERM, unix.EMLINK, unix.EOPNOTSUPP, unix.ENOSYS:
		if info.IsRegular() {
			return id, b.copy(old.FD(), &info, id)
		}
	}
	b.drop(id)
	return "", err
}

// Keep keeps the file of a name that another file is about to get, if there is a trash. The
// caller must call end with the error of the replacement, and end returns that error. After
// an error, end removes the file from the trash again.
func (s *Store) Keep(ctx context.Context, l *guard.Lease, d beneath.Dir, name, rel string) (end func(error) error, err error) {
	b, err := s.Open(ctx, l)
	if err != nil || b == nil {
		return func(err error) error { return err }, err
	}
	id, err := b.keep(d, name, rel)
	if err != nil {
		b.Close()
		return nil, err
	}
	return func(err error) error {
		if err != nil {
			b.drop(id)
		}
		b.Close()
		return err
	}, nil
}

// KeepEmptied keeps a copy of a file that is about to be truncated to nothing, if
// there is a trash.
func (s *Store) KeepEmptied(ctx context.Context, l *guard.Lease, fd int, rel string) error {
	b, err := s.Open(ctx, l)
	if err != nil {
		return err
	}
	if b == nil {
		return nil
	}
	defer b.Close()
	info, err := beneath.Stat(l, fd)
	if err != nil || !info.IsRegular() || info.Size == 0 || b.tooLarge(&info) {
		return err
	}
	id, err := b.writeNote(rel)
	if err != nil {
		return err
	}
	return b.copy(fd, &info, id)
}

// copy copies a file to the entry id, whose note has been written. fd may be any descriptor of the
// file.
func (b *Bin) copy(fd int, info *beneath.Info, id string) error {
	now, err := b.copyTo(fd, info, id)
	if err != nil {
		b.drop(id)
		return err
	}
	b.recordKept(id, &now, false)
	return nil
}

// copyTo is copy without cleaning up after a failure. It returns the attributes of the copy.
func (b *Bin) copyTo(fd int, info *beneath.Info, id string) (beneath.Info, error) {
	in, err := beneath.Reopen(fd, unix.O_RDONLY)
	if err != nil {
		return beneath.Info{}, err
	}
	defer beneath.Close(in)
	out, _, err := beneath.CreateFile(b.l, b.d, id, unix.O_RDWR, 0o600, beneath.Owner{})
	if err != nil {
		return beneath.Info{}, err
	}
	defer out.Close()
	w := wholefile.Copier{Ctx: b.ctx, Lease: b.l, To: out} // kept files count towards no quota
	if err := w.Copy(&wholefile.Source{FD: in, Info: *info}, info.Size, func(int64) {}); err != nil {
		return beneath.Info{}, err
	}
	// The owner changes only if this process may do that: an ordinary user keeps owning the copy.
	_ = beneath.Chown(b.l, out, int(info.UID), int(info.GID))
	_ = beneath.Chmod(b.l, out, info.Mode&0o777)
	if err := beneath.Utimes(b.l, out, beneath.Omit, beneath.At(info.ModTime())); err != nil {
		return beneath.Info{}, err
	}
	return beneath.Stat(b.l, out.FD())
}
