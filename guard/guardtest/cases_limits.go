package guardtest

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
)

// limitCases are about the other bounds of a grant, apart from rights and patterns: quotas,
// speed, its subject, earlier refusals of the subject, pauses, and idleness.
func limitCases() []Case {
	var all []Case
	for _, group := range [][]Case{quotaCases(), nestedLimitCases(), speedCases(), subjectCases(), suspendedCases(), pausedCases(), idleCases()} {
		all = append(all, group...)
	}
	return all
}

// The quotas of quotaCases and nestedLimitCases.
var maxFile, maxWritten, maxCreated = guard.Limits{MaxFile: 10}, guard.Limits{MaxWritten: 10}, guard.Limits{MaxCreated: 2}

// beyond returns a case whose call exceeds maxWritten or maxCreated after the steps.
func beyond(call Call, steps ...Call) Case {
	return Case{Steps: steps, Call: call, Want: names.Quota}
}

// tooLarge returns a case whose call exceeds maxFile.
func tooLarge(call Call) Case { return Case{Call: call, Want: names.Quota, Errno: unix.EFBIG} }

// quotaCases: R055, R077, R193: how much may be written and created in a root. Quotas are
// exact. Names that are not created are not charged. Removing a file refunds nothing.
func quotaCases() []Case {
	tree := []string{"a=hello", "sub/b=x", "empty/"}
	row := func(name string, lim guard.Limits, c Case) Case {
		c.Name, c.Req, c.Tree, c.Policy.Limits = "quota/"+name, "R193", tree, lim
		c.Unguarded = c.Want != 0
		return c
	}
	return []Case{
		row("largest-file", maxFile, Case{Call: write("code/a", "0123456789"), Check: func(e *Env) { e.Contents(e.Src+"/a", "0123456789") }}),
		row("a-larger-file", maxFile, tooLarge(write("code/a", "0123456789x"))),
		row("a-larger-new-file", maxFile, tooLarge(write("code/new", "0123456789x"))),
		row("appended-too-large", maxFile, tooLarge(appendTo("code/a", "56789x"))),
		row("lengthened-too-large", maxFile, tooLarge(truncate("code/a", 11))),
		row("bytes-up-to-the-limit", maxWritten, Case{Steps: []Call{write("code/a", "01234")}, Call: write("code/new", "56789"),
			Check: func(e *Env) { e.Contents(e.Src+"/new", "56789") }}),
		row("bytes-beyond-the-limit", maxWritten, beyond(write("code/new", "6"), write("code/a", "0123456789"))),
		row("bytes-appended-beyond-the-limit", maxWritten, beyond(appendTo("code/a", "6"), appendTo("code/a", "0123456789"))),
		row("bytes-are-not-refunded", maxWritten, beyond(write("code/new", "6"), write("code/a", "0123456789"), remove("code/a"))),
		row("reading-is-free", maxWritten, Case{Steps: []Call{write("code/a", "0123456789")}, Call: read("code/a", "0123456789")}),
		row("names-up-to-the-limit", maxCreated, Case{Steps: []Call{mkdir("code/x")}, Call: write("code/new", "")}),
		row("directories-beyond-the-limit", maxCreated, beyond(mkdir("code/z"), mkdir("code/x"), mkdir("code/y"))),
		row("files-beyond-the-limit", maxCreated, beyond(write("code/z", "z"), write("code/x", "x"), write("code/y", "y"))),
		row("links-beyond-the-limit", maxCreated, beyond(link("code/a", "code/z"), symlink("a", "code/x"), link("code/a", "code/y"))),
		row("names-are-not-refunded", maxCreated, beyond(mkdir("code/z"), mkdir("code/x"), remove("code/x"), mkdir("code/x"))),
		row("failed-creation-is-not-charged", maxCreated, Case{Call: mkdir("code/y"), Prepare: func(e *Env) {
			for range 3 {
				if e.Front.Mkdir("code/sub") == nil {
					e.Error("mkdir of an existing directory succeeded")
				}
			}
			e.Must(e.Front.Mkdir("code/x"))
		}}),
		row("renaming-is-not-charged", maxCreated, Case{Steps: []Call{rename("code/a", "code/b"), rename("code/b", "code/c"), rename("code/c", "code/d")}, Call: mkdir("code/y")}),
	}
}

