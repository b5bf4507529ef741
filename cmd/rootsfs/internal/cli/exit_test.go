package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

func TestExitCodes(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, ExitOK},
		{errors.New("x"), exitFailure},
		{usage(errors.New("x")), ExitUsage},
		{&guard.Error{Kind: names.Invalid}, ExitUsage},
		{&guard.Error{Kind: names.Permission, Err: errors.New("rule")}, exitNotApproved},
		{&guard.Error{Kind: names.NoConsent}, exitNotApproved},
		{&guard.Error{Op: names.OpRevoke, Kind: names.NotExist}, ExitNoSuch},
		{&guard.Error{Kind: names.NotExist}, exitFailure},
		{mountpoint.ErrNoFUSE, ExitSystem},
		{mountpoint.ErrNotMounted, ExitNoSuch},
	} {
		if got := exitCode(tt.err); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.err, got, tt.want)
		}
	}
}

// R092: an error is one line, whatever its parts contain.
func TestOneLine(t *testing.T) {
	// The operation is the command itself, so it is left out, except if the error has no other text.
	named := &guard.Error{Op: names.OpSet, Kind: names.NotExist, Err: errors.New("no root is named x")}
	if got := oneLine(named); got != "no root is named x" {
		t.Error(got)
	}
	if got := oneLine(&guard.Error{Op: names.OpSet, Kind: names.NotExist}); !strings.HasPrefix(got, "set ") {
		t.Error(got)
	}
	err := errors.Join(errors.New("first\r\nsecond"), errors.New("rootsfs: third"))
	if got := oneLine(err); got != "first; second; third" {
		t.Error(got)
	}
	many := make([]error, 100)
	for i := range many {
		many[i] = errors.New(strings.Repeat("x", 50))
	}
	if got := oneLine(errors.Join(many...)); len(got) > 1000 || !strings.HasSuffix(got, "; and 92 more") {
		t.Error(got)
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 1023: "1023", 1024: "1.0K", 1536: "1.5K", 5 << 30: "5.0G", 1 << 62: "4.0E"} {
		if got := sizeText(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
