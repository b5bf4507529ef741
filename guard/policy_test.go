package guard_test

import (
	"errors"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// A grant may have exceptions from the rules for itself (AllowSystem, AllowRootDir). Each lifts
// only its own rule, and none lifts the rule about directories of the kernel.
func TestGrantWithExceptions(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rules rules.RootRules
		ask   guard.Grant
		ok    bool
	}{
		{"system, not allowed", rules.RootRules{}, guard.Grant{Dir: "/etc/x", Policy: guard.Policy{Rights: guard.ReadWrite}}, false},
		{"system, read-only", rules.RootRules{}, guard.Grant{Dir: "/etc/x", Policy: guard.Policy{Rights: guard.ReadOnly}}, true},
		{"system, allowed for all grants", rules.RootRules{AllowSystem: true}, guard.Grant{Dir: "/etc/x", Policy: guard.Policy{Rights: guard.ReadWrite}}, true},
		{"system, allowed for this grant", rules.RootRules{}, guard.Grant{Dir: "/etc/x", Policy: guard.Policy{Rights: guard.ReadWrite}, AllowSystem: true}, true},
		{"system, the other exception", rules.RootRules{}, guard.Grant{Dir: "/etc/x", Policy: guard.Policy{Rights: guard.ReadWrite}, AllowRootDir: true}, false},
		{"/, not allowed", rules.RootRules{}, guard.Grant{Dir: "/", Policy: guard.Policy{Rights: guard.ReadOnly}}, false},
		{"/, allowed for this grant", rules.RootRules{}, guard.Grant{Dir: "/", Policy: guard.Policy{Rights: guard.ReadOnly}, AllowRootDir: true}, true},
		{"/, writable, allowed for this grant", rules.RootRules{}, guard.Grant{Dir: "/", Policy: guard.Policy{Rights: guard.ReadWrite}, AllowRootDir: true}, false},
		{"/, the other exception", rules.RootRules{}, guard.Grant{Dir: "/", Policy: guard.Policy{Rights: guard.ReadOnly}, AllowSystem: true}, false},
		{"/proc, whatever is allowed", rules.RootRules{AllowSystem: true, AllowRootDir: true},
			guard.Grant{Dir: "/proc", Policy: guard.Policy{Rights: guard.ReadOnly}, AllowSystem: true, AllowRootDir: true}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSetup(t, func(c *guard.Config) { c.Rules = tt.rules })
			tt.ask.Root, tt.ask.Origin = "a", "test"
			_, err := s.Grant(t.Context(), tt.ask)
			if tt.ok && err != nil || !tt.ok && !errors.Is(err, names.Permission) {
				t.Error(err)
			}
		})
	}
}

// An exception belongs to the root: it applies when the root's mode is changed later, and to no
// other root.
func TestSetKnowsTheExceptionOfTheRoot(t *testing.T) {
	s := newSetup(t, nil)
	for name, own := range map[string]bool{"own": true, "plain": false} {
		ask := guard.Grant{Root: guard.RootName(name), Dir: names.Foreign("/etc/" + name), Origin: "test", AllowSystem: own, Policy: guard.Policy{Rights: guard.ReadOnly}}
		if _, err := s.Grant(t.Context(), ask); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Set(t.Context(), "own", guard.ReadWrite); err != nil {
		t.Error(err)
	}
	if err := s.Set(t.Context(), "plain", guard.ReadWrite); !errors.Is(err, names.Permission) {
		t.Errorf("a root without the exception: %v", err)
	}
}

// An approval may remove exceptions, and then a grant that needs them is refused. It cannot add
// any.
func TestApprovalAndExceptions(t *testing.T) {
	for _, tt := range []struct {
		name   string
		asked  bool
		answer func(*guard.Grant)
		want   names.Kind
	}{
		{"removed", true, func(g *guard.Grant) { g.AllowSystem = false }, names.Permission},
		{"added", false, func(g *guard.Grant) { g.AllowSystem = true }, names.NoConsent},
		{"other one added", true, func(g *guard.Grant) { g.AllowRootDir = true }, names.NoConsent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSetup(t, nil)
			dir := "/srv/a"
			if tt.asked {
				dir = "/etc/a"
			}
			p, err := s.Propose(guard.Grant{Root: "a", Dir: names.Foreign(dir), AllowSystem: tt.asked, Policy: guard.Policy{Rights: guard.ReadWrite}})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			got := p.Ask()
			tt.answer(&got)
			if _, err = s.GrantProposed(t.Context(), []*guard.Proposal{p}, []guard.Grant{got}); !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}
