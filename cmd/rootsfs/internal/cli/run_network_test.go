package cli

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// If a program asks for a TLS server with an odd name, no rule is proposed that would permit
// more than one host.
func TestRefusedHostsAreSingleHosts(t *testing.T) {
	var h tally
	for _, server := range []string{"*.co.uk", "0.0.0.0/1", "::/1", "\n\n evil.test", "EVIL.test", "a,b.test", "[::1", "evil.test"} {
		h.add(refusedHost(network.Event{Host: "api.test", Port: 443, ServerName: names.Foreign(server)}))
	}
	h.add(refusedHost(network.Event{Host: "2606:4700::1", Port: 443}))
	h.add(refusedHost(network.Event{Host: "looked-up.test"}))
	want := []control.NetUnapproved{{Host: "evil.test:443", Times: 1}, {Host: "[2606:4700::1]:443", Times: 1}, {Host: "looked-up.test", Times: 1}}
	if hosts := h.counts(); !slices.Equal(hosts, want) {
		t.Errorf("got %+v, want %+v", hosts, want)
	}
}

// A connection that ends because TLS asks for a server without a rule, or because the server cannot
// be known, is recorded as refused, so that `rootsfs why` can explain the refusal. A connection
// that ends for another reason is recorded as allowed.
func TestOtherServerIsOnRecordAsRefused(t *testing.T) {
	for _, c := range []struct {
		event network.Event
		want  guard.Record
	}{
		{
			network.Event{State: network.Ended, Host: "a.test", Port: 443, ServerName: "b.test", Reason: fmt.Errorf("TLS asks for another server: %w", network.ErrNoRule)},
			guard.Record{Op: names.OpDisconnect, Verdict: guard.Refused, Kind: names.Permission, Detail: `a.test port 443, server name "b.test": TLS asks for another server: no rule permits it`},
		},
		{
			network.Event{State: network.Ended, Host: "a.test", Port: 443, Reason: network.ErrHello},
			guard.Record{Op: names.OpDisconnect, Verdict: guard.Refused, Kind: names.Permission, Detail: "a.test port 443: " + network.ErrHello.Error()},
		},
		{network.Event{State: network.Ended, Host: "a.test", Port: 443}, guard.Record{Op: names.OpDisconnect, Verdict: guard.Allowed, Detail: "a.test port 443"}},
		{network.Event{State: network.Ended, Host: "a.test", Reason: network.ErrRevoked}, guard.Record{Op: names.OpDisconnect, Verdict: guard.Allowed, Detail: "a.test: " + network.ErrRevoked.Error()}},
		{network.Event{State: network.Refused, Host: "a.test", Reason: network.ErrNoRule}, guard.Record{Op: names.OpConnect, Verdict: guard.Refused, Kind: names.Permission, Detail: "a.test: no rule permits it"}},
	} {
		got := connectionRecord(c.event)
		if got.Op != c.want.Op || got.Verdict != c.want.Verdict || got.Kind != c.want.Kind || got.Detail != c.want.Detail {
			t.Errorf("got %+v, want %+v", got, c.want)
		}
	}
}

// If a host cannot be recorded, Add permits no host, and returns the hosts that were recorded
// before. The session then records these hosts as revoked.
func TestAddReturnsRecordedHosts(t *testing.T) {
	n := &commandNet{gate: network.New(network.Options{})}
	full := errors.New("no space")
	added, err := n.Add([]string{"a.test", "b.test", "c.test"}, func(host string) error {
		if host == "c.test" {
			return full
		}
		return nil
	})
	if !errors.Is(err, full) || !slices.Equal(added, []string{"a.test", "b.test"}) || len(n.gate.Rules()) > 0 {
		t.Errorf("added %q (%v), permitted %v", added, err, n.gate.Rules())
	}
}
