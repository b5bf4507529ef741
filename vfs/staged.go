package vfs

import (
	"crypto/rand"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// TempPrefix begins the names of files that are not finished.
const TempPrefix = beneath.TempPrefix

// staged is a file's new contents before they have the file's name.
type staged struct {
	fd   int
	mode uint32 // it was made with
	temp string // its name meanwhile, "" when it has none
	done func() // of the journal, for temp
}

// stage makes a file in d, which lies at dir, without a name if possible.
func (t *Tree) stage(l *guard.Lease, d beneath.Dir, dir guard.Path, mode uint32, o beneath.Owner) (*staged, error) {
	s := &staged{fd: -1, mode: mode}
	fd, ok, err := beneath.Nameless(l, d, mode, o)
	if err != nil {
		return nil, err
	}
	if ok {
		s.fd = fd
		return s, nil
	}
	err = t.name(s, dir, func(temp string) (err error) {
		s.fd, _, err = beneath.CreateFile(l, d, temp, unix.O_RDWR, mode, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// name finds a temporary name, journals it, and has make make it.
func (t *Tree) name(s *staged, dir guard.Path, make func(temp string) error) error {
	for range 100 {
		temp := TempPrefix + strings.ToLower(rand.Text())
		p, err := dir.Join(temp)
		if err != nil {
			return err
		}
		done := t.journal.begin(p)
		err = make(temp)
		if err == nil {
			s.temp, s.done = temp, done
			return nil
		}
		done()
		if err != unix.EEXIST { //nolint:errorlint // bare errno
			return err
		}
	}
	return unix.EEXIST
}

// place gives the staged file its name: that of the file it replaces, or one
// that must be free.
func (t *Tree) place(l *guard.Lease, s *staged, d beneath.Dir, dir guard.Path, base string, replaces bool) error {
	link := func(name string) error { return beneath.Name(l, s.fd, d, name) }
	if s.temp == "" {
		if !replaces {
			return link(base)
		}
		if err := t.name(s, dir, link); err != nil {
			return err
		}
	}
	if err := renameTo(l, d, s.temp, d, base, replaces); err != nil {
		return err
	}
	s.temp = ""
	s.done()
	return nil
}

// renameTo moves a name, over what has the new one only if replaces is set.
func renameTo(l *guard.Lease, from beneath.Dir, oldBase string, to beneath.Dir, newBase string, replaces bool) error {
	if replaces {
		return beneath.Rename(l, from, oldBase, to, newBase, 0)
	}
	return beneath.RenameNew(l, from, oldBase, to, newBase)
}

// drop ends the staging: what did not take its name vanishes.
func (s *staged) drop(l *guard.Lease, d beneath.Dir) {
	s.removeTemp(l, d)
	beneath.Close(s.fd)
}

// removeTemp removes the temporary name, if the file has one. If that fails, or the
// lease is dead, the journal keeps the name for the next session.
func (s *staged) removeTemp(l *guard.Lease, d beneath.Dir) {
	if s.temp == "" {
		return
	}
	if err := beneath.Unlink(l, d, s.temp); err == nil || err == unix.ENOENT { //nolint:errorlint // bare errno
		s.done()
	}
}
