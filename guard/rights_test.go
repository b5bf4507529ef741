package guard_test

import (
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// R163: a grant without rights is refused, and so is every operation on its root.
func TestGrantWithoutRights(t *testing.T) {
	s := newSetup(t, nil)
	_, err := s.Grant(bg, guard.Grant{Root: "r", Dir: "/r", Origin: "test"})
	wantKind(t, err, names.Invalid)
	for op := names.OpNone; int(op) < names.Ops; op++ {
		want := names.NoConsent
		if err := s.once(req(t, op), 0); err == nil {
			t.Errorf("%v succeeded", op)
		} else {
			wantKind(t, err, want)
		}
	}
	s.grant(t, "r", "/r", guard.Policy{})
	wantKind(t, s.Set(bg, "r", 0), names.Invalid) // only a revocation takes all rights away
	wantKind(t, s.once(req(t, names.OpRead), 0), 0)
}

// R162, R164: the rights of a root can be set while the root is in use. An operation whose right is
// not in the new set is refused from then on. The refusal is EROFS if the operation is a change and
// the root allows no changes at all.
func TestSetRightsByOperation(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/r", guard.Policy{})
	ops := map[guard.Op]guard.Rights{
		names.OpRead: guard.Read, names.OpReaddir: guard.List, names.OpTruncate: guard.Write | guard.Create,
		names.OpCreate: guard.Create, names.OpUnlink: guard.Delete, names.OpRename: guard.Rename, names.OpWatch: guard.Watch,
	}
	for _, mode := range []string{"read,list", "read,list,create", "create,append", "delete", "watch", "rename", "rw", "ro", "list"} {
		rights, err := rules.ParseMode(mode)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Set(bg, "r", rights); err != nil {
			t.Fatal(err)
		}
		for op, takes := range ops {
			want := names.Permission
			switch {
			case takes&rights != 0:
				want = 0
			case takes.Mutating() && !rights.Mutating():
				want = names.ReadOnly
			}
			if err := s.once(req(t, op), 0); want == 0 && err != nil || want != 0 && names.Reason(err) != want {
				t.Errorf("%s, %v: %v, want %v", mode, op, err, want)
			}
		}
	}
}
