package runcmd

import (
	"slices"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
)

// A program that asks for a TLS server of an odd name does not have a rule proposed that
// permits more than one host.
func TestRefusedHostsAreSingleHosts(t *testing.T) {
	var h tally
	for _, server := range []string{"*.co.uk", "0.0.0.0/1", "::/1", "\n\n evil.test", "EVIL.test", "a,b.test", "[::1", "evil.test"} {
		h.add(refusedHost(network.Event{Host: "api.test", Port: 443, ServerName: server}))
	}
	h.add(refusedHost(network.Event{Host: "2606:4700::1", Port: 443}))
	h.add(refusedHost(network.Event{Host: "looked-up.test"}))
	want := []control.NetUnapproved{{Host: "evil.test:443", Times: 1}, {Host: "[2606:4700::1]:443", Times: 1}, {Host: "looked-up.test", Times: 1}}
	if hosts := h.counts(); !slices.Equal(hosts, want) {
		t.Errorf("got %+v, want %+v", hosts, want)
	}
}
