package session

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

func beginRecords(r *records) error {
	_, err := r.begin()
	return err
}

// No record is written until the session serves; then all are, in order. The first request of
// the kernel means that it serves.
func TestRecordsAreHeldUntilTheSessionServes(t *testing.T) {
	grant := guard.Record{Time: time.Now(), Op: names.OpGrant, Via: guard.ViaControl, Verdict: guard.Allowed}
	refusal := guard.Record{Time: time.Now(), Op: names.OpWrite, Via: guard.ViaFUSE, Verdict: guard.Refused}
	for _, tt := range []struct {
		name  string
		serve func(*records) error
		want  []string
	}{
		{"never", func(*records) error { return nil }, nil},
		{"by Start", beginRecords, []string{"session", "grant"}},
		{"by a request", func(r *records) error { return r.Record(refusal) }, []string{"session", "grant", "write"}},
		{"by both", func(r *records) error { return errors.Join(r.Record(refusal), beginRecords(r), r.Record(grant)) }, []string{"session", "grant", "write", "grant"}},
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
				if n >= len(tt.want) || e.Op.Raw() != tt.want[n] {
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

// If the log cannot be opened, operations that need a record fail.
func TestRecordsWithoutALog(t *testing.T) {
	broken := errors.New("no space")
	r := &records{open: func() (*audit.Log, error) { return nil, broken }}
	if err := beginRecords(r); err != broken {
		t.Errorf("begin: %v", err)
	}
	if err := r.Record(guard.Record{Op: names.OpRead, Via: guard.ViaFUSE}); err != broken {
		t.Errorf("record: %v", err)
	}
	if err := r.close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// Only approved directories are granted, by the session's rules. The rules apply even to
// callers that use the registry directly.
func TestRegistryHasTheRules(t *testing.T) {
	s, work := start(t, "first")
	dir := filepath.Join(work, "second")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ask := guard.Grant{Root: "second", Dir: names.Foreign(dir), Policy: guard.Policy{Rights: guard.ReadOnly}}
	if _, err := s.Registry().Grant(t.Context(), ask); !errors.Is(err, names.NoConsent) {
		t.Errorf("nobody approved it: %v", err)
	}
	ask = guard.Grant{Root: "etc", Dir: "/etc", Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite}}
	if _, err := s.Registry().Grant(t.Context(), ask); !errors.Is(err, names.Permission) {
		t.Errorf("a writable system directory: %v", err)
	}
}

// If the audit log cannot be anchored, the session does not start, or ends if the anchor may
// come later. In both cases the reason is reported.
func TestUnanchored(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a full file system")
	}
	for _, later := range []bool{false, true} {
		t.Run(map[bool]string{false: "at once", true: "later"}[later], func(t *testing.T) {
			work := t.TempDir()
			t.Setenv("XDG_STATE_HOME", filepath.Join(work, "state"))
			t.Setenv("XDG_RUNTIME_DIR", work)
			anchor, err := config.AnchorPath("full")
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Dir(anchor)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount("none", dir, "tmpfs", 0, "nr_inodes=1"); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
			s, err := Start(t.Context(), Options{
				Name: "full", Unmounted: true, AnchorLater: later,
				Logger: func(string) (*slog.Logger, error) { return slog.New(slog.DiscardHandler), nil },
			})
			if err == nil {
				if !later {
					t.Error("it was started")
				}
				err = s.Run(make(chan struct{})) // which nobody closes
			}
			if err == nil || !strings.Contains(err.Error(), "audit log cannot be opened") || !errors.Is(err, unix.ENOSPC) {
				t.Errorf("%v", err)
			}
		})
	}
}

// Under a ceiling, audit files are kept at least as long as the ceiling demands, whatever the
// configuration says. No file is then deleted because of the size of all files.
//
// cmd/rootsfs/ceilingways_test.go reads the next line.
// ceiling: records.days by configuration
func TestAuditBoundsKeepToTheCeiling(t *testing.T) {
	const day = 24 * time.Hour
	days := func(n int64) *int64 { return &n }
	ceiling := func(text string) *config.Ceiling {
		t.Setenv("XDG_STATE_HOME", t.TempDir())
		dir, file, err := config.FleetDir()
		testkit.Must(t, err)
		testkit.Must(t, os.MkdirAll(dir, 0o700))
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "member.json"), nil, 0o600))
		doc, err := json.Marshal(config.FleetCeilings{Fleet: "acme", Ceilings: []config.FleetCeiling{{For: "all", Number: 1, Text: text}}})
		testkit.Must(t, err)
		testkit.Must(t, os.WriteFile(file, doc, 0o600))
		c, err := config.LoadCeiling()
		testkit.Must(t, err)
		return c
	}
	week := ceiling("[records]\ndays = 7\n")
	for _, c := range []struct {
		days, size *int64
		ceiling    *config.Ceiling
		age        time.Duration
		total      int64
	}{
		{nil, nil, nil, audit.DefaultMaxAge, audit.DefaultMaxTotal},
		{days(1), days(1 << 20), nil, day, 1 << 20},
		{days(1), days(1 << 20), week, 7 * day, 0},
		{days(30), nil, week, 30 * day, 0},
		{days(0), nil, week, 0, 0}, // 0: without a bound
	} {
		conf := &config.Config{}
		conf.Mount.AuditMaxDays, conf.Mount.AuditMaxSize = c.days, c.size
		if age, total := AuditBounds(conf, c.ceiling); age != c.age || total != c.total {
			t.Errorf("%+v: %v and %d bytes", c, age, total)
		}
	}
}
