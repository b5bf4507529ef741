package session

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// newFleetOptions returns options of a session without a mount, on a machine of the fleet acme.
func newFleetOptions(t *testing.T, roots ...string) (opt Options, work string) {
	t.Helper()
	opt, work = newOptions(t, roots...)
	opt.Unmounted, opt.Name = true, "s"
	member := filepath.Join(work, "state/rootsfs/fleet/member.json")
	testkit.Must(t, os.MkdirAll(filepath.Dir(member), 0o700))
	testkit.Must(t, os.WriteFile(member, []byte(`{"fleet":"acme"}`), 0o600))
	return opt, work
}

// writeLease writes a lease of a duration, as the fleet's agent does. change may alter it.
func writeLease(t *testing.T, left time.Duration, change func(l *control.Lease)) {
	t.Helper()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	testkit.Must(t, err)
	timeNS, _ := os.Readlink("/proc/self/ns/time") // "": the kernel has none
	now, err := control.BootTime()
	testkit.Must(t, err)
	l := control.Lease{Format: 1, Fleet: "acme", Machine: "m", BootID: strings.TrimSpace(string(boot)), TimeNS: timeNS, Until: int64(now + left), Heads: map[string]uint64{"all": 1}}
	if change != nil {
		change(&l)
	}
	data, err := json.Marshal(l)
	testkit.Must(t, err)
	testkit.Must(t, os.MkdirAll(control.LeaseDir(), 0o700))
	testkit.Must(t, os.Chmod(control.RuntimeDir(), 0o700))
	file := filepath.Join(control.LeaseDir(), "lease")
	testkit.Must(t, os.WriteFile(file+".new", data, 0o600))
	testkit.Must(t, os.Rename(file+".new", file))
}

// On a machine of a fleet a session begins only with a lease that is in force. The lease must be in
// a regular file that belongs to the user and that other users cannot open.
func TestNoStartWithoutLease(t *testing.T) {
	file := func() string { return filepath.Join(control.LeaseDir(), "lease") }
	for name, c := range map[string]struct {
		lease func(t *testing.T)
		says  string
	}{
		"no lease":     {func(*testing.T) {}, `"acme", which has not answered yet`},
		"expired":      {func(t *testing.T) { writeLease(t, -time.Second, nil) }, `"acme", which has not answered since`},
		"locked":       {func(t *testing.T) { writeLease(t, time.Hour, func(l *control.Lease) { l.Locked = "fire" }) }, `has locked it: "fire"`},
		"earlier boot": {func(t *testing.T) { writeLease(t, time.Hour, func(l *control.Lease) { l.BootID = "x" }) }, "earlier boot"},
		"other clock":  {func(t *testing.T) { writeLease(t, time.Hour, func(l *control.Lease) { l.TimeNS = "time:[1]" }) }, "clock of another time namespace"},
		"other fleet":  {func(t *testing.T) { writeLease(t, time.Hour, func(l *control.Lease) { l.Fleet = "bolt" }) }, `is of the fleet "bolt"`},
		"newer format": {func(t *testing.T) { writeLease(t, time.Hour, func(l *control.Lease) { l.Format = 2 }) }, "format 2"},
		"open to others": {func(t *testing.T) {
			writeLease(t, time.Hour, nil)
			testkit.Must(t, os.Chmod(file(), 0o644))
		}, "open to other users"},
		"another user's": {func(t *testing.T) {
			writeLease(t, time.Hour, nil)
			if os.Geteuid() != 0 {
				t.Skip("only root gives files away")
			}
			testkit.Must(t, os.Chown(file(), 65534, 65534))
		}, "belongs to the user with id 65534"},
		"a link": {func(t *testing.T) {
			writeLease(t, time.Hour, nil)
			testkit.Must(t, os.Rename(file(), file()+".real"))
			testkit.Must(t, os.Symlink("lease.real", file()))
		}, "cannot be used"},
		"membership unknown": {func(t *testing.T) {
			state := filepath.Join(os.Getenv("XDG_STATE_HOME"), "rootsfs/fleet/member.json")
			testkit.Must(t, os.WriteFile(state, []byte("{"), 0o600))
			writeLease(t, time.Hour, nil)
		}, "whether this machine belongs to a fleet"},
	} {
		t.Run(name, func(t *testing.T) {
			opt, _ := newFleetOptions(t, "r")
			c.lease(t)
			s, err := Start(context.Background(), opt)
			if err == nil {
				s.end("the test")
				t.Fatal("it began")
			}
			if control.Classify(err) != control.NotApproved || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want %s and %q", control.Classify(err), err, control.NotApproved, c.says)
			}
		})
	}
}

// If the fleet gives an order after the session has read the lease, and before the fleet's
// agent can find the session, the session does not begin.
func TestFleetOrderDuringStart(t *testing.T) {
	opt, _ := newFleetOptions(t, "r")
	writeLease(t, time.Hour, nil)
	opt.Observe = func(e guard.Event) {
		if e.Kind == guard.EventAdded {
			writeLease(t, time.Hour, func(l *control.Lease) { l.Heads["all"] = 2 })
		}
	}
	s, err := Start(context.Background(), opt)
	if err == nil {
		s.end("the test")
		t.Fatal("it began")
	}
	if !strings.Contains(err.Error(), "has given an order while the session began") {
		t.Error(err)
	}
}

