package guard_test

import (
	"errors"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
)

// A stamp becomes invalid when less of its root may be shown than before. The revocation of a root
// elsewhere, and the loss of the right to write, do not affect the stamp.
func TestStamps(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(t *testing.T, s *setup) error
		want   guard.Kind
	}{
		{"nothing", func(*testing.T, *setup) error { return nil }, 0},
		{"revoked", func(_ *testing.T, s *setup) error { _, err := s.Revoke(bg, "r"); return err }, names.Revoked},
		{"another revoked", func(_ *testing.T, s *setup) error { _, err := s.Revoke(bg, "other"); return err }, 0},
		{"unavailable", func(_ *testing.T, s *setup) error {
			s.open.vanished["/a"] = true
			return s.Recheck(bg, "r")
		}, names.Unavailable},
		{"granted again", func(t *testing.T, s *setup) error {
			_, err := s.Revoke(bg, "r")
			s.grant(t, "r", "/a", guard.Policy{Rights: guard.ReadWrite})
			return err
		}, names.Revoked},
		{"not written any more", func(_ *testing.T, s *setup) error { return s.Set(bg, "r", guard.ReadOnly) }, 0},
		{"not listed any more", func(_ *testing.T, s *setup) error { return s.Set(bg, "r", guard.Read) }, names.Conflict},
		{"hidden", func(_ *testing.T, s *setup) error {
			return s.SetPatterns(bg, "r", guard.Patterns{NoDefaults: true, Hide: guard.Texts("x")})
		}, names.Conflict},
		{"a root inside", func(t *testing.T, s *setup) error {
			s.grant(t, "in", "/a/in", guard.Policy{Rights: guard.ReadOnly})
			return nil
		}, names.Conflict},
		{"suspended", func(t *testing.T, s *setup) error {
			s.SetAbuse(ledger.Abuse{Refusals: 1, Suspend: true})
			for len(s.Suspended()) == 0 {
				wantKind(t, s.once(requestAs(t, "server", names.OpFsync), 0), 0)
				_ = s.NoteRefusal(guard.Caller{Subject: "server", Via: guard.ViaFiles}, names.Permission, "test")
			}
			return nil
		}, names.Suspended},
		{"paused", func(_ *testing.T, s *setup) error { return s.Pause(bg, guard.PausedByOwner, "") }, names.Paused},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newSetup(t, nil)
			s.grant(t, "r", "/a", guard.Policy{Rights: guard.ReadWrite, Patterns: guard.Patterns{NoDefaults: true}})
			s.grant(t, "other", "/b", guard.Policy{Rights: guard.ReadWrite, Patterns: guard.Patterns{NoDefaults: true}})
			stamps := s.Stamps("server")
			stamps.Add("r")
			if err := stamps.Err(); err != nil {
				t.Fatalf("at once: %v", err)
			}
			if err := c.change(t, s); err != nil && !errors.Is(err, names.Unavailable) {
				t.Fatal(err)
			}
			stamps.Add("r") // a second Add does not renew the stamp
			wantKind(t, stamps.Err(), c.want)
		})
	}
	s := newSetup(t, nil)
	stamps := s.Stamps("server")
	stamps.Add("none")
	wantKind(t, stamps.Err(), names.Revoked)
}
