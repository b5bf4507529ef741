package tools

import (
	"net/http"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/broker/internal/flowcontrol"
	"github.com/rootsfs/rootsfs/guard"
)

// If there is no room for a request, the refusal names the bound that was reached: that of the
// request's subject, or that of all subjects.
func TestRefusedBodyNamesTheBound(t *testing.T) {
	defer LowerCallBounds(200_000)()
	for who, want := range map[guard.Subject]string{"alice": "more than 200000 bytes", "bob": "more than 250000 bytes"} {
		c := &clients{bodies: flowcontrol.Budget{Bytes: 250_000}, busy: map[guard.Subject]*load{}}
		r, err := http.NewRequest(http.MethodPost, "/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if leave, _, why := c.admit(r, "alice", 0, 150_000); leave == nil {
			t.Fatal(why)
		}
		if leave, status, why := c.admit(r, who, 0, 150_000); leave != nil || status != http.StatusServiceUnavailable || !strings.Contains(why, want) {
			t.Errorf("%s: %d %q, want %s", who, status, why, want)
		}
	}
}
