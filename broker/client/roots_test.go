//lint:file-ignore SA1019 roots are deprecated since revision 2026-07-28 and not replaced; this package exists for them.

package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// remote is a RootsOptions.Platform for clients on another machine. Their paths are judged by
// name, so that tests need no directories.
func remote(*mcp.ServerSession) client.Platform { return client.POSIX }

// serviceOf connects h to a server that has the middleware of a new RootsService.
func serviceOf(t testing.TB, h *host, o client.RootsOptions) (*client.RootsService, *mcp.ServerSession, *mcp.ClientSession) {
	t.Helper()
	o.Broker = client.New(nil)
	if o.Platform == nil {
		o.Platform = remote
	}
	s := client.NewRootsService(&o)
	server := newServer()
	server.AddReceivingMiddleware(s.Middleware())
	ss, cs := connect(t, server, o.Broker, h, legacy)
	return s, ss, cs
}

func within(t testing.TB, s *client.RootsService, ss *mcp.ServerSession, path string) bool {
	t.Helper()
	g, err := s.Guard(bg, ss)
	if err != nil {
		t.Fatal(err)
	}
	return g.Within(path)
}

// R119, R124, R207: a client without roots is not asked, and everything is denied.
func TestRootsCapability(t *testing.T) {
	for caps, want := range map[string]bool{`{}`: false, `{"roots":{}}`: true, `{"roots":{"listChanged":true}}`: true, `{"roots":null}`: false} {
		for _, wrapped := range []bool{true, false} {
			h := newHost(t, nil)
			h.caps = caps
			h.setRoots("/a")
			o := client.RootsOptions{Platform: remote}
			if wrapped {
				o.Broker = client.New(nil)
			}
			s := client.NewRootsService(&o)
			ss, _ := connect(t, newServer(), o.Broker, h, legacy)
			g, err := s.Guard(bg, ss)
			if want != (err == nil) || g.Within("/a/x") != want || !want && !errors.Is(err, client.ErrNotSupported) {
				t.Errorf("caps %s, wrapped %v: %v", caps, wrapped, err)
			}
			if n := h.count(wire.RootsList); (n == 1) != want {
				t.Errorf("caps %s, wrapped %v: asked %d times", caps, wrapped, n)
			}
		}
	}
}

// R121: many callers at a time cause one reading of the roots, and get one guard.
func TestOneReadingForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		h.setRoots("/a")
		h.on(wire.RootsList, func(_ context.Context, p json.RawMessage) (any, error) {
			time.Sleep(time.Second) // virtual time: all callers are waiting by then
			return h.rootsList(p)
		})
		s, ss, cs := serviceOf(t, h, client.RootsOptions{})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if g, err := s.Guard(bg, ss); err != nil || !g.Within("/a") {
					t.Errorf("%v", err)
				}
			})
		}
		wg.Wait()
		a, _ := s.Guard(bg, ss)
		b, _ := s.Guard(bg, ss)
		if n := h.count(wire.RootsList); n != 1 || a != b {
			t.Errorf("%d readings, same guard %v", n, a == b)
		}
		cs.Close()
		ss.Wait()
	})
}

// A caller that gives up does not end the wait of the others.
func TestReadingOutlivesItsFirstAsker(t *testing.T) {
	h := newHost(t, nil)
	h.setRoots("/a")
	started, release := make(chan struct{}), make(chan struct{})
	h.on(wire.RootsList, func(_ context.Context, p json.RawMessage) (any, error) {
		close(started)
		<-release
		return h.rootsList(p)
	})
	s, ss, _ := serviceOf(t, h, client.RootsOptions{})
	ctx, cancel := context.WithCancel(bg)
	first := make(chan error)
	go func() { _, err := s.Guard(ctx, ss); first <- err }()
	<-started
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("first: %v", err)
	}
	second := make(chan error)
	go func() { _, err := s.Guard(bg, ss); second <- err }()
	close(release)
	if err := <-second; err != nil || h.count(wire.RootsList) != 1 {
		t.Errorf("second: %v, %d readings", err, h.count(wire.RootsList))
	}
}

// R137: after list_changed the next call of Guard sees the new roots, without waiting for the
// debounce.
func TestChangedThenWithin(t *testing.T) {
	h := newHost(t, nil)
	h.setRoots("/a")
	s, ss, cs := serviceOf(t, h, client.RootsOptions{Debounce: time.Hour})
	if !within(t, s, ss, "/a/x") {
		t.Fatal("not inside at first")
	}
	h.setRoots("/b")
	h.tell(wire.RootsChanged, nil)
	cs.Ping(bg, nil) // comes after the notification
	if within(t, s, ss, "/a/x") || !within(t, s, ss, "/b/x") {
		t.Error("Guard uses the old roots")
	}
	if n := h.count(wire.RootsList); n != 2 {
		t.Errorf("%d readings", n)
	}
}

