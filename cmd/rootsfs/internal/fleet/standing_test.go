package fleet

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func newTestKey(t testing.TB) *Key {
	t.Helper()
	k, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// A signature is valid only for one fleet, one kind of document and one body, and only if its key may
// sign that document.
func TestSealDomains(t *testing.T) {
	k, other := newTestKey(t), newTestKey(t)
	data, err := seal(k, "acme-a", kindStanding, Standing{For: "m", Number: 1})
	if err != nil {
		t.Fatal(err)
	}
	owner := func(by string) bool { return by == k.Public() }
	var s Standing
	if by, err := openSigned(data, "acme-a", kindStanding, owner, &s); err != nil || by != k.Public() || s.Number != 1 {
		t.Fatalf("the document itself: %+v, %v", s, err)
	}
	edit := func(change func(*sealed)) []byte {
		var e sealed
		if err := json.Unmarshal(data, &e); err != nil {
			t.Fatal(err)
		}
		change(&e)
		out, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	seal := func(v any) []byte {
		out, err := seal(k, "acme-a", kindStanding, v)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for what, c := range map[string]struct {
		data        []byte
		fleet, kind string
	}{
		"another fleet":                     {data, "acme-b", kindStanding},
		"another kind":                      {data, "acme-a", kindLease},
		"the kind as part of the fleet":     {data, "acme-a " + kindStanding, ""},
		"another body":                      {edit(func(e *sealed) { e.Body = []byte(`{"for":"m","n":2,"at":"2026-11-29T09:00:00Z"}`) }), "acme-a", kindStanding},
		"another signer":                    {edit(func(e *sealed) { e.By = other.Public() }), "acme-a", kindStanding},
		"no signature":                      {edit(func(e *sealed) { e.Sig = nil }), "acme-a", kindStanding},
		"a part of a key":                   {edit(func(e *sealed) { e.By = e.By[:20] }), "acme-a", kindStanding},
		"an unknown field":                  {seal(json.RawMessage(`{"for":"m","n":1,"x":1}`)), "acme-a", kindStanding},
		"a duplicate field in the body":     {seal(json.RawMessage(`{"for":"m","n":1,"n":2}`)), "acme-a", kindStanding},
		"a duplicate field around the body": {[]byte(strings.Replace(string(data), `"by":`, `"body":"e30=","by":`, 1)), "acme-a", kindStanding},
		"data after the document":           {append(append([]byte{}, data...), "{}"...), "acme-a", kindStanding},
		"too long":                          {append([]byte(strings.Repeat(" ", maxSealed)), data...), "acme-a", kindStanding},
	} {
		if _, err := openSigned(c.data, c.fleet, c.kind, owner, new(Standing)); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

// However a bus changes a document, a reader gets the signed body or an error.
func FuzzOpen(f *testing.F) {
	k := newTestKey(f)
	want := Standing{For: "m", Number: 7, Locked: "x"}
	data, err := seal(k, "acme-a", kindStanding, want)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(strings.Replace(string(data), `"by"`, `"By"`, 1)))
	f.Add([]byte(`{"body":"e30=","by":"` + k.Public() + `","sig":""}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got Standing
		if _, err := openSigned(data, "acme-a", kindStanding, func(by string) bool { return by == k.Public() }, &got); err != nil {
			return
		}
		if got.For != want.For || got.Number != want.Number || got.Locked != want.Locked || got.Revoked != nil {
			t.Errorf("%+v was not signed", got)
		}
	})
}

// For a machine that has missed orders, every revocation in these orders is due, or the machine has to
// end everything. No revocation that the machine has carried out is due again: it would also end later
// grants.
func TestMissedRevocationsAreDue(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var s Standing
	var given []Revocation
	applied := make([]uint64, 4) // the last order that each machine has carried out
	done := make([]int, 4)       // how many of given each machine has carried out
	for i := range 1000 {
		next, err := s.next(allMachines, nextNumber(s.Number), func(n *Standing) {
			if r.IntN(4) > 0 {
				n.Revoked = append(n.Revoked, Revocation{Number: n.Number, Root: fmt.Sprint(strings.Repeat("r", r.IntN(250)), i)})
				given = append(given, n.Revoked[len(n.Revoked)-1])
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if next.Number <= s.Number {
			t.Fatalf("the number %d follows %d", next.Number, s.Number)
		}
		s = next
		m := r.IntN(200) // a machine misses about 200 orders between two that it carries out
		if m >= len(applied) {
			continue
		}
		due := map[uint64]bool{}
		all := false
		for _, d := range s.due(applied[m]) {
			due[d.Number], all = true, all || d.All
		}
		for j, g := range given {
			switch missed := j >= done[m]; {
			case missed && !due[g.Number] && !all:
				t.Fatalf("order %d was missed, and is not due to the machine that has carried out order %d", g.Number, applied[m])
			case !missed && due[g.Number]:
				t.Fatalf("order %d is due twice", g.Number)
			}
		}
		applied[m], done[m] = s.Number, len(given)
		if again := s.due(applied[m]); len(again) > 0 {
			t.Fatalf("%v is due twice", again)
		}
	}
}

// An order is refused unless an owner has signed it for this machine, and it is well-formed.
func TestStandingRefused(t *testing.T) {
	owner, keeper := newTestKey(t), newTestKey(t)
	c := &Charter{Fleet: "acme-a", Number: 1, Owners: []string{owner.Public()}, Keepers: []string{keeper.Public()}}
	good := Standing{For: "m", Number: 5, Since: 2, Revoked: []Revocation{{Number: 3, All: true}, {Number: 5, Session: "s", Root: "r"}}}
	many := make([]Revocation, maxRevoked+1)
	for i := range many {
		many[i] = Revocation{Number: uint64(i + 1), All: true}
	}
	for what, x := range map[string]struct {
		by    *Key
		order Standing
		ok    bool
	}{
		"valid":                        {owner, good, true},
		"by the keeper":                {keeper, good, false},
		"for another machine":          {owner, Standing{For: "m2", Number: 5}, false},
		"for all":                      {owner, Standing{For: allMachines, Number: 5}, false},
		"no number":                    {owner, Standing{For: "m"}, false},
		"a later revocation":           {owner, Standing{For: "m", Number: 5, Revoked: []Revocation{{Number: 6, All: true}}}, false},
		"not in order":                 {owner, Standing{For: "m", Number: 5, Revoked: []Revocation{{Number: 3, All: true}, {Number: 2, All: true}}}, false},
		"a revocation not after Since": {owner, Standing{For: "m", Number: 5, Since: 3, Revoked: []Revocation{{Number: 3, All: true}}}, false},
		"nothing to revoke":            {owner, Standing{For: "m", Number: 5, Revoked: []Revocation{{Number: 3, Session: "s"}}}, false},
		"two things":                   {owner, Standing{For: "m", Number: 5, Revoked: []Revocation{{Number: 3, All: true, Net: true}}}, false},
		"a bad session name":           {owner, Standing{For: "m", Number: 5, Revoked: []Revocation{{Number: 3, Session: "../s", All: true}}}, false},
		"too many":                     {owner, Standing{For: "m", Number: 99, Revoked: many}, false},
	} {
		data, err := seal(x.by, c.Fleet, kindStanding, x.order)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := openStanding(data, c, "m"); (err == nil) != x.ok {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The successor of a charter has the next number and is signed by one of the owners of the
// charter.
func TestCharterSuccession(t *testing.T) {
	first, second, keeper := newTestKey(t), newTestKey(t), newTestKey(t)
	c := &Charter{Fleet: "acme-a", Number: 3, Owners: []string{first.Public()}, Keepers: []string{keeper.Public()}}
	good := Charter{Fleet: "acme-a", Number: 4, Owners: []string{second.Public()}, Keepers: []string{keeper.Public()}}
	with := func(change func(*Charter)) Charter { n := good; change(&n); return n }
	for what, x := range map[string]struct {
		by   *Key
		next Charter
		ok   bool
	}{
		"the next":         {first, good, true},
		"by a new owner":   {second, good, false},
		"by a keeper":      {keeper, good, false},
		"the same number":  {first, with(func(n *Charter) { n.Number = 3 }), false},
		"a number skipped": {first, with(func(n *Charter) { n.Number = 5 }), false},
		"of another fleet": {first, with(func(n *Charter) { n.Fleet = "acme-b" }), false},
		"without an owner": {first, with(func(n *Charter) { n.Owners = nil }), false},
		"without a keeper": {first, with(func(n *Charter) { n.Keepers = nil }), false},
		"with too many owners": {first, with(func(n *Charter) {
			for range maxParties {
				n.Owners = append(n.Owners, second.Public())
			}
		}), false},
	} {
		data, err := seal(x.by, "acme-a", kindCharter, x.next)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.openSuccessor(data); (err == nil) != x.ok {
			t.Errorf("%s: %v", what, err)
		}
	}
}
