package fleet

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// A keeper, or an owner who is removed later, cannot use up the numbers of orders: the other owners
// still give orders that keepers and machines take.
func TestNumbersAreNotUsedUp(t *testing.T) {
	owner := newTestKey(t)
	c := &Charter{Fleet: "acme-aaaaaaaaaaaa", Number: 1, Owners: []string{owner.Public()}, Keepers: []string{"a", "b", "c"}}
	far := uint64(math.MaxUint64) - 1
	var honest [2]*keeper
	for i := range honest {
		honest[i] = newTestKeeper(t, c, owner)
	}
	o := &Owner{Names: Names{c.Fleet}, Charter: c, key: owner, copies: store{t.TempDir()}}
	misses := 0 // requests that one of the honest keepers does not hear
	o.order = func(_ context.Context, q orderRequest) (map[string]orderAnswer, error) {
		q.Charter = c.Number
		got := answers[orderAnswer]{of: map[string]orderAnswer{"c": {Promised: promise{far, "X"}}}}
		for i, k := range honest {
			if i == 1 && misses > 0 {
				misses--
				continue
			}
			a, err := k.order(q)
			if err != nil {
				got.refused = err
				continue
			}
			got.of[c.Keepers[i]] = a
		}
		return got.of, got.requireMajority(c)
	}
	for i := range 3 {
		misses = 1
		h, err := o.place(t.Context(), allMachines, (&Order{Lock: fmt.Sprint("fire ", i)}).change)
		if err != nil || !isUsable(h.Number) {
			t.Fatalf("order %d: number %d, %v", i, h.Number, err)
		}
	}
	// The owner's key is stolen.
	for what, forged := range map[string]Standing{
		"the highest number":       {For: allMachines, Number: math.MaxUint64},
		"a Since above its number": {For: allMachines, Number: nextNumber(o.number(t)), Since: far},
	} {
		data, err := seal(owner, c.Fleet, kindStanding, forged)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := newer(data, c, allMachines, signedOrder{}); err == nil {
			t.Errorf("a machine takes an order with %s", what)
		}
		if _, err := honest[0].order(orderRequest{Charter: 1, For: allMachines, Order: data, Kept: true}); err == nil {
			t.Errorf("a keeper takes an order with %s", what)
		}
	}
	if _, err := honest[0].order(orderRequest{Charter: 1, For: allMachines, Promise: far, Attempt: "Y"}); err == nil {
		t.Error("a keeper promises a number after which hardly any number is left")
	}
	if next := (&CeilingText{Number: math.MaxUint64}).next("x"); next.Number == 0 {
		t.Error("no ceiling comes after the one with the highest number")
	}
}

// number returns the number of the owner's newest order for all machines.
func (o *Owner) number(t *testing.T) uint64 {
	h, err := o.copies.load(o.Charter, allMachines)
	if err != nil {
		t.Fatal(err)
	}
	return h.Number
}

// One of several keepers cannot lock a machine out of the other keepers by sending the machine a false
// record.
func TestEnrolmentOfAHostileKeeper(t *testing.T) {
	l := newLab(t)
	p := l.puppet("m1")
	keeper := l.server.keeperKey(t)
	right := machineRecord{Name: "m1", Signing: p.m.key.Public(), Invite: strings.Repeat("A", 26)}
	for what, change := range map[string]func(*machineRecord){
		"":                   func(*machineRecord) {},
		"of another machine": func(r *machineRecord) { r.Name = "m2" },
		"of another key":     func(r *machineRecord) { r.Signing = keeper.Public() },
		"that is too long":   func(r *machineRecord) { r.Connection = strings.Repeat("x", maxEnrolment) },
	} {
		rec := right
		change(&rec)
		data, err := seal(keeper, p.m.ID, kindEnrolment, rec)
		l.must(err)
		p.m.enrolment = nil
		l.must(p.enrol(map[string]leaseAnswer{keeper.Public(): {Enrolment: data}}))
		if (p.m.enrolment != nil) != (what == "") {
			t.Errorf("a record %s is kept: %v", what, p.m.enrolment != nil)
		}
	}
	first, err := seal(keeper, p.m.ID, kindEnrolment, right)
	l.must(err)
	p.m.enrolment = first
	other := right
	other.Invite = strings.Repeat("B", 26)
	data, err := seal(keeper, p.m.ID, kindEnrolment, other)
	l.must(err)
	l.must(p.enrol(map[string]leaseAnswer{keeper.Public(): {Enrolment: data}}))
	if !slices.Equal(p.m.enrolment, first) {
		t.Error("a good record is replaced")
	}
}

