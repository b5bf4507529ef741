package guard_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// What is granted is the directory that was opened and shown, in spite of what
// its path means meanwhile; and never more than was asked (R089, R104).
func TestGrantProposed(t *testing.T) {
	dir := t.TempDir()
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	propose := func(name string, r guard.Rights) *guard.Proposal {
		t.Helper()
		p, err := reg.Propose(guard.Grant{Root: guard.RootName(name), Dir: dir, Policy: guard.Policy{Rights: r}, Expires: time.Now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return p
	}

	p := propose("a", guard.ReadOnly)
	if len(reg.Roots()) != 0 {
		t.Fatal("a proposal is a root already")
	}
	wider := p.Ask()
	wider.Policy.Rights = guard.ReadWrite
	if _, err := reg.GrantProposed(t.Context(), []*guard.Proposal{p}, []guard.Grant{wider}); !errors.Is(err, names.NoConsent) {
		t.Errorf("wider rights: %v", err)
	}
	forever := p.Ask()
	forever.Expires = time.Time{}
	if _, err := reg.GrantProposed(t.Context(), []*guard.Proposal{p}, []guard.Grant{forever}); !errors.Is(err, names.NoConsent) {
		t.Errorf("without expiry: %v", err)
	}
	same := p.Ask()
	same.Origin = "test"
	if _, err := reg.GrantProposed(t.Context(), []*guard.Proposal{p}, []guard.Grant{same}); err != nil {
		t.Fatal(err)
	}
	if _, err := reg.GrantProposed(t.Context(), []*guard.Proposal{p}, []guard.Grant{same}); !errors.Is(err, names.Internal) {
		t.Errorf("granted twice: %v", err)
	}
	p.Close() // the root keeps its descriptor
	if _, err := reg.Parse("", dir+"/x"); err != nil {
		t.Error("the root is not there")
	}

	q := propose("b", guard.ReadWrite)
	q.Close()
	if _, err := reg.GrantProposed(t.Context(), []*guard.Proposal{q}, []guard.Grant{q.Ask()}); !errors.Is(err, names.Internal) {
		t.Errorf("granted after it was given up: %v", err)
	}
}
