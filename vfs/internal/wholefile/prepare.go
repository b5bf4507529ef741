package wholefile

import (
	"crypto/rand"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// Journal records the temporary names of prepared files, so that the next session can remove
// names that this one leaves behind because its process is killed or a root has ended. Begin is
// called before the name exists, and returns when the name is recorded on disk. done is called
// when the name is gone. Both may be called concurrently. Most files need no temporary name, and
// are not journalled.
type Journal interface {
	Begin(p guard.Path) (done func())
}

// Preparer prepares files. The zero Preparer has no journal.
type Preparer struct{ journal atomic.Pointer[Journal] }

// SetJournal sets the journal; it must be called before the Preparer is used.
func (pr *Preparer) SetJournal(j Journal) { pr.journal.Store(&j) }

func (pr *Preparer) begin(p guard.Path) (done func()) {
	if j := pr.journal.Load(); j != nil && *j != nil {
		return (*j).Begin(p)
	}
	return func() {}
}

// Prepared is a file that has its new contents before it has its name.
type Prepared struct {
	beneath.Changeable
	Mode uint32 // the mode with which it was made
	temp string // its temporary name, "" if it has none
	done func() // removes temp from the journal
}

// HasTemp reports whether the file has a temporary name.
func (s *Prepared) HasTemp() bool { return s.temp != "" }

// Prepare makes a file in d, which lies at dir, without a name if possible. The caller must call
// Drop on the returned file.
func (pr *Preparer) Prepare(l *guard.Lease, d beneath.Dir, dir guard.Path, mode uint32, o beneath.Owner) (*Prepared, error) {
	w, ok, err := beneath.Nameless(l, d, mode, o)
	if err != nil {
		return nil, err
	}
	if !ok {
		return pr.prepareNamed(l, d, dir, mode, o)
	}
	return &Prepared{Changeable: w, Mode: mode}, nil
}

// prepareNamed is Prepare for a file system that cannot make files without a name.
func (pr *Preparer) prepareNamed(l *guard.Lease, d beneath.Dir, dir guard.Path, mode uint32, o beneath.Owner) (*Prepared, error) {
	s := &Prepared{Mode: mode}
	err := pr.name(s, dir, func(temp string) (err error) {
		s.Changeable, _, err = beneath.CreateFile(l, d, temp, unix.O_RDWR, mode, o)
		return err
	})
	return s, err
}

// name chooses a temporary name for s, journals the name, and calls make to create it. If the
// name exists already, name chooses another.
func (pr *Preparer) name(s *Prepared, dir guard.Path, make func(temp string) error) error {
	for range 100 {
		temp := beneath.TempPrefix + strings.ToLower(rand.Text())
		p, err := dir.Join(temp)
		if err != nil {
			return err
		}
		done := pr.begin(p)
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

// Publish gives the prepared file the name base in d, which lies at dir. If replaces is set, the
// file replaces the one that has the name; otherwise the name must be free.
func (pr *Preparer) Publish(l *guard.Lease, s *Prepared, d beneath.Dir, dir guard.Path, base string, replaces bool) error {
	link := func(name string) error { return beneath.Link(l, s.Changeable, d, name) }
	if s.temp == "" {
		if !replaces {
			return link(base)
		}
		if err := pr.name(s, dir, link); err != nil {
			return err
		}
	}
	var err error
	if replaces {
		err = beneath.Rename(l, d, s.temp, d, base, 0)
	} else {
		err = beneath.RenameNew(l, d, s.temp, d, base)
	}
	if err == nil {
		s.temp = ""
		s.done()
	}
	return err
}

// Drop ends the preparation. It removes a file that has not got its name.
func (s *Prepared) Drop(l *guard.Lease, d beneath.Dir) {
	s.RemoveTemp(l, d)
	s.Close()
}

// RemoveTemp removes the temporary name, if the file has one. If that fails, or the
// lease is dead, the journal keeps the name for the next session.
func (s *Prepared) RemoveTemp(l *guard.Lease, d beneath.Dir) {
	if s.temp == "" {
		return
	}
	if beneath.IgnoreAbsent(beneath.Unlink(l, d, s.temp)) == nil {
		s.done()
	}
}
