package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// A machine can belong to a fleet. Then a session begins only under the machine's lease, and
// pauses when the lease has run out or the fleet has locked the machine. The session goes on with
// the next lease. Whether the machine belongs to a fleet is decided at the session's start: without
// the membership file, it belongs to none.

// machineLease is the machine's lease as the session read it last. A nil machineLease is that of
// a machine without a fleet.
type machineLease struct {
	fleet string

	mu       sync.Mutex // guards the fields below after the session's start
	current  control.Lease
	isPaused bool       // the session is paused because the lease has run out
	wake     *bootTimer // expires when the lease has to be read again
}

// When the lease is read: at half of the time left, but every leaseOften in the last leaseSoon,
// and every leasePaused during a pause. The pause begins a little before the lease ends: dirty data
// can be flushed only while the registry still admits operations.
const (
	leaseSoon   = time.Second
	leaseOften  = 250 * time.Millisecond
	leasePaused = time.Second
)

// fleetOf returns the name of the fleet that the machine belongs to; "": it belongs to none.
func fleetOf() (string, error) {
	file, err := config.StateDir("fleet", "member.json")
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return "", nil
	}
	var member struct {
		Fleet string `json:"fleet"`
	}
	if err == nil {
		err = json.Unmarshal(data, &member)
	}
	if err == nil && member.Fleet == "" {
		err = errors.New("it names no fleet")
	}
	if err != nil {
		return "", leaseError("whether this machine belongs to a fleet cannot be read in %s: %v", names.Quote(file), err)
	}
	return member.Fleet, nil
}

func leaseError(format string, args ...any) error {
	return &control.Error{Class: control.NotApproved, Text: fmt.Sprintf(format, args...)}
}

// leaseOfMachine returns the machine's lease, nil if the machine belongs to no fleet. It returns
// an error if no session may begin.
func leaseOfMachine() (*machineLease, error) {
	fleet, err := fleetOf()
	if fleet == "" || err != nil {
		return nil, err
	}
	l := &machineLease{fleet: fleet}
	l.current, err = l.read()
	return l, err
}

// read returns the lease if it is in force, or an error that says why it is not.
func (l *machineLease) read() (control.Lease, error) {
	got, err := control.ReadLease()
	of := "this machine belongs to the fleet " + names.Quote(l.fleet)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return got, leaseError("%s, which has not answered yet; see that its agent runs", of)
	case err != nil:
		return got, leaseError("%s, and %v", of, err)
	case got.Fleet != l.fleet:
		return got, leaseError("%s, and the lease is of the fleet %s", of, names.Quote(got.Fleet))
	case got.Locked != "":
		return got, leaseError("%s, which has locked it: %s", of, names.Quote(got.Locked))
	case got.Left() <= leaseOften:
		return got, leaseError("%s, which has not answered since %s; see that its agent runs", of, got.Written.Local().Format(time.DateTime))
	}
	return got, nil
}

// apply makes the registry pause by itself at the end of the lease.
func (l *machineLease) apply(reg *guard.Registry) {
	if l == nil {
		return
	}
	now := l.current
	reg.SetMachineLease(now.Left(), func() bool { return now.Left() <= 0 }, l.reason(&now))
}

// reason returns the reason of a pause at the end of a lease.
func (l *machineLease) reason(now *control.Lease) string {
	if now.Locked != "" {
		return "the fleet " + l.fleet + " has locked the machine: " + now.Locked
	}
	return "the fleet " + l.fleet
}

// checkUnchanged returns an error if the lease is not in force any more, or if the fleet has given
// orders since l.current was read.
func (l *machineLease) checkUnchanged() error {
	got, err := l.read()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && !maps.Equal(got.Heads, l.current.Heads) {
		err = leaseError("the fleet %s has given an order while the session began: start it again", names.Quote(l.fleet))
	}
	return err
}

// checkGrants returns an error if no root may be granted.
func (l *machineLease) checkGrants() error {
	if l == nil {
		return nil
	}
	_, err := l.read()
	return err
}

