package ledger_test

import (
	"testing"

	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// A root for one use admits one use: an opening until the last open file is closed, or another
// operation until its end. Only the subject that opened the file can use the open file, and only
// through the same front end.
func TestOnce(t *testing.T) {
	opened := ledger.Use{Op: names.OpOpen, Subject: "a", Via: rules.ViaFUSE}
	other := opened
	other.Subject = "b"
	elsewhere := opened
	elsewhere.Via = rules.ViaFiles
	admit := func(o *ledger.Once, u ledger.Use, began bool, kind names.Kind) {
		t.Helper()
		got, err := o.Admit(u)
		if got != began || (err == nil) != (kind == 0) || err != nil && names.Reason(err) != kind {
			t.Errorf("%v of %q: began %v, %v; want %v, %v", u.Op, u.Subject, got, err, began, kind)
		}
	}
	of := func(u ledger.Use, op names.Op) ledger.Use { u.Op = op; return u }
	state := func(o *ledger.Once, want string) {
		t.Helper()
		if got := o.State(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}

	var o ledger.Once
	admit(&o, of(opened, names.OpGetattr), false, 0)
	admit(&o, of(opened, names.OpWatch), false, names.Permission)
	dry := opened
	dry.Dry = true
	admit(&o, dry, false, 0)
	state(&o, "unused")
	admit(&o, opened, true, 0)
	state(&o, "in use")
	admit(&o, of(opened, names.OpRead), false, names.Permission) // nothing is open yet
	if o.End(false) {
		t.Error("a use that did not count is over")
	}
	state(&o, "unused")

	admit(&o, opened, true, 0)
	o.AddOpen()
	o.AddOpen()
	if o.End(true) {
		t.Error("the use is over while a file is open")
	}
	admit(&o, of(opened, names.OpRead), false, 0)
	admit(&o, of(other, names.OpRead), false, names.Permission)
	admit(&o, of(elsewhere, names.OpRead), false, names.Permission)
	admit(&o, opened, false, names.Permission) // a second opening is a second use
	quiet := opened
	quiet.Quiet = true
	admit(&o, quiet, false, 0) // a step of another operation
	if o.RemoveOpen() || !o.RemoveOpen() || o.RemoveOpen() {
		t.Error("the use is not over exactly when the last file is closed")
	}
	state(&o, "used")
	admit(&o, of(opened, names.OpRead), false, names.Revoked)
	admit(&o, of(opened, names.OpGetattr), false, 0)

	var whole ledger.Once
	admit(&whole, of(opened, names.OpReplace), true, 0)
	admit(&whole, of(opened, names.OpRead), false, names.Permission)
	if !whole.End(true) {
		t.Error("an operation that opens nothing is not the whole use")
	}
	admit(&whole, opened, false, names.Revoked)
}
