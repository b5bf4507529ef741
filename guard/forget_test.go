package guard_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
)

// Sessions may come, get a root inside one that everybody has, and go. Once they are forgotten,
// that outer root has no tombstones of their roots. The tombstone of a root for everybody stays.
func TestForget(t *testing.T) {
	s := newSetup(t, nil)
	grantTo(t, s, "all", "/all", "", guard.ReadOnly)
	grantTo(t, s, "inner", "/all/inner", "", guard.ReadOnly)
	end := func(name string) {
		t.Helper()
		if _, err := s.Revoke(context.Background(), guard.RootName(name)); err != nil {
			t.Fatal(err)
		}
	}
	end("inner")
	for n := range uint64(20) {
		who, name := guard.Subject("serve").InSession(n), fmt.Sprintf("won-%d", n)
		grantTo(t, s, name, "/all/"+name, string(who), guard.ReadOnly)
		end(name)
		s.Forget(who)
	}
	grantTo(t, s, "last", "/all/last", "", guard.ReadOnly)
	st, ok := s.Lookup("all")
	if !ok {
		t.Fatal("no root")
	}
	slices.Sort(st.Nested)
	if !slices.Equal(st.Nested, []string{"inner", "last"}) {
		t.Errorf("kept: %q", st.Nested)
	}
}
