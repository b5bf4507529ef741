package guard_test

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// A dry run has the same answer as the operation that follows it, for random operations, rights,
// rules and limits: the same refusal by the same rule. The dry run leaves no record, event, charge
// or use. R110.
func TestDryRunAgrees(t *testing.T) {
	const rounds, requests = 250, 40
	for n := range uint64(rounds) {
		rnd := rand.New(rand.NewPCG(n, 7))
		s := newSetup(t, nil)
		s.grant(t, "r", "/src", randomPolicy(rnd))
		if rnd.IntN(3) == 0 {
			s.grant(t, "inner", "/src/sub", randomPolicy(rnd))
		}
		if rnd.IntN(4) == 0 {
			s.SetQuotas(map[guard.Subject]ledger.Quota{"me": {MaxFile: 50, MaxCreated: 3}})
		}
		if rnd.IntN(10) == 0 {
			s.SetAbuse(ledger.Abuse{Refusals: 3, Suspend: true})
		}
		for range requests {
			req := randomRequest(t, rnd)
			before := stateOf(s)
			dry := guard.DryRun{}
			asked := req
			asked.Dry = &dry
			e := dry.Explanation(req.Path, s.judgeOnce(asked))
			if after := stateOf(s); !reflect.DeepEqual(before, after) {
				t.Fatalf("round %d: the dry run of %v %v left something behind: %+v, before %+v", n, req.Op, req.Path, after, before)
			}
			agree(t, &req, &e, s.judgeOnce(req))
		}
		if _, err := s.RevokeAll(bg); err != nil { // also waits until no operation holds a root
			t.Fatal(err)
		}
	}
}

// agree compares the answer of a dry run with the error of the operation.
func agree(t *testing.T, req *guard.Request, e *guard.Explanation, err error) {
	t.Helper()
	var refused *rules.Refusal
	switch byRule := errors.As(err, &refused); {
	case e.Allowed != (err == nil), err != nil && e.Kind != names.Reason(err):
	case byRule && refused.Rule != e.Verdict.Rule:
	case err != nil && !byRule && e.Verdict.Rule != nil:
	default:
		return
	}
	t.Errorf("%v %v with %v: the dry run says %+v, the operation %v", req.Op, req.Path, req.Need, *e, err)
}

// judgeOnce admits a request, judges its name as a resolution does, and ends it.
func (s *setup) judgeOnce(req guard.Request) error {
	l, err := s.Admit(bg, req)
	if err != nil {
		return err
	}
	dir, base := req.Path.Split()
	if err = l.Judge().Dir(dir.Rel()); err == nil && base != "" {
		err = l.Judge().Name(dir.Rel(), base)
	}
	return l.Done(0, err)
}

// registryState is the state that a dry run must not change.
type registryState struct {
	roots     []guard.Status
	usage     []ledger.Usage
	records   int
	events    int
	suspended []ledger.Suspension
}

func stateOf(s *setup) registryState {
	s.mu.Lock()
	events := len(s.events)
	s.mu.Unlock()
	return registryState{s.Roots(), s.Usage(), len(s.rec.All()), events, s.Suspended()}
}

func pick[T any](rnd *rand.Rand, of ...T) T { return of[rnd.IntN(len(of))] }

// randomPolicy returns a policy with random rights, and some rules and limits.
func randomPolicy(rnd *rand.Rand) guard.Policy {
	p := guard.Policy{Rights: 1 + guard.Rights(rnd.IntN(int(guard.ReadWrite)))}
	if rnd.IntN(2) == 0 {
		p.Rights = guard.ReadWrite
	}
	some := func() []rules.Pattern {
		if rnd.IntN(2) == 0 {
			return nil
		}
		return guard.Texts(pick(rnd, "*.sql", "/sub/", "b*", "!a", "/sub/.env", "**/x"))
	}
	p.Patterns = guard.Patterns{Deny: some(), Hide: some(), Protect: some(), Allow: some(), NoDefaults: rnd.IntN(3) == 0}
	if rnd.IntN(2) == 0 {
		p.Limits = guard.Limits{
			MaxFile: pick[int64](rnd, 0, 10, 100), MaxWritten: pick[int64](rnd, 0, 30), MaxCreated: pick[int64](rnd, 0, 2),
			OpsPerSecond: pick(rnd, 0, 0, 0.001), Burst: 5, Timeout: time.Minute,
		}
	}
	return p
}

// randomRequest returns a request for any operation, including one that does not exist.
func randomRequest(t *testing.T, rnd *rand.Rand) guard.Request {
	p := func() guard.Path {
		return path(t, pick(rnd, "r", "r", "r", "inner", "none"), pick(rnd, "", "a", "b", "x.sql", ".env", "sub", "sub/a", "sub/.env", ".git", ".git/hooks", ".git/hooks/x", ".vscode/settings.json"))
	}
	req := guard.Request{
		Caller: guard.Caller{Via: pick(rnd, guard.ViaFUSE, guard.ViaFiles, guard.ViaControl), Subject: pick[guard.Subject](rnd, "", "me")},
		Op:     guard.Op(rnd.IntN(int(names.Ops) + 2)), Path: p(), Need: pick(rnd, 0, 0, guard.Read, guard.Write, guard.Append, guard.Create),
		Names: rnd.Int64N(2), Bytes: pick[int64](rnd, 0, 0, 5, 20), Size: pick[int64](rnd, 0, 0, 20, 200),
		AttributesOnly: rnd.IntN(10) == 0, Quiet: rnd.IntN(5) == 0,
	}
	if rnd.IntN(3) == 0 {
		req.Path2 = p()
	}
	return req
}

// The lease of a dry run runs no call that changes the source, and acquires no lock.
func TestDryRunChangesNothing(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/src", guard.Policy{})
	r := req(t, names.OpRename)
	r.Dry = &guard.DryRun{}
	l, err := s.Admit(bg, r)
	if err != nil {
		t.Fatal(err)
	}
	err = l.Change(func() error { t.Error("the call was run"); return nil })
	wantKind(t, err, names.Internal)
	if _, err := l.Moving(bg); err != nil {
		t.Fatal(err)
	}
	real, err := s.Admit(bg, req(t, names.OpCreate))
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := real.Making(bg) // would wait if Moving had acquired the lock
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if err := errors.Join(real.Done(0, nil), l.Done(0, nil)); err != nil {
		t.Fatal(err)
	}
}
