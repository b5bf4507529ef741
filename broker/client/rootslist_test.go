package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// R180, R183, R212: all pages are read.
func TestPages(t *testing.T) {
	for _, tc := range []struct{ roots, pages int }{{0, 1}, {1, 1}, {50, 1}, {51, 2}, {200, 4}} {
		h := newHost(t, nil)
		var dirs []string
		for i := range tc.roots {
			dirs = append(dirs, fmt.Sprintf("/r%d", i))
		}
		h.setRoots(dirs...)
		var cursors []string
		h.on(wire.RootsList, func(_ context.Context, p json.RawMessage) (any, error) {
			cursors = append(cursors, string(p))
			return h.rootsList(p)
		})
		s, ss, _ := serviceOf(t, h, client.RootsOptions{})
		snap, err := s.Snapshot(bg, ss)
		if err != nil || len(snap.Roots) != tc.roots || len(cursors) != tc.pages {
			t.Errorf("%d roots: %d in %d pages, %v", tc.roots, len(snap.Roots), len(cursors), err)
			continue
		}
		if cursors[0] != "{}" {
			t.Errorf("the first page is asked for with %s", cursors[0])
		}
		for i, d := range dirs {
			if snap.Roots[i].URI != "file://"+d || !snap.Guard.Within(d+"/x") {
				t.Errorf("root %s is lost", d)
			}
		}
	}
}

// R181: the last page has no nextCursor, or one that is null or empty. All three forms are read.
func TestLastPage(t *testing.T) {
	for _, end := range []string{``, `,"nextCursor":null`, `,"nextCursor":""`} {
		h := newHost(t, nil)
		h.on(wire.RootsList, func(_ context.Context, p json.RawMessage) (any, error) {
			if bytes.Contains(p, []byte("second")) {
				return json.RawMessage(`{"roots":[{"uri":"file:///b"}]` + end + `}`), nil
			}
			return json.RawMessage(`{"roots":[{"uri":"file:///a"}],"nextCursor":"second"}`), nil
		})
		s, ss, _ := serviceOf(t, h, client.RootsOptions{})
		snap, err := s.Snapshot(bg, ss)
		if err != nil || len(snap.Roots) != 2 || !snap.Guard.Within("/b/x") || h.count(wire.RootsList) != 2 {
			t.Errorf("%q: %+v, %v, %d pages", end, snap.Roots, err, h.count(wire.RootsList))
		}
	}
}

// R184, R187, R213: a change between pages restarts the reading. A reading ends even if the list
// changes without end, or if a page names itself as the next page.
func TestStaleCursor(t *testing.T) {
	state := func(tag string) (dirs []string) {
		for i := range 120 {
			dirs = append(dirs, fmt.Sprintf("/%s%d", tag, i))
		}
		return dirs
	}
	for _, tc := range []struct {
		name    string
		changes int
		ok      bool
	}{{"one change", 1, true}, {"four", 4, true}, {"without end", 1000, false}} {
		h := newHost(t, nil)
		h.setRoots(state("a")...)
		n := 0
		h.on(wire.RootsList, func(_ context.Context, p json.RawMessage) (any, error) {
			res, err := h.rootsList(p)
			if bytes.Equal(p, []byte("{}")) && n < tc.changes {
				n++
				h.setRoots(state(fmt.Sprintf("v%d-", n))...)
			}
			return res, err
		})
		s, ss, _ := serviceOf(t, h, client.RootsOptions{})
		snap, err := s.Snapshot(bg, ss)
		if (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if !tc.ok {
			if h.count(wire.RootsList) > 20 || snap.Guard.Within("/a0") {
				t.Errorf("%s: %d requests", tc.name, h.count(wire.RootsList))
			}
			continue
		}
		want := state(fmt.Sprintf("v%d-", tc.changes))
		if len(snap.Roots) != len(want) {
			t.Fatalf("%s: %d roots", tc.name, len(snap.Roots))
		}
		for i, r := range snap.Roots {
			if r.URI != "file://"+want[i] {
				t.Fatalf("%s: mixed states: %s", tc.name, r.URI)
			}
		}
	}
	// Each page names the same next page.
	h := newHost(t, nil)
	h.on(wire.RootsList, func(context.Context, json.RawMessage) (any, error) {
		return wire.RootsResult{Roots: []wire.Root{}, NextCursor: "same"}, nil
	})
	s, ss, _ := serviceOf(t, h, client.RootsOptions{})
	if _, err := s.Guard(bg, ss); err == nil || h.count(wire.RootsList) > 2 {
		t.Errorf("a circle: %v after %d requests", err, h.count(wire.RootsList))
	}
}

// R185, R186: if the client refuses the first page, that is an error, and the reading is not restarted.
func TestRefusedFirstPage(t *testing.T) {
	h := newHost(t, nil)
	h.on(wire.RootsList, func(context.Context, json.RawMessage) (any, error) {
		return nil, &jsonrpc.Error{Code: wire.CodeInvalidParams, Message: "no"}
	})
	s, ss, _ := serviceOf(t, h, client.RootsOptions{})
	if _, err := s.Guard(bg, ss); err == nil || h.count(wire.RootsList) != 1 {
		t.Errorf("%v after %d requests", err, h.count(wire.RootsList))
	}
}
