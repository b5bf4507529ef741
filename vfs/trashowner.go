package vfs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
)

// What the owner does with a trash. These operations name no caller: they are the
// owner's, who needs no right of the root, and are for no front end that serves
// somebody else.

// Trashed is one kept file.
type Trashed struct {
	ID      string        `json:"id"`
	Root    string        `json:"root"`
	Path    string        `json:"path,omitempty"`     // below the root; "": not known
	Raw     []byte        `json:"raw_path,omitempty"` // if the path is not UTF-8
	Op      string        `json:"op,omitempty"`       // that removed it
	Time    time.Time     `json:"time"`
	Size    int64         `json:"size"` // bytes
	Type    string        `json:"type"` // file, link, other
	Subject guard.Subject `json:"subject,omitempty"`
	Via     string        `json:"via,omitempty"`
	UID     uint32        `json:"uid"`
	PID     int32         `json:"pid,omitempty"`
}

// Short is what of the id is enough to name it.
func (e *Trashed) Short() string { return e.ID[len(stampFormat)+1:] }

// Called reports whether the entry is called so, in full or in short.
func (e *Trashed) Called(id string) bool { return id != "" && (id == e.ID || id == e.Short()) }

// Rel is the path the file had.
func (e *Trashed) Rel() string {
	if len(e.Raw) > 0 {
		return string(e.Raw)
	}
	return e.Path
}

// owned runs an operation of the owner's on a root's trash; f gets nil where there
// is none yet.
func owned[T any](ctx context.Context, t *Tree, op guard.Op, root guard.RootName, f func(l *guard.Lease, b *bin) (T, error)) (T, error) {
	var none T
	p, err := guard.NewPath(root, "")
	if err != nil {
		return none, err
	}
	return gate.Do(ctx, t.reg, guard.Request{Caller: t.ownerOf(root), Op: op, Path: p}, nil, func(l *guard.Lease) (T, int64, error) {
		if _, _, _, ok := l.Trash(); !ok {
			return none, 0, noTrash(op, root)
		}
		b, err := t.openBin(ctx, l, beneath.Trash)
		if err != nil && err != unix.ENOENT { //nolint:errorlint // bare errno
			return none, 0, err
		}
		defer b.close()
		v, err := f(l, b)
		return v, 0, err
	})
}

// noTrash is the error for a root that keeps none.
func noTrash(op guard.Op, root guard.RootName) error {
	return &guard.Error{Op: op, Kind: names.Invalid, Err: fmt.Errorf(
		"root %s keeps no trash; it does with: rootsfs mount --trash, or trash = { on = true } in its [[root]] block", names.Quote(string(root)))}
}

// TrashList lists what a root's trash holds, the oldest first.
func (t *Tree) TrashList(ctx context.Context, root guard.RootName) ([]Trashed, error) {
	return owned(ctx, t, names.OpTrash, root, func(_ *guard.Lease, b *bin) ([]Trashed, error) {
		out := []Trashed{}
		if b == nil {
			return out, nil
		}
		ids, err := b.ids()
		for _, id := range ids {
			if e, ok := b.entry(id, root); ok {
				out = append(out, e)
			}
		}
		return out, err
	})
}

// entry is one kept file; ok is false if there is only a note.
func (b *bin) entry(id string, root guard.RootName) (e Trashed, ok bool) {
	info, err := beneath.StatIn(b.d, id)
	if err != nil {
		return e, false
	}
	at, _ := stampOf(id)
	e = Trashed{ID: id, Root: string(root), Time: at, Size: info.Size, Type: "other"}
	switch info.Type() {
	case unix.S_IFREG:
		e.Type = "file"
	case unix.S_IFLNK:
		e.Type = "link"
	}
	if n, err := b.read(id); err == nil {
		e.Path, e.Raw, e.Op, e.Subject, e.Via, e.UID, e.PID = n.Path, n.Raw, n.Op, n.Subject, n.Via, n.UID, n.PID
	}
	return e, true
}

// maxNote is more than a note of the longest path takes.
const maxNote = 64 << 10

func (b *bin) read(id string) (n trashNote, err error) {
	fd, _, err := beneath.OpenFile(b.d, id+noteSuffix, unix.O_RDONLY)
	if err != nil {
		return n, err
	}
	defer beneath.Close(fd)
	buf := make([]byte, maxNote)
	got, err := beneath.Pread(fd, buf, 0)
	if err == nil {
		err = json.Unmarshal(buf[:got], &n)
	}
	return n, err
}

