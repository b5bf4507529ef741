package vfs

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
)

type hangingOpener struct{ guard.Opener }

func (o hangingOpener) OpenRoot(path string) (guard.Source, error) {
	s, err := o.Opener.OpenRoot(path)
	return hangingSource{s}, err
}

type hangingSource struct{ guard.Source }

func (hangingSource) Remote() bool { return true }

// newHanging returns a tree on a source that can hang, and a request on it.
func newHanging(t *testing.T, timeout time.Duration) (*Tree, guard.Request) {
	t.Helper()
	reg := guard.NewRegistry(guard.Config{Opener: hangingOpener{Opener()}})
	_, err := reg.Grant(context.Background(), guard.Grant{Root: "r", Dir: names.Foreign(t.TempDir()), Origin: "test",
		Policy: guard.Policy{Rights: guard.ReadWrite, Limits: guard.Limits{Timeout: timeout}}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := guard.NewPath("r", "")
	if err != nil {
		t.Fatal(err)
	}
	return New(reg), guard.Request{Caller: guard.Caller{Via: guard.ViaFUSE}, Op: names.OpGetattr, Path: p}
}

// An operation that hangs is answered when its root or its context ends, or when its time is
// up. Its late result is dropped once, and the root's directory stays open until then. R070,
// R079.
func TestHangingOperation(t *testing.T) {
	for name, c := range map[string]struct {
		timeout time.Duration
		end     func(tr *Tree, cancel func())
		want    guard.Kind
	}{
		"revoked":   {0, func(tr *Tree, _ func()) { _, _ = tr.reg.Revoke(context.Background(), "r") }, names.Revoked},
		"cancelled": {0, func(_ *Tree, cancel func()) { cancel() }, names.IO},
		"timed out": {time.Millisecond, func(*Tree, func()) {}, names.Timeout},
	} {
		t.Run(name, func(t *testing.T) {
			tr, req := newHanging(t, c.timeout)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			started, release, dropped := make(chan struct{}), make(chan struct{}), make(chan int, 2)
			var dirOK atomic.Bool
			answered := make(chan error, 1)
			go func() {
				_, err := gate.Do(ctx, tr.reg, req, func(v int) { dropped <- v }, func(l *guard.Lease) (int, int64, error) {
					close(started)
					<-release
					d, err := dirAt(l, At{Path: req.Path})
					dirOK.Store(err == nil)
					d.Close()
					return 42, 0, nil
				})
				answered <- err
			}()
			<-started
			c.end(tr, cancel)
			if err := <-answered; !errors.Is(err, c.want) {
				t.Errorf("answered %v, want %v", err, c.want)
			}
			close(release)
			if v := <-dropped; v != 42 {
				t.Errorf("dropped %d", v)
			}
			if !dirOK.Load() {
				t.Error("the root's descriptor was closed under the operation")
			}
			select {
			case v := <-dropped:
				t.Errorf("dropped twice: %d", v)
			default:
			}
		})
	}
}

// A panic in a detached operation is an error of that operation, and the next
// one works.
func TestPanicInDetachedOperation(t *testing.T) {
	tr, req := newHanging(t, 0)
	_, err := gate.Do(context.Background(), tr.reg, req, nil, func(*guard.Lease) (int, int64, error) { panic("a bug") })
	if !errors.Is(err, names.Internal) || !strings.Contains(err.Error(), "a bug") {
		t.Errorf("%v", err)
	}
	v, err := gate.Do(context.Background(), tr.reg, req, nil, func(*guard.Lease) (int, int64, error) { return 7, 0, nil })
	if v != 7 || err != nil {
		t.Errorf("%d, %v", v, err)
	}
	if st, _ := tr.reg.Lookup("r"); st.InFlight != 0 {
		t.Errorf("%d operations in flight", st.InFlight)
	}
}

// A panic in an operation that is not detached reaches the front end, after the operation's
// lease was settled.
func TestPanicSettlesTheLease(t *testing.T) {
	reg := guard.NewRegistry(guard.Config{Opener: Opener()})
	if _, err := reg.Grant(context.Background(), guard.Grant{Root: "r", Dir: names.Foreign(t.TempDir()), Origin: "test", Policy: guard.Policy{Rights: guard.Read}}); err != nil {
		t.Fatal(err)
	}
	p, _ := guard.NewPath("r", "")
	req := guard.Request{Caller: guard.Caller{Via: guard.ViaFUSE}, Op: names.OpGetattr, Path: p}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = gate.Do(context.Background(), reg, req, nil, func(*guard.Lease) (int, int64, error) { panic("a bug") })
	}()
	if st, _ := reg.Lookup("r"); st.InFlight != 0 {
		t.Errorf("%d operations in flight", st.InFlight)
	}
}

// Until a write that was answered early has ended, it is charged for all the bytes that it may
// write. After that, it is charged for the bytes that it wrote.
func TestAbandonedWriteCounts(t *testing.T) {
	tr, req := newHanging(t, 0)
	req.Op, req.Bytes = names.OpWrite, 10
	ctx, cancel := context.WithCancel(t.Context())
	release, settled := make(chan struct{}), make(chan struct{})
	written := func(want int64) {
		t.Helper()
		if st, _ := tr.reg.Lookup("r"); st.Written != want {
			t.Errorf("%d bytes count as written, want %d", st.Written, want)
		}
	}
	_, err := gate.Do(ctx, tr.reg, req, func(struct{}) { close(settled) }, func(*guard.Lease) (struct{}, int64, error) {
		cancel()
		<-release
		return struct{}{}, 4, nil
	})
	if names.Reason(err) != names.IO {
		t.Errorf("answered with %v", err)
	}
	written(10)
	close(release)
	<-settled
	written(4)
}
