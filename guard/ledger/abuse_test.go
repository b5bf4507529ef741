package ledger_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// count counts n refusals, and returns the numbers (from 1) of the refusals that require a report.
func count(o *ledger.Offenders, who rules.Subject, escape bool, n int) (reports []int) {
	for i := range n {
		if why, _ := o.Count(who, escape); why != "" {
			reports = append(reports, i+1)
		}
	}
	return reports
}

// R093: refusals beyond the bound are reported once a minute, and each minute may have as many
// refusals as the bound. The sessions of a subject count together, and each subject by itself.
func TestRefusalsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o ledger.Offenders
		want := func(what string, got []int, want ...int) {
			t.Helper()
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: reports at %v, want %v", what, got, want)
			}
		}
		want("no bound", count(&o, "a", true, 1000))
		o.SetBounds(ledger.Abuse{Escapes: 3, Refusals: 10})
		want("refusals", count(&o, "a#1", false, 10))
		want("another session", count(&o, "a#2", false, 30), 1)
		want("another subject", count(&o, "b", false, 10))
		want("escapes", count(&o, "c", true, 30), 4)
		want("refusals and escapes", count(&o, "d", false, 9))
		want("escapes after refusals", count(&o, "d", true, 3), 2)
		o.SetBounds(ledger.Abuse{Escapes: 3, Refusals: 10})
		want("the same bounds again", count(&o, "b", false, 1), 1)
		time.Sleep(30 * time.Second)
		want("half a minute later", count(&o, "c", false, 6))
		time.Sleep(30 * time.Second)
		want("a minute later", count(&o, "a", false, 30), 11)
		want("more than the bound, half a minute after six refusals", count(&o, "c", false, 6), 6)
		o.SetBounds(ledger.Abuse{Refusals: 2})
		want("other bounds", count(&o, "b", false, 3), 3)
		why, suspend := o.Count("new", false)
		for ; why == ""; why, suspend = o.Count("new", false) {
			synctest.Wait()
		}
		if why != "more than 2 refusals in a minute" || suspend {
			t.Errorf("%q, suspend %v", why, suspend)
		}
	})
}

// If the bounds have Suspend, each refusal beyond the bound requires a suspension.
func TestCountSuspends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o ledger.Offenders
		o.SetBounds(ledger.Abuse{Escapes: 1, Suspend: true})
		for i, want := range []string{"", "more than 1 attempts to leave a root in a minute", "more than 1 attempts to leave a root in a minute"} {
			if why, suspend := o.Count("a", true); why != want || suspend != (want != "") {
				t.Errorf("%d: %q, %v; want %q", i, why, suspend, want)
			}
		}
	})
}

// R093: a suspension applies to one subject with all its sessions, or to one session, until the
// subject or the session is resumed. If a subject is resumed, its refusals are forgotten.
func TestSuspensions(t *testing.T) {
	var o ledger.Offenders
	suspended := func(want map[rules.Subject]bool) {
		t.Helper()
		for who, want := range want {
			if _, got := o.Suspension(who); got != want {
				t.Errorf("%s is suspended: %v", who, got)
			}
		}
	}
	suspended(map[rules.Subject]bool{"a": false})
	if !o.Suspend("b#1", "one") || !o.Suspend("a", "all") || o.Suspend("a", "again") {
		t.Error("a suspension began twice, or not at all")
	}
	suspended(map[rules.Subject]bool{"a": true, "a#1": true, "b": false, "b#1": true, "b#2": false, "": false})
	if of, _ := o.Suspension("a#1"); of.Subject != "a" || of.Why != "all" || of.Since.IsZero() {
		t.Errorf("%+v", of)
	}
	if list := o.Suspended(); len(list) != 2 || list[0].Subject != "a" || list[1].Subject != "b#1" {
		t.Errorf("%+v", list)
	}
	o.Resume("a")
	suspended(map[rules.Subject]bool{"a": false, "b#1": true})
	o.SetBounds(ledger.Abuse{Refusals: 1, Suspend: true})
	if got := count(&o, "b#1", false, 2); len(got) != 1 {
		t.Fatal(got)
	}
	o.Resume("b")
	if got := count(&o, "b", false, 1); got != nil {
		t.Errorf("the refusals of a resumed subject still count: %v", got)
	}
	o.Resume("b#1")
	if list := o.Suspended(); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

// When too many subjects have been refused, the earlier counts are forgotten. So the memory for the
// counts is bounded.
func TestOffendersAreBounded(t *testing.T) {
	var o ledger.Offenders
	o.SetBounds(ledger.Abuse{Refusals: 1})
	_, _ = o.Count("first", false)
	for i := range 5000 {
		_, _ = o.Count(rules.Subject(fmt.Sprint("s", i)), false)
	}
	if got := count(&o, "first", false, 1); got != nil {
		t.Errorf("the count of the first of 5000 subjects was kept: %v", got)
	}
}
