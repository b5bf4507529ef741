package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard/audit"
)

// The orders that an agent carries out are in the machine's audit log: with their number, the
// owner's key, the roots that ended, and the lock and its end.
func TestActsAreOnRecord(t *testing.T) {
	l := newLab(t)
	p := l.puppet("m1")
	dir := t.TempDir()
	anchor := filepath.Join(t.TempDir(), "anchor")
	log, err := audit.Open(audit.Options{Dir: dir, Session: RecordsSession, Anchor: anchor})
	l.must(err)
	p.record = log.Record
	l.must(p.ask())
	revoked := l.give(Order{Revoke: []Revocation{{All: true}}, Lock: "fire"}, 10*time.Second).Machines[0].Number
	unlocked := l.give(Order{Unlock: true}, 10*time.Second).Machines[0].Number
	l.must(log.Close())
	report, err := audit.Verify(dir, RecordsSession, anchor)
	l.must(err)
	if !report.OK || !report.Anchored {
		t.Errorf("the chain: %+v", report)
	}
	files, err := audit.Files(dir, RecordsSession)
	l.must(err)
	var got []string
	l.must(audit.Read(files, audit.Filter{}, func(e audit.Entry) error {
		if e.Op != "session" {
			got = append(got, fmt.Sprintf("%s %s%s: %s", e.Op, e.Root, e.Reason, e.Detail))
			if e.Origin.Raw() != "owner "+keyName(l.owner.key.Public()) {
				t.Errorf("%s is by %s", e.Op, e.Origin)
			}
		}
		return nil
	}))
	owner := keyName(l.owner.key.Public())
	first, second := fmt.Sprintf("order %d for all by owner %s", revoked, owner), fmt.Sprintf("order %d for all by owner %s", unlocked, owner)
	want := []string{
		"set : " + first + "; roots ended: 1", "revoke code: session s: revoked; " + first, "pause fire: locked: fire; " + first,
		"resume : unlocked; " + second, "set : " + second + "; roots ended: 0",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the records are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A revocation is carried out even if it cannot be recorded, but then the machine gets no new lease.
// An unlock takes effect only when it is on record.
func TestNoLeaseWithoutRecords(t *testing.T) {
	l := newLab(t)
	p := l.puppet("m1")
	l.must(p.ask())
	until := p.lease.Until
	p.failRecords(errors.New("the disk is full"))
	if out := l.give(revokeAll, 200*time.Millisecond); out.Done() {
		t.Errorf("reported as done: %+v", out)
	}
	if did := p.takeActions(); !strings.Contains(did, "revoke true") {
		t.Errorf("not carried out: %s", did)
	}
	if err := p.ask(); err == nil || !strings.Contains(err.Error(), "the disk is full") || p.lease.Until != until {
		t.Errorf("a lease of %v more, %v", time.Duration(p.lease.Until-until), err)
	}
	p.failRecords(nil)
	l.must(p.ask())
	l.give(Order{Lock: "fire"}, 10*time.Second)
	p.failRecords(errors.New("the disk is full"))
	if out := l.give(Order{Unlock: true}, 200*time.Millisecond); out.Done() || p.lease.Locked != "fire" {
		t.Errorf("the lock ends without a record: %+v", out)
	}
	p.failRecords(nil)
	l.must(p.ask())
	if p.lease.Locked != "" {
		t.Error("the lock does not end")
	}
}

// An owner sees whether a machine has carried out the newest order, by comparing the numbers of the
// keeper and of the machine. If the machine has, the owner sees the state that the machine reports.
func TestStatesOfMachines(t *testing.T) {
	session := func(paused ...bool) (all []SessionStatus) {
		for _, is := range paused {
			all = append(all, SessionStatus{Paused: is})
		}
		return all
	}
	newest := map[string]uint64{allMachines: 42, "m": 7}
	done := map[string]uint64{allMachines: 42, "m": 7}
	for want, st := range map[string]*MachineStatus{
		"live":               {Standing: &StandingStatus{Applied: done, LeftMS: 1}, Sessions: session(true, false)},
		"no answer":          nil,
		"behind: 41 of 42":   {Standing: &StandingStatus{Applied: map[string]uint64{allMachines: 41, "m": 7}, LeftMS: 1, Locked: "x"}},
		"behind: 0 of 42":    {Version: "of a time before orders"},
		"behind: 6 of 7":     {Standing: &StandingStatus{Applied: map[string]uint64{allMachines: 42, "m": 6}, LeftMS: 1}},
		"behind":             {Standing: &StandingStatus{Applied: done, Behind: true, LeftMS: 1}},
		`locked: "a\u{1b}b"`: {Standing: &StandingStatus{Applied: done, Locked: "a\x1bb"}},
		"paused":             {Standing: &StandingStatus{Applied: done}},
	} {
		m := Machine{Name: "m", State: MachineNoAnswer, MachineStatus: st}
		if st != nil {
			m.judge(newest)
		}
		if got := m.StateText(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if inOrder := want != "no answer" && !strings.HasPrefix(want, "behind"); m.InOrder() != inOrder {
			t.Errorf("%s: in order: %v", want, m.InOrder())
		}
	}
	m := Machine{Name: "m", MachineStatus: &MachineStatus{Standing: &StandingStatus{Applied: done, LeftMS: 1}, Sessions: session(true, true)}}
	if m.judge(newest); m.State != MachinePaused {
		t.Errorf("all sessions are paused: %s", m.State)
	}
}

// A machine that has not carried out an order counts as behind, by the keeper's number, even if the
// machine knows nothing of the order. The time left of its lease is shown as of now, and not as of
// its last request.
func TestMachinesBehind(t *testing.T) {
	l := newLab(t)
	p := l.puppet("m1")
	l.must(p.ask())
	standing := p.standing
	l.must(p.m.answerStatus(p.bus, func() MachineStatus { return MachineStatus{Standing: standing()} }))
	l.must(p.bus.Conn.Flush())
	look := func() Machine {
		all, err := l.owner.Machines(context.Background(), 10*time.Second)
		l.must(err)
		return all[0]
	}
	first := look()
	if first.State != MachineLive || first.Heard.IsZero() {
		t.Errorf("with a lease: %+v", first)
	}
	time.Sleep(5 * time.Millisecond)
	if again := look(); again.Standing.LeftMS >= first.Standing.LeftMS {
		t.Errorf("the lease has %d ms left, and later %d", first.Standing.LeftMS, again.Standing.LeftMS)
	}
	before := p.standing()
	standing = func() *StandingStatus { return before }
	number := l.give(revokeAll, 10*time.Second).Machines[0].Number
	for _, what := range []string{"the owner's and the keeper's", "the keeper's"} {
		if m := look(); m.State != MachineBehind || m.Behind == nil || m.Behind.Newest != number || m.Behind.Applied != 0 {
			t.Errorf("by %s number: %+v, %+v", what, m, m.Behind)
		}
		l.must(os.RemoveAll(l.owner.copies.dir)) // from now on only the keeper has the number
	}
	standing = p.standing
	if m := look(); m.State != MachineLive {
		t.Errorf("with the order: %+v", m)
	}
}

// A removal applies to one membership. If the bus repeats the removal after the machine has joined
// again with the same key, the machine stays.
func TestReplayedRemoval(t *testing.T) {
	l := newLab(t)
	m := l.join("laptop")
	recs, err := l.owner.list(context.Background())
	l.must(err)
	removal, err := seal(l.owner.key, l.owner.Names.ID, kindRemove, request[removeRequest]{"1", removeRequest{"laptop", recs[0].Signing, recs[0].Invite}})
	l.must(err)
	send := func() error {
		got, err := l.owner.Bus.request(context.Background(), l.owner.Names.removals(), removal)
		l.must(err)
		_, err = readReply[struct{}](got, l.owner.Names.ID, kindRemove, "1", l.owner.Charter.isKeeper)
		return err
	}
	l.must(send())
	tok, err := decodeToken(l.invite("laptop"))
	l.must(err)
	public, _, err := newConnectionKey()
	l.must(err)
	_, _, err = tok.ask(context.Background(), m.key, public)
	l.must(err)
	if err := send(); err == nil || !strings.Contains(err.Error(), "no machine laptop with this key and invite") {
		t.Errorf("the removal, once more: %v", err)
	}
	if recs, err = l.owner.list(context.Background()); err != nil || len(recs) != 1 {
		t.Errorf("the machine that has joined again: %v, %v", recs, err)
	}
}
