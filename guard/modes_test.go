package guard_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Every mode's text is read back as the same rights.
func TestModesRoundTrip(t *testing.T) {
	for r := guard.Rights(1); r <= guard.ReadWrite; r++ {
		for _, r := range []guard.Rights{r, r | guard.Stage} {
			if got, err := rules.ParseMode(r.String()); err != nil || got != r {
				t.Fatalf("%s: %v, %v", r, got, err)
			}
		}
	}
	if got, _ := rules.ParseMode("stage"); got != guard.ReadWrite|guard.Stage {
		t.Errorf("stage is %d", got)
	}
	for _, bad := range []string{"", "RO", "ro,rw", "rw,stage", "read ", "none"} {
		if r, err := rules.ParseMode(bad); err == nil {
			t.Errorf("mode %q accepted as %v", bad, r)
		}
	}
}

// R141, R153: a collision is refused and says what to write instead; R019: the
// same directory is not a root twice.
func TestNameCollision(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "b", "/x/b", guard.Policy{})
	_, err := s.Grant(bg, guard.Grant{Root: "b", Dir: "/y/b", Origin: "test", Policy: guard.Policy{Rights: guard.Read}})
	wantKind(t, err, names.Exist)
	if err == nil || !strings.Contains(err.Error(), "NAME=") {
		t.Errorf("no remedy in %v", err)
	}
	_, err = s.Grant(bg, guard.Grant{Root: "other", Dir: "/x/b", Origin: "test", Policy: guard.Policy{Rights: guard.Read}})
	wantKind(t, err, names.Exist)
	if n := len(s.Roots()); n != 1 {
		t.Errorf("%d roots", n)
	}
}

// R129: kernel interfaces never, system directories not for writing, nothing of
// the owner's plane.
func TestRules(t *testing.T) {
	keep := rules.RootRules{Keep: []rules.Keep{{Path: "/home/u/mnt", What: "the mountpoint"}, {Path: "/home/u/.config/rootsfs", What: "the configuration"}}}
	for _, c := range []struct {
		rules  rules.RootRules
		path   string
		rights guard.Rights
		ok     bool
	}{
		{keep, "/home/u/code", guard.ReadWrite, true},
		{keep, "/home/u/mnt2", guard.ReadWrite, true},
		{keep, "/home/u", guard.ReadOnly, false},
		{keep, "/home/u/mnt", guard.ReadOnly, false},
		{keep, "/home/u/mnt/code", guard.ReadOnly, false},
		{keep, "/home/u/.config", guard.ReadOnly, false},
		{rules.RootRules{}, "/proc", guard.ReadOnly, false},
		{rules.RootRules{}, "/proc/1/root", guard.ReadOnly, false},
		{rules.RootRules{}, "/sys/fs", guard.ReadOnly, false},
		{rules.RootRules{}, "/dev/shm", guard.ReadOnly, false},
		{rules.RootRules{AllowSystem: true, AllowRootDir: true}, "/proc", guard.ReadOnly, false},
		{rules.RootRules{}, "/proc2", guard.ReadWrite, true},
		{rules.RootRules{}, "/etc", guard.ReadWrite, false},
		{rules.RootRules{}, "/etc/ssh", guard.Append, false},
		{rules.RootRules{}, "/etc", guard.ReadOnly, true},
		{rules.RootRules{AllowSystem: true}, "/etc", guard.ReadWrite, true},
		{rules.RootRules{}, "/etcetera", guard.ReadWrite, true},
		{rules.RootRules{}, "/usr/bin", guard.Delete, false},
		{rules.RootRules{}, "/usr/src/x", guard.ReadWrite, true},
		{rules.RootRules{}, "/root", guard.ReadWrite, false},
		{rules.RootRules{}, "/root/code", guard.ReadWrite, true},
		{rules.RootRules{}, "/var/lib", guard.Create, false},
		{rules.RootRules{}, "/", guard.ReadOnly, false},
		{rules.RootRules{AllowRootDir: true}, "/", guard.ReadOnly, true},
		{rules.RootRules{AllowRootDir: true}, "/", guard.ReadWrite, false},
		{rules.RootRules{}, "/etc/%s%d", guard.ReadWrite, false},
	} {
		err := c.rules.Check(c.path, c.rights)
		if (err == nil) != c.ok {
			t.Errorf("%s:%s: %v", c.path, c.rights, err)
		}
		if err != nil && (!errors.Is(err, names.Permission) || strings.Contains(err.Error(), "%!")) {
			t.Errorf("%s: %v", c.path, err)
		}
	}
}