// storm sends n notifications in a bubble of virtual time. apart is the time between two of them.
// It returns the times of the readings that follow, counted from the first notification.
func storm(t *testing.T, n int, apart time.Duration, o client.RootsOptions) (readings []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		h.setRoots("/a")
		s, ss, cs := serviceOf(t, h, o)
		if !within(t, s, ss, "/a") {
			t.Fatal("not inside at first")
		}
		start := time.Now()
		h.on(wire.RootsList, func(_ context.Context, p json.RawMessage) (any, error) {
			readings = append(readings, time.Since(start))
			return h.rootsList(p)
		})
		for i := range n {
			h.setRoots(fmt.Sprintf("/r%d", i))
			h.tell(wire.RootsChanged, nil)
			time.Sleep(apart)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		before := len(readings)
		if !o.IgnoreChanges && !within(t, s, ss, fmt.Sprintf("/r%d/x", n-1)) { // R144: client and server agree
			t.Error("Guard does not use the last state")
		}
		if len(readings) != before && !o.IgnoreChanges {
			t.Error("Guard read the roots again after the refresh in the background")
		}
		cs.Close()
		ss.Wait()
	})
	return readings
}

// R120, R143, R144, R177, R178, R179: ten notifications
// 50 ms apart cause one reading, 250 ms after the last notification.
func TestDebounce(t *testing.T) {
	for _, tc := range []struct {
		name  string
		n     int
		apart time.Duration
		o     client.RootsOptions
		want  []time.Duration
	}{
		{"R177 one", 1, 0, client.RootsOptions{}, []time.Duration{250 * time.Millisecond}},
		{"R177 ten", 10, 50 * time.Millisecond, client.RootsOptions{}, []time.Duration{700 * time.Millisecond}},
		{"R178 one second", 10, 50 * time.Millisecond, client.RootsOptions{Debounce: time.Second}, []time.Duration{1450 * time.Millisecond}},
		{"R179 at most four delays", 30, 90 * time.Millisecond, client.RootsOptions{},
			[]time.Duration{time.Second, 2080 * time.Millisecond, 2860 * time.Millisecond}},
		{"R226 switched off", 10, 50 * time.Millisecond, client.RootsOptions{IgnoreChanges: true}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := storm(t, tc.n, tc.apart, tc.o)
			if fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("read at %v, want %v", got, tc.want)
			}
		})
	}
}

// R120: after an error in a refresh the last state stays in force. After an error in the first
// reading everything is denied.
func TestErrorKeepsLastState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		h.setRoots("/a")
		broken := func(context.Context, json.RawMessage) (any, error) {
			return nil, &jsonrpc.Error{Code: wire.CodeInternal, Message: "disk on fire"}
		}
		h.on(wire.RootsList, broken)
		s, ss, cs := serviceOf(t, h, client.RootsOptions{})
		if g, err := s.Guard(bg, ss); err == nil || g.Within("/a") {
			t.Errorf("first: %v", err)
		}
		h.on(wire.RootsList, nil)
		if !within(t, s, ss, "/a") {
			t.Error("the service does not recover after an error in the first reading")
		}
		h.on(wire.RootsList, broken)
		h.tell(wire.RootsChanged, nil)
		time.Sleep(time.Second)
		before := h.count(wire.RootsList)
		for range 5 {
			if !within(t, s, ss, "/a") || s.Version(ss) != 1 {
				t.Error("the last state is lost")
			}
		}
		if n := h.count(wire.RootsList) - before; n > 1 {
			t.Errorf("a broken client was asked %d times for 5 calls of Guard", n)
		}
		h.on(wire.RootsList, nil)
		h.setRoots("/b")
		h.tell(wire.RootsChanged, nil)
		time.Sleep(time.Second)
		if within(t, s, ss, "/a") || !within(t, s, ss, "/b") {
			t.Error("the service does not recover after an error in a refresh")
		}
		cs.Close()
		ss.Wait()
	})
}

// A change that is announced during a reading causes another reading.
func TestChangeDuringReading(t *testing.T) {
	h := newHost(t, nil)
	h.setRoots("/a")
	s, ss, cs := serviceOf(t, h, client.RootsOptions{Debounce: time.Hour})
	var once sync.Once
	h.on(wire.RootsList, func(_ context.Context, p json.RawMessage) (any, error) {
		res, err := h.rootsList(p)
		once.Do(func() {
			h.setRoots("/b")
			h.tell(wire.RootsChanged, nil) // arrives before the reply
			cs.Ping(bg, nil)
		})
		return res, err
	})
	if !within(t, s, ss, "/b") || within(t, s, ss, "/a") {
		t.Error("Guard uses the state from before the change")
	}
}

