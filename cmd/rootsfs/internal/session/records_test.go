package session

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Until the session serves nothing is written; then everything is, in order. A
// request of the kernel means that it serves.
func TestRecordsAreHeldUntilTheSessionServes(t *testing.T) {
	grant := guard.Record{Time: time.Now(), Op: names.OpGrant, Via: guard.ViaControl, Verdict: guard.Allowed}
	refusal := guard.Record{Time: time.Now(), Op: names.OpWrite, Via: guard.ViaFUSE, Verdict: guard.Refused}
	for _, tt := range []struct {
		name  string
		serve func(*records) error
		want  []string
	}{
		{"never", func(*records) error { return nil }, nil},
		{"by Start", (*records).begin, []string{"session", "grant"}},
		{"by a request", func(r *records) error { return r.Record(refusal) }, []string{"session", "grant", "write"}},
		{"by both", func(r *records) error { return errors.Join(r.Record(refusal), r.begin(), r.Record(grant)) }, []string{"session", "grant", "write", "grant"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			r := &records{open: func() (*audit.Log, error) {
				return audit.Open(audit.Options{Dir: filepath.Join(dir, "audit"), Session: "s", Anchor: filepath.Join(dir, "anchor")})
			}}
			if err := r.Record(grant); err != nil {
				t.Fatal(err)
			}
			if list, err := os.ReadDir(dir); err != nil || len(list) != 0 || r.path() != "" || !r.healthy() {
				t.Fatalf("made before it serves: %v, %v", list, err)
			}
			if err := tt.serve(r); err != nil {
				t.Fatal(err)
			}
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			if err := r.Record(refusal); !errors.Is(err, audit.ErrClosed) {
				t.Errorf("record after the end: %v", err)
			}
			files, err := audit.Files(filepath.Join(dir, "audit"), "s")
			if (err == nil) != (tt.want != nil) {
				t.Fatalf("files %v, %v", files, err)
			}
			n := 0
			err = audit.Read(files, audit.Filter{}, func(e audit.Entry) error {
				if n >= len(tt.want) || e.Op != tt.want[n] {
					t.Errorf("record %d is %s, want %v", n, e.Op, tt.want)
				}
				n++
				return nil
			})
			if err != nil || n != len(tt.want) {
				t.Errorf("%d records, %v", n, err)
			}
		})
	}
}

// A log that cannot be opened fails what would have to be recorded in it.
func TestRecordsWithoutALog(t *testing.T) {
	broken := errors.New("no space")
	r := &records{open: func() (*audit.Log, error) { return nil, broken }}
	if err := r.begin(); err != broken {
		t.Errorf("begin: %v", err)
	}
	if err := r.Record(guard.Record{Op: names.OpRead, Via: guard.ViaFUSE}); err != broken {
		t.Errorf("record: %v", err)
	}
	if err := r.close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// Only what somebody approved is granted, by the session's rules: whoever uses
// the registry itself cannot do without them.
func TestRegistryHasTheRules(t *testing.T) {
	s, work := start(t, "first")
	dir := filepath.Join(work, "second")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ask := guard.Grant{Root: "second", Dir: dir, Policy: guard.Policy{Rights: guard.ReadOnly}}
	if _, err := s.Registry().Grant(t.Context(), ask); !errors.Is(err, names.NoConsent) {
		t.Errorf("nobody approved it: %v", err)
	}
	ask = guard.Grant{Root: "etc", Dir: "/etc", Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite}}
	if _, err := s.Registry().Grant(t.Context(), ask); !errors.Is(err, names.Permission) {
		t.Errorf("a writable system directory: %v", err)
	}
}
