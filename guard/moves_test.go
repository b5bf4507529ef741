package guard_test

import (
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// R004, R095: while one server moves a directory of its root, another server cannot create a name
// through a root at the same directory as that root, around it or inside it. Operations in other
// roots do not wait. (If the lock belonged to the root and not to the directory, the name would be
// made at once.)
func TestMoveKeepsNamesFromBeingMade(t *testing.T) {
	for _, c := range []struct {
		name, mover, maker string
		waits              bool
	}{
		{"same directory", "/dir", "/dir", true},
		{"mover's root around maker's", "/dir", "/dir/in/side", true},
		{"mover's root inside maker's", "/dir/in/side", "/dir", true},
		{"side by side", "/dir/a", "/dir/b", false},
		{"maker's name begins with mover's", "/dir/a", "/dir/ab", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSetup(t, nil)
			grantTo(t, s, "moves", c.mover, "a", guard.ReadWrite)
			grantTo(t, s, "makes", c.maker, "b", guard.ReadWrite)
			mover, err := s.Admit(bg, requestIn(t, req(t, names.OpRename), "a", "moves"))
			wantKind(t, err, 0)
			unlock, err := mover.Moving(bg)
			wantKind(t, err, 0)
			maker, err := s.Admit(bg, requestIn(t, req(t, names.OpMkdir), "b", "makes"))
			wantKind(t, err, 0)
			made := make(chan error, 1)
			go func() {
				unlock, err := maker.Making(bg)
				if err == nil {
					unlock()
				}
				made <- maker.Done(0, err)
			}()
			if !c.waits {
				wantKind(t, <-made, 0)
			} else {
				// An operation that waits gets the error of the revocation. One that does not
				// wait has made the name.
				if _, err := s.Revoke(bg, "makes"); err != nil {
					t.Error(err)
				}
				wantKind(t, <-made, names.Revoked)
			}
			unlock()
			wantKind(t, mover.Done(0, nil), 0)
		})
	}
}

// While a directory is moved through a root, the grant of a root inside that root has to wait,
// because the mover's locks do not cover the new root yet. A grant whose deadline passes first is
// refused. The locks of the next move cover the new root, too.
func TestGrantWaitsForMoves(t *testing.T) {
	s := newSetup(t, func(c *guard.Config) { c.Deadline = 50 * time.Millisecond })
	grantTo(t, s, "moves", "/dir", "a", guard.ReadWrite)
	mover, err := s.Admit(bg, requestIn(t, req(t, names.OpRename), "a", "moves"))
	wantKind(t, err, 0)
	unlock, err := mover.Moving(bg)
	wantKind(t, err, 0)
	ask := guard.Grant{Root: "late", Dir: "/dir/in", Subject: "b", Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite}}
	_, err = s.Grant(bg, ask)
	wantKind(t, err, names.Timeout)
	if _, ok := s.Lookup("late"); ok {
		t.Error("the refused root is listed")
	}
	unlock()
	_, err = s.Grant(bg, ask)
	wantKind(t, err, 0)
	// The next move locks the new root, too.
	unlock, err = mover.Moving(bg)
	wantKind(t, err, 0)
	defer unlock()
	maker, err := s.Admit(bg, requestIn(t, req(t, names.OpMkdir), "b", "late"))
	wantKind(t, err, 0)
	made := make(chan error, 1)
	go func() {
		_, err := maker.Making(bg)
		made <- maker.Done(0, err)
	}()
	if _, err := s.Revoke(bg, "late"); err != nil {
		t.Error(err)
	}
	wantKind(t, <-made, names.Revoked)
	wantKind(t, mover.Done(0, nil), 0)
}
