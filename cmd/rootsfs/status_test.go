package main

import (
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

// What keeps changes of the host from being seen is told, and what to do.
func TestStatusTellsWhatIsNotSeen(t *testing.T) {
	for _, c := range []struct {
		st   control.Status
		want string // "": nothing of the kind
	}{
		{control.Status{}, ""},
		{control.Status{Stuck: 1}, "  a program has begun to read a directory in the mount and does not end: "},
		{control.Status{Stuck: 3}, "  a program has begun to read 3 directories in the mount and does not end: "},
		{control.Status{WatchesRefused: 2}, "  some directories could not be watched (2 times): "},
		{control.Status{Unwatched: []string{"nas"}}, "  changes on the host are seen after up to a second in: nas\n"},
	} {
		var out strings.Builder
		c.st.AuditOK, c.st.Mounted = true, true
		(&app{stdout: &out}).saySession(c.st)
		if got := out.String(); !strings.Contains(got, c.want) || c.want == "" && (strings.Contains(got, "seen") || strings.Contains(got, "read")) {
			t.Errorf("%+v:\n%s", c.st, got)
		}
	}
}