// nestedLimitCases: the quotas of a nested root also hold for operations that come through its outer
// root. They do not hold for files of the outer root that lie beside the nested one. An operation in
// the nested root counts as a use of both roots.
func nestedLimitCases() []Case {
	row := func(name string, lim guard.Limits, c Case) Case {
		c.Name, c.Req, c.Tree, c.More, c.MoreLimits = "nested-limit/"+name, "R193", []string{"a=hello", "sub/f=inner"}, map[string]string{"in": "sub"}, lim
		c.Unguarded = c.Want != 0
		return c
	}
	return []Case{
		row("largest-file", maxFile, Case{Call: write("code/sub/new", "0123456789")}),
		row("a-larger-file", maxFile, tooLarge(write("code/sub/f", "0123456789x"))),
		row("a-larger-new-file", maxFile, tooLarge(write("code/sub/new", "0123456789x"))),
		row("lengthened-too-large", maxFile, tooLarge(truncate("code/sub/f", 11))),
		row("a-larger-file-beside", maxFile, Case{Call: write("code/a", "0123456789x")}),
		row("bytes-beyond-the-limit", maxWritten, beyond(write("code/sub/f", "6"), write("code/sub/new", "01234"), write("in/new2", "56789"))),
		row("bytes-beside", maxWritten, Case{Steps: []Call{write("code/sub/new", "0123456789")}, Call: write("code/a", "0123456789x")}),
		row("directories-beyond-the-limit", maxCreated, beyond(mkdir("code/sub/z"), mkdir("code/sub/x"), mkdir("in/y"))),
		row("files-beyond-the-limit", maxCreated, beyond(write("code/sub/z", "z"), write("code/sub/x", "x"), write("in/y", "y"))),
		row("links-beyond-the-limit", maxCreated, beyond(symlink("f", "code/sub/z"), symlink("f", "code/sub/x"), symlink("f", "in/y"))),
		row("names-beside", maxCreated, Case{Steps: []Call{mkdir("code/sub/x"), mkdir("code/sub/y")}, Call: mkdir("code/z")}),
		row("use-of-both", guard.Limits{Idle: time.Hour}, Case{Call: read("code/sub/f", "inner"), Check: wasUsed("in")}),
	}
}

// wasUsed returns a Case.Check that a root was used.
func wasUsed(root string) func(e *Env) {
	return func(e *Env) {
		if st, ok := e.Reg.Lookup(e.RootName(root)); !ok || st.LastUse.IsZero() {
			e.Errorf("last use of %s: %+v", root, st)
		}
	}
}

// speedCases: operations beyond the speed of a root are refused when they would have to wait
// for too long.
func speedCases() []Case {
	tree := []string{"a=hello", "sub/b=x"}
	slow := guard.Policy{Limits: guard.Limits{OpsPerSecond: 1e-6, Burst: 1}}
	var all []Case
	for _, c := range []Call{read("code/a", whatever), write("code/a", "x"), mkdir("code/new"), list("code/sub"), stat("code/sub/b")} {
		all = append(all, Case{Name: "speed/" + c.Text, Req: "R061", Tree: tree, Policy: slow, Call: c, Want: names.Rate, Unguarded: true,
			Disturb: func(e *Env) { _, _ = e.Front.Stat("code/a") }}) // the one operation that need not wait
	}
	return all
}

// suspendedCases: a subject that was refused too often is refused everything.
func suspendedCases() []Case {
	p := patterns(guard.Patterns{Protect: guard.Texts("kept")})
	suspend := func(e *Env) {
		e.Cleanup(func() {
			e.Reg.SetAbuse(ledger.Abuse{})
			e.Must(e.Reg.Resume(e.Subject))
		})
		e.Reg.SetAbuse(ledger.Abuse{Refusals: 1, Suspend: true})
		for range 3 {
			if e.Front.WriteFile("code/kept", []byte("x")) == nil {
				e.Error("a write to the protected file succeeded")
			}
		}
		if !e.Reg.IsSuspended(e.Subject) {
			e.Fatal("the subject is not suspended")
		}
	}
	var all []Case
	for _, c := range append(changes(), read("code/a", whatever), list("code"), stat("code/a")) {
		all = append(all, Case{Name: "suspended/" + c.Text, Req: "R093", Subject: true, Tree: []string{"a=hello", "kept=k", "sub/b=x", "empty/"},
			Policy: p, Call: c, Want: names.Suspended, Unguarded: true, Disturb: suspend})
	}
	return all
}

// pausedCases: a paused session refuses everything to everybody.
func pausedCases() []Case {
	pause := func(e *Env) {
		e.Cleanup(func() { e.Must(e.Reg.EndPause(guard.PausedByOwner)) })
		e.Must(e.Reg.Pause(context.Background(), guard.PausedByOwner, "lunch"))
	}
	var all []Case
	for _, c := range append(changes(), read("code/a", whatever), list("code"), stat("code/a")) {
		all = append(all, Case{Name: "paused/" + c.Text, Req: "pause", Tree: []string{"a=hello", "kept=k", "sub/b=x", "empty/"},
			Call: c, Want: names.Paused, Unguarded: true, Disturb: pause})
	}
	return all
}

