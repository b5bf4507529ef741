package wholefile

import (
	"crypto/rand"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// Journal is told of the temporary names of staged files, so that the next session can
// remove the names that this one leaves behind: when its process is killed, or a root has
// ended. Begin is called before the name exists, and has it on disk when it returns; done
// is called when the name is gone. Both may be called concurrently. Most files need no
// temporary name, and are not journalled.
type Journal interface {
	Begin(p guard.Path) (done func())
}

// Stager stages files. The zero Stager has no journal.
type Stager struct{ journal atomic.Pointer[Journal] }

// SetJournal names the journal; it must be called before the Stager is used.
func (st *Stager) SetJournal(j Journal) { st.journal.Store(&j) }

func (st *Stager) begin(p guard.Path) (done func()) {
	if j := st.journal.Load(); j != nil && *j != nil {
		return (*j).Begin(p)
	}
	return func() {}
}

// Staged is a file that has its new contents before it has its name.
type Staged struct {
	FD   int
	Mode uint32 // it was made with
	temp string // its name meanwhile, "" when it has none
	done func() // of the journal, for temp
}

// HasTemp reports whether the file has a temporary name.
func (s *Staged) HasTemp() bool { return s.temp != "" }

// Stage makes a file in d, which lies at dir, without a name if possible. The caller must
// end it with Drop.
func (st *Stager) Stage(l *guard.Lease, d beneath.Dir, dir guard.Path, mode uint32, o beneath.Owner) (*Staged, error) {
	fd, ok, err := beneath.Nameless(l, d, mode, o)
	if err != nil {
		return nil, err
	}
	if !ok {
		return st.stageNamed(l, d, dir, mode, o)
	}
	return &Staged{FD: fd, Mode: mode}, nil
}

// stageNamed is Stage where the file system has no files without names.
func (st *Stager) stageNamed(l *guard.Lease, d beneath.Dir, dir guard.Path, mode uint32, o beneath.Owner) (*Staged, error) {
	s := &Staged{FD: -1, Mode: mode}
	err := st.name(s, dir, func(temp string) (err error) {
		s.FD, _, err = beneath.CreateFile(l, d, temp, unix.O_RDWR, mode, o)
		return err
	})
	return s, err
}

// name finds a temporary name for s, journals it, and calls make to make it.
func (st *Stager) name(s *Staged, dir guard.Path, make func(temp string) error) error {
	for range 100 {
		temp := beneath.TempPrefix + strings.ToLower(rand.Text())
		p, err := dir.Join(temp)
		if err != nil {
			return err
		}
		done := st.begin(p)
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

// Publish gives the staged file its name: that of the file it replaces, or one
// that must be free.
func (st *Stager) Publish(l *guard.Lease, s *Staged, d beneath.Dir, dir guard.Path, base string, replaces bool) error {
	link := func(name string) error { return beneath.Link(l, s.FD, d, name) }
	if s.temp == "" {
		if !replaces {
			return link(base)
		}
		if err := st.name(s, dir, link); err != nil {
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

// Drop ends the staging: what did not take its name vanishes.
func (s *Staged) Drop(l *guard.Lease, d beneath.Dir) {
	s.RemoveTemp(l, d)
	beneath.Close(s.FD)
}

// RemoveTemp removes the temporary name, if the file has one. If that fails, or the
// lease is dead, the journal keeps the name for the next session.
func (s *Staged) RemoveTemp(l *guard.Lease, d beneath.Dir) {
	if s.temp == "" {
		return
	}
	if beneath.IgnoreAbsent(beneath.Unlink(l, d, s.temp)) == nil {
		s.done()
	}
}