// When the lease runs out, the session pauses, grants nothing, and cannot be resumed by its
// owner. It continues with the next lease.
func TestLeaseRunsOut(t *testing.T) {
	opt, work := newFleetOptions(t, "r")
	net := &pausedNetwork{}
	opt.Network = net
	writeLease(t, 1200*time.Millisecond, nil)
	s, err := Start(context.Background(), opt)
	testkit.Must(t, err)
	ended, stop := make(chan error, 1), make(chan struct{})
	go func() { ended <- s.Run(stop) }()
	defer func() { close(stop); testkit.Must(t, <-ended) }()
	read := func() error {
		l, err := s.reg.Admit(context.Background(), guard.Request{Caller: guard.Caller{Via: guard.ViaFiles}, Op: names.OpRead, Path: pathOf(t, "r")})
		if err != nil {
			return err
		}
		return l.Done(0, nil)
	}
	testkit.Must(t, read())
	testkit.Until(t, "the pause", func() bool { return len(s.pauses()) == 1 })
	if !net.isPaused.Load() {
		t.Error("the network goes on during the pause")
	}
	if err := read(); !errors.Is(err, names.Paused) || !strings.Contains(err.Error(), "the fleet acme") {
		t.Errorf("without a lease: %v", err)
	}
	later := filepath.Join(work, "later")
	testkit.Must(t, os.Mkdir(later, 0o755))
	_, err = s.addRoots(context.Background(), control.AddRequest{Roots: []guard.Grant{{Root: "later", Dir: names.Foreign(later), Policy: guard.Policy{Rights: guard.ReadOnly}}}})
	if control.Classify(err) != control.NotApproved || !strings.Contains(err.Error(), "has not answered since") {
		t.Errorf("a grant without a lease: %v", err)
	}
	if _, err := s.resume(context.Background(), control.ResumeRequest{All: true}); control.Classify(err) != control.NotApproved {
		t.Errorf("the owner resumes without a lease: %v", err)
	}
	writeLease(t, time.Hour, nil)
	testkit.Until(t, "the end of the pause", func() bool { return len(s.pauses()) == 0 })
	testkit.Must(t, read())
	testkit.Until(t, "the network", func() bool { return !net.isPaused.Load() })
}

// When readLease has returned, the lease file is in force: a lock has paused the session, or the
// next lease has resumed it.
func TestLeaseIsReadNow(t *testing.T) {
	opt, _ := newFleetOptions(t, "r")
	writeLease(t, time.Hour, nil)
	s, err := Start(context.Background(), opt)
	testkit.Must(t, err)
	ended, stop := make(chan error, 1), make(chan struct{})
	go func() { ended <- s.Run(stop) }()
	defer func() { close(stop); testkit.Must(t, <-ended) }()
	for range 3 {
		writeLease(t, 0, func(l *control.Lease) { l.Locked = "fire" })
		a, err := s.readLease(context.Background(), control.None{})
		testkit.Must(t, err)
		if len(a.Paused) != 1 || !strings.Contains(a.Paused[0].Reason.Raw(), "fire") || a.Lease.Locked != "fire" || a.Lease.LeftMS != 0 {
			t.Fatalf("locked: %+v", a)
		}
		writeLease(t, time.Hour, nil)
		a, err = s.readLease(context.Background(), control.None{})
		testkit.Must(t, err)
		if len(a.Paused) != 0 || a.Lease.LeftMS <= 0 || a.Lease.Fleet != "acme" || a.Lease.Machine != "m" {
			t.Fatalf("unlocked: %+v", a)
		}
	}
}

// The network stays paused until the last pause has ended.
func TestPausesOfNetwork(t *testing.T) {
	opt, _ := newOptions(t, "r")
	net := &pausedNetwork{}
	opt.Unmounted, opt.Name, opt.Network = true, "s", net
	s, err := Start(context.Background(), opt)
	testkit.Must(t, err)
	ended, stop := make(chan error, 1), make(chan struct{})
	go func() { ended <- s.Run(stop) }()
	defer func() { close(stop); testkit.Must(t, <-ended) }()
	testkit.Must(t, s.beginPause(context.Background(), guard.PausedByLease, ""))
	_, err = s.pause(context.Background(), control.PauseRequest{Reason: "fire"})
	testkit.Must(t, err)
	a, err := s.resume(context.Background(), control.ResumeRequest{All: true})
	testkit.Must(t, err)
	if a.Pause == nil || a.Pause.Reason != "fire" || !net.isPaused.Load() || len(s.pauses()) != 1 {
		t.Errorf("after the owner's pause: ended %+v, network paused %v, pauses %+v", a.Pause, net.isPaused.Load(), s.pauses())
	}
	testkit.Must(t, s.endPause(guard.PausedByLease))
	if net.isPaused.Load() {
		t.Error("the network is paused without a pause")
	}
}

// pausedNetwork records whether it is paused.
type pausedNetwork struct {
	closingNetwork
	isPaused atomic.Bool
}

func (n *pausedNetwork) Pause()  { n.isPaused.Store(true) }
func (n *pausedNetwork) Resume() { n.isPaused.Store(false) }
func (n *pausedNetwork) Close()  {}

func pathOf(t *testing.T, root guard.RootName) guard.Path {
	t.Helper()
	p, err := guard.NewPath(root, "f")
	testkit.Must(t, err)
	return p
}