// Refresh reads the present state. It does not use the result of a reading that began before the
// call of Refresh.
func TestRefreshDuringReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		h.setRoots("/a")
		release := make(chan struct{})
		h.on(wire.RootsList, func(_ context.Context, p json.RawMessage) (any, error) {
			res, err := h.rootsList(p)
			<-release
			return res, err
		})
		s, ss, cs := serviceOf(t, h, client.RootsOptions{})
		guard, refresh := make(chan error, 1), make(chan error, 1)
		go func() { guard <- second(s.Guard(bg, ss)) }()
		synctest.Wait() // the reading has the old roots
		h.setRoots("/b")
		go func() { refresh <- s.Refresh(bg, ss) }()
		synctest.Wait()
		close(release)
		if err := errors.Join(<-guard, <-refresh); err != nil {
			t.Error(err)
		}
		if n := h.count(wire.RootsList); n != 2 || s.Version(ss) != 2 || !within(t, s, ss, "/b/x") {
			t.Errorf("%d readings, version %d", n, s.Version(ss))
		}
		cs.Close()
		ss.Wait()
	})
}

// OnRefresh may call the service, a slow OnRefresh delays no caller, and its calls come in
// order.
func TestOnRefreshMayCallService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		h.setRoots("/a")
		var s *client.RootsService
		var versions []uint64
		release := make(chan struct{})
		s, ss, cs := serviceOf(t, h, client.RootsOptions{OnRefresh: func(ss *mcp.ServerSession, snap client.Snapshot) {
			<-release
			if _, err := s.Guard(bg, ss); err != nil {
				t.Error(err)
			}
			if snap.Version == 1 {
				if err := s.Refresh(bg, ss); err != nil {
					t.Error(err)
				}
			}
			versions = append(versions, snap.Version)
		}})
		for range 3 {
			if err := s.Refresh(bg, ss); err != nil {
				t.Error(err)
			}
		}
		close(release)
		synctest.Wait()
		if fmt.Sprint(versions) != "[1 2 3 4]" {
			t.Errorf("OnRefresh got the versions %v", versions)
		}
		cs.Close()
		ss.Wait()
	})
}

// R210, R211: each session has one entry, which ends with the session. Versions grow.
func TestEntries(t *testing.T) {
	h := newHost(t, nil)
	h.setRoots("/a")
	var seen []uint64
	var mu sync.Mutex
	s, ss, cs := serviceOf(t, h, client.RootsOptions{OnRefresh: func(_ *mcp.ServerSession, snap client.Snapshot) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, snap.Version)
	}})
	if s.Version(ss) != 0 || s.Sessions() != 0 {
		t.Error("there is an entry or a version before the first call")
	}
	old, err := s.Snapshot(bg, ss)
	if err != nil {
		t.Fatal(err)
	}
	for want := uint64(2); want < 5; want++ {
		h.setRoots(fmt.Sprintf("/v%d", want))
		if err := s.Refresh(bg, ss); err != nil || s.Version(ss) != want {
			t.Fatalf("version %d, %v", s.Version(ss), err)
		}
	}
	if old.Version != 1 || !old.Guard.Within("/a/x") || old.Guard.Within("/v4") {
		t.Error("an old snapshot changed")
	}
	if s.Sessions() != 1 {
		t.Errorf("%d entries", s.Sessions())
	}
	cs.Close()
	ss.Wait()
	versions := func() string {
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprint(seen)
	}
	testkit.Until(t, "the end of the session and all calls of OnRefresh", func() bool {
		return s.Sessions() == 0 && len(versions()) >= len("[1 2 3 4]")
	})
	if versions() != "[1 2 3 4]" {
		t.Errorf("OnRefresh got the versions %s", versions())
	}
}

// The roots of a client that announces no changes are used for a limited time only.
func TestMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		h.caps = `{"roots":{}}`
		h.setRoots("/a")
		s, ss, cs := serviceOf(t, h, client.RootsOptions{})
		if !within(t, s, ss, "/a") {
			t.Error("not inside")
		}
		h.setRoots("/b")
		time.Sleep(29 * time.Second)
		if !within(t, s, ss, "/a") {
			t.Error("the roots were read again too early")
		}
		time.Sleep(2 * time.Second)
		if within(t, s, ss, "/a") || !within(t, s, ss, "/b") {
			t.Error("the old roots were used for too long")
		}
		cs.Close()
		ss.Wait()
	})
}

// R220: roots from start-up and roots that come later are seen, with a plain client of the SDK
// and a transport that is not wrapped.
func TestPlainSDKClient(t *testing.T) {
	c := mcp.NewClient(&mcp.Implementation{Name: "plain", Version: "1"}, nil)
	c.AddRoots(&mcp.Root{URI: "file:///static"})
	s := client.NewRootsService(&client.RootsOptions{Platform: remote, Debounce: time.Millisecond})
	server := newServer()
	server.AddReceivingMiddleware(s.Middleware())
	st, ct := mcp.NewInMemoryTransports()
	ss, err := server.Connect(bg, st, nil)
	if err != nil {
		t.Fatal(err)
	}
	cs, err := c.Connect(bg, ct, &mcp.ClientSessionOptions{ProtocolVersion: legacy})
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	if !within(t, s, ss, "/static/x") || within(t, s, ss, "/dynamic/x") {
		t.Error("static roots")
	}
	c.AddRoots(&mcp.Root{URI: names.FormatURI("/dynamic")}) // notifies
	cs.Ping(bg, nil)
	if !within(t, s, ss, "/dynamic/x") {
		t.Error("dynamic roots")
	}
}
