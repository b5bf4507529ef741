package rules_test

import (
	"testing"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// The text of every mode parses as the same rights.
func TestModesRoundTrip(t *testing.T) {
	for r := rules.Rights(1); r <= rules.ReadWrite; r++ {
		for _, r := range []rules.Rights{r, r | rules.Stage} {
			if got, err := rules.ParseMode(r.String()); err != nil || got != r {
				t.Fatalf("%s: %v, %v", r, got, err)
			}
		}
	}
	if got, _ := rules.ParseMode("stage"); got != rules.ReadWrite|rules.Stage {
		t.Errorf("stage is %d", got)
	}
	for _, bad := range []string{"", "RO", "ro,rw", "rw,stage", "read ", "none"} {
		if r, err := rules.ParseMode(bad); err == nil {
			t.Errorf("mode %q accepted as %v", bad, r)
		}
	}
}

// An approval may stage a root that was asked for as writable. It never makes a root writable
// that was asked for as staged.
func TestStagedIsNarrower(t *testing.T) {
	for _, tt := range []struct {
		have, than rules.Rights
		want       bool
	}{
		{rules.ReadWrite | rules.Stage, rules.ReadWrite, false},
		{rules.ReadWrite, rules.ReadWrite | rules.Stage, true},
		{rules.Write | rules.Read, rules.ReadWrite | rules.Stage, true},
		{rules.ReadOnly, rules.ReadWrite | rules.Stage, false},
		{rules.ReadWrite | rules.Stage, rules.ReadOnly, true},
		{rules.ReadWrite | rules.Stage, rules.ReadWrite | rules.Stage, false},
	} {
		if got := tt.have.WiderThan(tt.than); got != tt.want {
			t.Errorf("%v is wider than %v: %v", tt.have, tt.than, got)
		}
	}
}

// R162: an operation lacks the rights that its row and arguments need and the root does not
// have. If the row says so, any of several rights is enough. The right to write includes the
// right to append. An operation without a row is refused.
func TestLacked(t *testing.T) {
	for _, c := range []struct {
		op          names.Op
		extra, have rules.Rights
		want        rules.Rights
	}{
		{names.OpRead, 0, rules.Read, 0},
		{names.OpRead, 0, rules.ReadWrite &^ rules.Read, rules.Read},
		{names.OpLookup, 0, rules.Watch, 0},
		{names.OpLookup, 0, 0, rules.ReadWrite},
		{names.OpWrite, 0, rules.Create, 0},
		{names.OpWrite, 0, rules.ReadOnly, rules.Write | rules.Append | rules.Create},
		{names.OpWrite, rules.Write, rules.Append, rules.Write},
		{names.OpWrite, rules.Append, rules.Write, 0},
		{names.OpOpen, rules.Read | rules.Write, rules.Read, rules.Write},
		{names.OpUnlink, 0, rules.ReadWrite &^ rules.Delete, rules.Delete},
		{names.OpRename, rules.Delete, rules.Rename, rules.Delete},
		{names.OpRename, rules.Delete, rules.Rename | rules.Delete, 0},
		{names.OpLookup, 0, rules.Stage, rules.ReadWrite}, // Stage is no right
		{names.OpNone, 0, rules.ReadWrite, rules.ReadWrite},
		{names.OpGrant, 0, rules.ReadWrite, rules.ReadWrite},
		{names.Op(255), 0, rules.ReadWrite, rules.ReadWrite},
	} {
		if got := rules.Lacked(c.op, c.extra, c.have); got != c.want {
			t.Errorf("%v with %v, and %v for its arguments, lacks %v, want %v", c.op, c.have, c.extra, got, c.want)
		}
	}
}

// R164: a read-only root refuses with ReadOnly, any other root with Permission. If any of several
// rights would be enough for a write, Plainest returns the right to write.
func TestRefusalOfRights(t *testing.T) {
	for _, c := range []struct {
		lacks, have rules.Rights
		want        names.Kind
	}{
		{rules.Write, rules.ReadOnly, names.ReadOnly},
		{rules.Write, rules.ReadOnly | rules.Create, names.Permission},
		{rules.Read, rules.List, names.Permission},
	} {
		if got := names.Reason(c.lacks.Refusal(c.have)); got != c.want {
			t.Errorf("%v lacking in %v: %v, want %v", c.lacks, c.have, got, c.want)
		}
	}
	if got := rules.Plainest(names.OpWrite, rules.Write|rules.Append|rules.Create); got != rules.Write {
		t.Errorf("for a write the owner should add %v", got)
	}
	if got := rules.Plainest(names.OpRename, rules.Rename|rules.Delete); got != rules.Rename|rules.Delete {
		t.Errorf("for a rename the owner should add %v", got)
	}
}
