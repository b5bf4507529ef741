package cli

import (
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Status says which changes on the host are seen late, and why.
func TestStatusTellsLateChanges(t *testing.T) {
	for _, c := range []struct {
		st   control.Status
		want string // "": none of these lines
	}{
		{control.Status{}, ""},
		{control.Status{Stuck: 1}, "  a program has begun to read a directory in the mount and does not end: "},
		{control.Status{Stuck: 3}, "  a program has begun to read 3 directories in the mount and does not end: "},
		{control.Status{WatchesRefused: 2}, "  some directories could not be watched (2 times): "},
		{control.Status{PathsPolled: "no inotify"}, "  paths of roots and of the configuration are looked at once a second: no inotify\n"},
		{control.Status{Unwatched: []names.Foreign{"nas"}}, "  changes on the host are seen after up to a second in: nas\n"},
	} {
		var out strings.Builder
		c.st.AuditOK, c.st.Mounted = true, true
		(&app{Stdout: &out}).printSession(c.st)
		if got := out.String(); !strings.Contains(got, c.want) || c.want == "" && (strings.Contains(got, "seen") || strings.Contains(got, "looked") || strings.Contains(got, "read")) {
			t.Errorf("%+v:\n%s", c.st, got)
		}
	}
}

// Status says who shares a consent that was given to a request without a session.
func TestStatusTellsWhoSharesConsents(t *testing.T) {
	var out strings.Builder
	(&app{Stdout: &out}).printSession(control.Status{AuditOK: true, Mounted: true, Roots: []control.Root{
		{Name: "notes", Subject: "serve#1", SharedBy: "every such client with the server's bearer token"}, {Name: "own", Subject: "serve#2"},
	}})
	const want = "  notes was allowed without a session: every such client with the server's bearer token has it until the server ends\n"
	if got := out.String(); !strings.Contains(got, want) || strings.Count(got, "without a session") != 1 {
		t.Error(got)
	}
}
