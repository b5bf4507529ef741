package mount

import (
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
)

// A mount that cannot keep the changes of a staged root apart refuses it, and says which
// option to change.
func TestStagedRefused(t *testing.T) {
	staged := guard.Policy{Rights: guard.ReadWrite | guard.Stage}
	for _, tt := range []struct {
		opt  Options
		want string // "": taken
	}{
		{Options{Level: Audit}, ""},
		{Options{Level: Strict}, ""},
		{Options{Level: Audit, Locks: LocksHost}, "use --locks local"},
		{Options{Level: Max}, "use --cache audit"},
	} {
		err := checkPolicy(tt.opt, nil, staged)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("cache %v, locks %v: %v", tt.opt.Level, tt.opt.Locks, err)
		}
	}
}
