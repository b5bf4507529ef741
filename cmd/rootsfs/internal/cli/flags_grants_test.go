package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/guard"
)

func TestUntil(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct{ in, want string }{
		{"13:30", "2026-05-04T13:30:00Z"},
		{"11:30", "2026-05-05T11:30:00Z"},
		{"2026-06-01T08:00", "2026-06-01T08:00:00Z"},
		{"2026-05-04T15:00:00+02:00", "2026-05-04T13:00:00Z"},
		{"2026-05-04T14:00:00+02:00", ""}, // this very moment
		{"2001-01-01T00:00", ""},
		{"tomorrow", ""},
		{"25:00", ""},
		{"", ""},
	} {
		got, err := parseUntil(tt.in, now)
		if (err == nil) != (tt.want != "") {
			t.Errorf("%q: %v", tt.in, err)
		} else if err == nil && got.UTC().Format(time.RFC3339) != tt.want {
			t.Errorf("%q: %v, want %s", tt.in, got, tt.want)
		}
	}
}

// R077, R078, R079, R193: limits of the command line reach the grant.
func TestGrantFlags_R077_R078_R079(t *testing.T) {
	var f grantFlags
	cmd := &cobra.Command{}
	f.Add(cmd)
	if err := cmd.ParseFlags(strings.Fields("--limit ops_per_second=5 --burst 9 --limit bytes_in_flight=64M --max-file 10M --limit max_written=1G --max-created 3 --timeout 1s --for 1h")); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	got, err := f.all([]string{"a=" + dir + ":rw", dir + "/b"}, "test")
	if err != nil {
		t.Fatal(err)
	}
	want := guard.Limits{OpsPerSecond: 5, Burst: 9, BytesInFlight: 64 << 20, MaxFile: 10 << 20, MaxWritten: 1 << 30, MaxCreated: 3, Timeout: time.Second}
	for i, mode := range []string{"rw", "ro"} { // R069
		p := got[i].Policy
		if p.Limits != want || p.Rights.String() != mode || p.OtherFileSystems || got[i].Expires.IsZero() || got[i].Origin != "test" {
			t.Errorf("%d: %+v", i, got[i])
		}
	}
	if got[0].Root != "a" || got[1].Root != "b" || got[1].Dir.Raw() != dir+"/b" {
		t.Errorf("%+v", got)
	}
	for _, cross := range []grantFlags{{crossFS: true, oneFS: true}, {oneFS: false}} {
		if p, err := cross.policy(); err != nil || !p.OtherFileSystems {
			t.Errorf("%+v: %+v, %v", cross, p, err)
		}
	}
}