// One of three keepers cannot give a machine's name to another key in order to answer in the machine's
// place. It cannot hide a machine either.
func TestMachinesOfAHostileKeeper(t *testing.T) {
	machine := machineRecord{Name: "m1", Signing: "right", Invite: "A"}
	right := keeperState{Machines: []machineRecord{machine}}
	forged := machine
	forged.Signing = "forged"
	evil := keeperState{Machines: []machineRecord{forged}, Removed: []string{"A", "A"}}
	o := &Owner{Charter: &Charter{Keepers: []string{"a", "b", "c"}}, dir: ownerDir(t.TempDir())}
	for what, x := range map[string]struct {
		state map[string]keeperState
		key   string
	}{
		"two honest keepers answer":       {map[string]keeperState{"a": evil, "b": right, "c": right}, "right"},
		"one honest keeper answers":       {map[string]keeperState{"a": evil, "b": right}, ""},
		"one keeper alone knows it":       {map[string]keeperState{"a": right, "b": {}}, "right"},
		"two keepers know of its removal": {map[string]keeperState{"a": evil, "b": {Removed: []string{"A"}}, "c": right}, "gone"},
	} {
		list := merge(x.state, o.removed(x.state))
		key := "gone"
		if len(list) > 0 {
			key = list[0].Signing
		}
		if key != x.key {
			t.Errorf("%s: the key of the machine is %q, want %q", what, key, x.key)
		}
	}
}

// A machine does not follow a keeper that brings the charter of a former owner, in whatever order the
// machine looks at the answers.
func TestCharterOfAHostileKeeper(t *testing.T) {
	owner, former := newTestKey(t), newTestKey(t)
	c := Charter{Fleet: "acme-a", Number: 1, Owners: []string{owner.Public(), former.Public()}, Keepers: []string{"a", "b", "c"}}
	next := c
	next.Number, next.Owners = 2, []string{owner.Public()}
	right, err := seal(owner, c.Fleet, kindCharter, next)
	if err != nil {
		t.Fatal(err)
	}
	next.Owners, next.Keepers = []string{former.Public()}, []string{"a", "b", "evil"}
	fork, err := seal(former, c.Fleet, kindCharter, next)
	if err != nil {
		t.Fatal(err)
	}
	for what, x := range map[string]struct {
		brought map[string][]byte
		want    string
	}{
		"two others bring the right one": {map[string][]byte{"a": fork, "b": right, "c": right}, string(right)},
		"one other brings the right one": {map[string][]byte{"a": fork, "b": right}, ""},
		"no keeper brings the false one": {map[string][]byte{"a": nil, "b": right}, string(right)},
	} {
		of := map[string]leaseAnswer{}
		for by, data := range x.brought {
			if of[by] = (leaseAnswer{}); data != nil {
				of[by] = leaseAnswer{Charters: [][]byte{data}}
			}
		}
		for range 8 { // maps have no order
			got, err := c.successor(of)
			if string(got) != x.want || (err == nil) != (x.want != "") {
				t.Fatalf("%s: the machine follows %s: %v", what, got, err)
			}
		}
	}
}

// A keeper that answers again and again that it lacks orders cannot make a machine ask without a pause,
// which would load all keepers.
func TestMissingOrdersAreBroughtOnce(t *testing.T) {
	a := &agent{m: &Member{Machine: "m1"}, wake: make(chan struct{}, 1), known: map[string]signedOrder{}}
	for _, brought := range []bool{false, true} {
		a.sentMissing = brought
		if _, err := a.leaseOf(leaseAnswer{Missing: []string{allMachines}}); err == nil {
			t.Error("the machine accepts a lease from a keeper that lacks orders")
		}
		select {
		case <-a.wake:
			if brought {
				t.Error("the machine asks at once, though it has just sent the orders")
			}
		default:
			if !brought {
				t.Error("the machine does not ask at once, to send the orders that the keeper lacks")
			}
		}
	}
}
