package cli

import (
	"slices"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
)

// A program that asks for a TLS server of an odd name does not have a rule proposed that
// permits more than one host.
func TestRefusedHostsAreSingleHosts(t *testing.T) {
	var h refusedHosts
	for _, server := range []string{"*.co.uk", "0.0.0.0/1", "::/1", "\n\n evil.test", "EVIL.test", "a,b.test", "[::1", "evil.test"} {
		h.add(network.Event{Host: "api.test", Port: 443, ServerName: server})
	}
	h.add(network.Event{Host: "2606:4700::1", Port: 443})
	h.add(network.Event{Host: "looked-up.test"})
	want := []string{"evil.test:443", "[2606:4700::1]:443", "looked-up.test"}
	if hosts, times := h.list(); !slices.Equal(hosts, want) || times != 3 {
		t.Errorf("%d times %q, want %q", times, hosts, want)
	}
}