// followLease reads the lease again and again until ctx ends. It pauses the session at the end of
// the lease, and ends the pause when there is a new lease.
func (s *Session) followLease(ctx context.Context) {
	wake, err := newBootTimer(ctx)
	if err != nil {
		s.log.Error("the lease cannot be followed: the session pauses when it has run out", "error", err)
		return
	}
	l := s.lease
	l.mu.Lock()
	l.wake = wake
	err = wake.set(nextLook(l.current.Left(), l.isPaused))
	l.mu.Unlock()
	for err == nil && wake.wait() == nil {
		if err := s.lookAtLease(ctx); err != nil {
			s.log.Error("the lease has run out, and not everything could be taken back", "error", err)
		}
	}
}

// lookAtLease reads the lease now. When it returns, the session is paused if the lease is over. The
// error says what could not be taken back, or that the timer for the next read could not be set.
func (s *Session) lookAtLease(ctx context.Context) (err error) {
	l := s.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	got, readErr := control.ReadLease()
	if readErr == nil && got.Fleet == l.fleet {
		l.current = got
	}
	left := l.current.Left()
	switch {
	case left > leaseOften && readErr == nil:
		l.apply(s.reg)
		l.isPaused = s.continueByLease()
	case left <= leaseOften && !l.isPaused:
		l.isPaused = true
		err = s.beginPause(ctx, guard.PausedByLease, l.reason(&l.current))
	}
	if l.wake != nil {
		err = errors.Join(err, l.wake.set(nextLook(left, l.isPaused)))
	}
	return err
}

// readLease serves control.ReadLeaseNow.
func (s *Session) readLease(ctx context.Context, _ control.None) (a control.LeaseAnswer, err error) {
	if s.lease == nil {
		return a, invalid("this machine belongs to no fleet")
	}
	err = s.lookAtLease(ctx)
	return control.LeaseAnswer{Lease: *s.leaseStatus(), Paused: s.pauses()}, err
}

// leaseStatus describes the lease; nil: the machine belongs to no fleet.
func (s *Session) leaseStatus() *control.LeaseStatus {
	l := s.lease
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return &control.LeaseStatus{
		Fleet: names.Foreign(l.fleet), Machine: names.Foreign(l.current.Machine), Locked: names.Foreign(l.current.Locked),
		LeftMS: max(l.current.Left(), 0).Milliseconds(), Written: l.current.Written,
	}
}

// continueByLease ends the pause of the lease, if there is one. It reports whether the session stays
// paused because that failed.
func (s *Session) continueByLease() (isPaused bool) {
	err := s.endPause(guard.PausedByLease)
	if err != nil && !errors.Is(err, names.NotExist) { // NotExist: there is none
		s.log.Error("there is a new lease, and the session stays paused", "error", err)
		return true
	}
	return false
}

// nextLook returns how long to wait before the lease is read again.
func nextLook(left time.Duration, isPaused bool) time.Duration {
	switch {
	case isPaused:
		return leasePaused
	case left <= leaseSoon:
		return leaseOften
	}
	return left / 2
}

// bootTimer waits by CLOCK_BOOTTIME. A timer of Go stands still while the machine sleeps.
type bootTimer struct{ f *os.File }

// newBootTimer returns a timer that ends with ctx.
func newBootTimer(ctx context.Context) (*bootTimer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a timer: %w", err)
	}
	t := &bootTimer{os.NewFile(uintptr(fd), "boot timer")}
	context.AfterFunc(ctx, func() { _ = t.f.Close() })
	return t, nil
}

// set makes wait return after d.
func (t *bootTimer) set(d time.Duration) error {
	raw, err := t.f.SyscallConn()
	if err != nil {
		return err
	}
	var setErr error
	err = raw.Control(func(fd uintptr) {
		setErr = unix.TimerfdSettime(int(fd), 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))}, nil)
	})
	return errors.Join(err, setErr)
}

// wait returns when the time has come, or with an error when the timer has ended.
func (t *bootTimer) wait() error {
	var expirations [8]byte
	_, err := t.f.Read(expirations[:])
	return err
}
