package guard_test

import (
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// R004, R095: while one server moves a directory, nobody can make a name in it through another
// root: a root at the same directory, around it or inside. Roots elsewhere do not wait. (If the lock
// belonged to the root and not to the directory, the name would be made at once.)
func TestNobodyMakesNamesInWhatIsMoved(t *testing.T) {
	for _, c := range []struct {
		name, mover, maker string
		waits              bool
	}{
		{"one directory", "/dir", "/dir", true},
		{"the mover around", "/dir", "/dir/in/side", true},
		{"the mover inside", "/dir/in/side", "/dir", true},
		{"side by side", "/dir/a", "/dir/b", false},
		{"a longer name", "/dir/a", "/dir/ab", false},
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

// A grant during a move in a neighbouring root waits until the move is done, because the
// mover's locks do not cover the new root yet. A grant that cannot wait is refused.
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
		t.Error("the root is there")
	}
	unlock()
	_, err = s.Grant(bg, ask)
	wantKind(t, err, 0)
	// The next move knows it.
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