// find is the entry of an id, or of its short form.
func (b *bin) find(op guard.Op, root guard.RootName, id string) (Trashed, error) {
	none := &guard.Error{Op: op, Kind: names.NotExist, Err: fmt.Errorf("the trash of root %s has no %s; see: rootsfs trash list", names.Quote(string(root)), names.Quote(id))}
	if b == nil || id == "" {
		return Trashed{}, none
	}
	ids, err := b.ids()
	if err != nil {
		return Trashed{}, err
	}
	ids = slices.DeleteFunc(ids, func(have string) bool { return !(&Trashed{ID: have}).Called(id) })
	if len(ids) == 1 {
		if e, ok := b.entry(ids[0], root); ok {
			return e, nil
		}
	}
	return Trashed{}, none
}

// TrashRestore puts a kept file back where it was, or at the path to below the
// root unless that is "", which nothing may have (Exist), in a directory that is
// there. id is the entry's, or what of it follows the dash. It returns the path.
func (t *Tree) TrashRestore(ctx context.Context, root guard.RootName, id, to string) (guard.Path, error) {
	return owned(ctx, t, names.OpRestore, root, func(l *guard.Lease, b *bin) (guard.Path, error) {
		e, err := b.find(names.OpRestore, root, id)
		if err != nil {
			return guard.Path{}, err
		}
		refuse := func(kind guard.Kind, text string) (guard.Path, error) {
			return guard.Path{}, &guard.Error{Kind: kind, Err: errors.New(text)}
		}
		if to == "" {
			to = e.Rel()
		}
		q, err := guard.NewPath(root, to)
		switch {
		case to == "":
			return refuse(names.Invalid, "it is not known where the file was: say where to put it with --to")
		case err != nil:
			return guard.Path{}, err
		case slices.Contains(strings.Split(to, "/"), guard.TrashName):
			return refuse(names.Invalid, "what is restored leaves the trash: name another path")
		}
		d, base, err := beneath.ParentFor(l, q, guard.ToMake)
		if err == unix.ENOENT || err == unix.ENOTDIR { //nolint:errorlint // bare errno
			return refuse(names.Conflict, "the directory of "+names.Quote(to)+" is gone: make it, or use --to")
		}
		if err == unix.ELOOP { //nolint:errorlint // bare errno
			return refuse(names.Conflict, "the directory of "+names.Quote(to)+" is a link by now, which is not followed: use --to")
		}
		if err != nil {
			return guard.Path{}, err
		}
		defer d.Close()
		switch err := beneath.RenameNew(l, b.d, e.ID, d, base); err { //nolint:errorlint // bare errno
		case nil:
		case unix.EEXIST:
			return refuse(names.Exist, names.Quote(to)+" is there again: move it away, or use --to")
		case unix.EXDEV:
			return refuse(names.Invalid, names.Quote(to)+" lies on another file system: use --to")
		default:
			return guard.Path{}, err
		}
		l.Remark(names.Quote(to) + " from the trash, where it was " + e.ID)
		b.drop(e.ID)
		return q, nil
	})
}

// Emptied is what TrashEmpty removed.
type Emptied struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// TrashEmpty removes kept files for good: those of the ids, or, without any, all
// that were removed before a time.
func (t *Tree) TrashEmpty(ctx context.Context, root guard.RootName, ids []string, before time.Time) (Emptied, error) {
	return owned(ctx, t, names.OpEmpty, root, func(l *guard.Lease, b *bin) (e Emptied, err error) {
		var which []string
		for _, id := range ids {
			one, err := b.find(names.OpEmpty, root, id)
			if err != nil {
				return e, err // before anything is gone
			}
			which = append(which, one.ID)
		}
		if len(ids) == 0 && b != nil {
			if which, err = b.ids(); err != nil {
				return e, err
			}
			which = slices.DeleteFunc(which, func(id string) bool { at, _ := stampOf(id); return !at.Before(before) })
		}
		for _, id := range which {
			if one, ok := b.entry(id, root); ok {
				e.Files, e.Bytes = e.Files+1, e.Bytes+one.Size
			}
			b.drop(id)
		}
		l.Remark(fmt.Sprintf("%d files, %d bytes, removed from the trash for good", e.Files, e.Bytes))
		return e, nil
	})
}

// TrashPrune removes what is too old, or too much, in a root's trash. It leaves no
// record.
func (t *Tree) TrashPrune(ctx context.Context, root guard.RootName) error {
	_, err := owned(ctx, t, names.OpTrash, root, func(_ *guard.Lease, b *bin) (int64, error) {
		if b == nil {
			return 0, nil
		}
		return b.prune()
	})
	return err
}