// subjectCases: R006, R127, R162: a caller gets the same answers for the root of another subject
// as for a root that nobody approved. If the caller's own root and a root for everybody have the
// same directory, the rights and patterns of the own root also hold in the root for everybody.
// Each subject has a quota of its own.
func subjectCases() []Case {
	tree := []string{"a=hello", "sub/b=x", "empty/"}
	var all []Case
	for _, c := range append(changes(), read("code/a", whatever), list("code"), stat("code/a")) {
		all = append(all, Case{Name: "subject/another's " + c.Text, Req: "R006", Tree: tree, Whose: Another, Call: c,
			Want: names.NoConsent, Gone: true, Unguarded: true})
	}
	own := func(name string, c Case) Case {
		c.Name, c.Req, c.Tree, c.Subject = "subject/"+name, "R162", tree, true
		return c
	}
	// mine grants the same directory to the front end's subject alone.
	mine := func(p guard.Policy) func(e *Env) {
		return func(e *Env) {
			_, err := e.Reg.Grant(context.Background(), guard.Grant{Root: e.RootName("mine"), Dir: names.Foreign(e.Src), Subject: e.Subject, Origin: "test", Policy: p})
			if e.isUnsupported(err) {
				e.Skip(err)
			}
			e.Must(err)
			e.Cleanup(func() { e.Revoke("mine") })
		}
	}
	readOnly := mine(guard.Policy{Rights: guard.ReadOnly})
	hides := mine(guard.Policy{Rights: guard.ReadWrite, Patterns: guard.Patterns{Hide: guard.Texts("a")}})
	return append(all,
		own("one's-own", Case{Whose: Own, Call: read("code/a", "hello")}),
		own("one's-own-written", Case{Whose: Own, Call: write("code/a", "new"), Check: func(e *Env) { e.Contents(e.Src+"/a", "new") }}),
		own("one's-own-rights-bound-everybody's", Case{Overlaps: true, Prepare: readOnly, Call: write("code/a", "x"), Want: names.ReadOnly, Unguarded: true}),
		own("one's-own-patterns-bound-everybody's", Case{Overlaps: true, Prepare: hides, Call: read("code/a", whatever), Want: names.Hidden, Unguarded: true}),
		own("quota", Case{Prepare: allot(ledger.Quota{MaxWritten: 3}), Steps: []Call{write("code/x", "012")},
			Call: write("code/y", "3"), Want: names.Quota, Unguarded: true}),
		own("quota-of-names", Case{Prepare: allot(ledger.Quota{MaxCreated: 1}), Steps: []Call{mkdir("code/x")},
			Call: mkdir("code/y"), Want: names.Quota, Unguarded: true}),
		own("largest-file", Case{Prepare: allot(ledger.Quota{MaxFile: 3}), Call: write("code/y", "0123"), Want: names.Quota,
			Errno: unix.EFBIG, Unguarded: true}),
		own("another's-quota", Case{Prepare: func(e *Env) {
			e.Reg.SetQuotas(map[guard.Subject]ledger.Quota{another: {MaxWritten: 1}})
			e.Cleanup(func() { e.Reg.SetQuotas(nil) })
		}, Call: write("code/y", "0123"), Check: func(e *Env) { e.Contents(e.Src+"/y", "0123") }}),
	)
}

// allot returns a Case.Prepare that gives the front end's subject the quota q. It adds to q the
// bytes and names that the subject has used in earlier cases.
func allot(q ledger.Quota) func(e *Env) {
	return func(e *Env) {
		e.Reg.SetQuotas(map[guard.Subject]ledger.Quota{e.Subject: q})
		e.Cleanup(func() { e.Reg.SetQuotas(nil) })
		for _, u := range e.Reg.Usage() {
			if u.Subject != e.Subject {
				continue
			}
			if q.MaxWritten > 0 {
				q.MaxWritten += u.Written
			}
			if q.MaxCreated > 0 {
				q.MaxCreated += u.Created
			}
		}
		e.Reg.SetQuotas(map[guard.Subject]ledger.Quota{e.Subject: q})
	}
}

// idleCases: R070: a root that nobody uses for Limits.Idle ends like a revoked one.
func idleCases() []Case {
	tree := []string{"a=hello", "sub/b=x", "empty/"}
	brief := guard.Policy{Limits: guard.Limits{Idle: time.Millisecond}}
	var all []Case
	for _, c := range append(changes(), read("code/a", whatever), list("code"), stat("code/a")) {
		all = append(all, Case{Name: "idle/over " + c.Text, Req: "R070", Tree: tree, Policy: brief, Call: c, Want: names.Revoked, Gone: true,
			Unguarded: true, Disturb: func(e *Env) { e.awaitEnd("code") }})
	}
	return append(all,
		Case{Name: "idle/not-yet", Req: "R070", Tree: tree, Policy: guard.Policy{Limits: guard.Limits{Idle: time.Hour}}, Call: read("code/a", "hello")},
		Case{Name: "idle/use-is-on-record", Req: "R070", Tree: tree, Policy: guard.Policy{Limits: guard.Limits{Idle: time.Hour}},
			Call: read("code/sub/b", "x"), Check: wasUsed("code")})
}

// awaitEnd waits until a root has ended by itself.
func (e *Env) awaitEnd(name string) {
	e.Helper()
	for range 6000 {
		if _, ok := e.Reg.Lookup(e.RootName(name)); !ok {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	e.Fatalf("the root %s has not ended", name)
}
