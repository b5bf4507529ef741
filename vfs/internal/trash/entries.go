package trash

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// Entry is one kept file.
type Entry struct {
	ID      string        `json:"id"`
	Root    names.Foreign `json:"root"`
	Path    names.Foreign `json:"path,omitempty"`     // below the root; "": not known
	Raw     []byte        `json:"raw_path,omitempty"` // if the path is not UTF-8
	Op      names.Foreign `json:"op,omitempty"`       // that removed it
	Time    time.Time     `json:"time"`
	Size    int64         `json:"size"` // bytes
	Type    string        `json:"type"` // file, link, other
	Subject guard.Subject `json:"subject,omitempty"`
	Via     string        `json:"via,omitempty"`
	UID     uint32        `json:"uid"`
	PID     int32         `json:"pid,omitempty"`
}

// Short returns the part of the id that is enough to name the entry.
func (e *Entry) Short() string { return e.ID[len(stampFormat)+1:] }

// HasID reports whether id is the entry's id, complete or short.
func (e *Entry) HasID(id string) bool { return id != "" && (id == e.ID || id == e.Short()) }

// Rel is the path the file had.
func (e *Entry) Rel() string {
	if len(e.Raw) > 0 {
		return string(e.Raw)
	}
	return e.Path.Raw()
}

// List returns the kept files, the oldest first.
func (b *Bin) List(root guard.RootName) ([]Entry, error) {
	list := []Entry{}
	if b == nil {
		return list, nil
	}
	ids, err := b.ids()
	for _, id := range ids {
		if e, ok := b.entry(id, root); ok {
			list = append(list, e)
		}
	}
	return list, err
}

// entry describes one kept file; ok is false if there is only a note.
func (b *Bin) entry(id string, root guard.RootName) (e Entry, ok bool) {
	info, err := beneath.StatIn(b.d, id)
	if err != nil {
		return e, false
	}
	at, _ := stampOf(id)
	e = Entry{ID: id, Root: names.Foreign(root), Time: at, Size: info.Size, Type: "other"}
	switch info.Type() {
	case unix.S_IFREG:
		e.Type = "file"
	case unix.S_IFLNK:
		e.Type = "link"
	}
	if n, err := b.readNote(id); err == nil {
		e.Path, e.Raw, e.Op, e.Subject, e.Via, e.UID, e.PID = names.Foreign(n.Path), n.Raw, names.Foreign(n.Op), n.Subject, n.Via, n.UID, n.PID
	}
	return e, true
}

// maxNote is more than a note of the longest path takes.
const maxNote = 64 << 10

// readNote reads the note of an entry.
func (b *Bin) readNote(id string) (n note, err error) {
	h, _, err := beneath.OpenFile(b.l, b.d, id+noteSuffix, unix.O_RDONLY)
	if err != nil {
		return n, err
	}
	defer h.Close()
	buf := make([]byte, maxNote)
	got, err := beneath.Pread(h.FD(), buf, 0)
	if err == nil {
		err = json.Unmarshal(buf[:got], &n)
	}
	return n, err
}

// find finds the entry of an id, or of its short form.
func (b *Bin) find(op guard.Op, root guard.RootName, id string) (Entry, error) {
	none := &guard.Error{Op: op, Kind: names.NotExist, Err: fmt.Errorf("the trash of root %s has no %s; see: rootsfs trash list", names.Quote(string(root)), names.Quote(id))}
	if b == nil || id == "" {
		return Entry{}, none
	}
	ids, err := b.ids()
	if err != nil {
		return Entry{}, err
	}
	ids = slices.DeleteFunc(ids, func(have string) bool { return !(&Entry{ID: have}).HasID(id) })
	if len(ids) == 1 {
		if e, ok := b.entry(ids[0], root); ok {
			return e, nil
		}
	}
	return Entry{}, none
}

// Restore moves a kept file to a path of the root: to or, if to is "", the path where the file was.
// If the directory of that path is missing or a link, the error is Conflict. If the name is taken,
// the error is Exist. Restore returns the path.
func (b *Bin) Restore(root guard.RootName, id, to string) (guard.Path, error) {
	e, err := b.find(names.OpRestore, root, id)
	if err != nil {
		return guard.Path{}, err
	}
	if to == "" {
		to = e.Rel()
	}
	q, err := guard.NewPath(root, to)
	switch {
	case to == "":
		return q, refused(names.Invalid, "it is not known where the file was: say where to put it with --to")
	case err != nil:
		return q, err
	case slices.Contains(strings.Split(to, "/"), rules.TrashName):
		return q, refused(names.Invalid, "a file cannot be restored into the trash: name another path")
	}
	d, base, err := beneath.Parent(b.l, q, rules.ToMake)
	switch err { //nolint:errorlint // bare errno
	case nil:
	case unix.ENOENT, unix.ENOTDIR:
		return q, refused(names.Conflict, "the directory of "+names.Quote(to)+" is gone: make it, or use --to")
	case unix.ELOOP:
		return q, refused(names.Conflict, "the directory of "+names.Quote(to)+" is a link by now, which is not followed: use --to")
	default:
		return q, err
	}
	defer d.Close()
	switch err := beneath.RenameNew(b.l, b.d, e.ID, d, base); err { //nolint:errorlint // bare errno
	case nil:
	case unix.EEXIST:
		return q, refused(names.Exist, names.Quote(to)+" is there again: move it away, or use --to")
	case unix.EXDEV:
		return q, refused(names.Invalid, names.Quote(to)+" lies on another file system: use --to")
	default:
		return q, err
	}
	b.l.Notes().Remark(names.Quote(to) + " from the trash, where it was " + e.ID)
	b.drop(e.ID)
	return q, nil
}

func refused(kind guard.Kind, text string) error {
	return &guard.Error{Kind: kind, Err: errors.New(text)}
}

// Emptied counts the files that Empty removed.
type Emptied struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// Empty removes kept files for good: those with the ids or, without ids, all files that were put
// into the trash before a time.
func (b *Bin) Empty(root guard.RootName, ids []string, before time.Time) (e Emptied, err error) {
	var selected []string
	for _, id := range ids {
		one, err := b.find(names.OpEmpty, root, id)
		if err != nil {
			return e, err // before any file is removed
		}
		selected = append(selected, one.ID)
	}
	if len(ids) == 0 && b != nil {
		if selected, err = b.ids(); err != nil {
			return e, err
		}
		selected = slices.DeleteFunc(selected, func(id string) bool { at, _ := stampOf(id); return !at.Before(before) })
	}
	for _, id := range selected {
		if one, ok := b.entry(id, root); ok {
			e.Files, e.Bytes = e.Files+1, e.Bytes+one.Size
		}
		b.drop(id)
	}
	return e, nil
}
