package proxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/proxy"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// A peer that does not read stops only the direction to it.
func TestSlowReader(t *testing.T) {
	for _, slow := range []string{"host", "server"} {
		l := newLab(t, nil)
		n := l.connect(nil)
		from, to := n.host, n.server
		if slow == "host" {
			from, to = n.server, n.host
		}
		stuck := `{"x":"` + strings.Repeat("x", 1<<10) + `"}` + "\n"
		const lines = 4 << 10 // more than the pipes and the proxy hold
		var wg sync.WaitGroup
		wg.Go(func() {
			for range lines {
				if _, err := io.WriteString(from.in, stuck); err != nil {
					t.Errorf("the %s writes: %v", from.name, err)
					return
				}
			}
		})
		for range 100 { // the other way, meanwhile
			n.ping(to, from)
		}
		for range lines {
			to.expect(stuck)
		}
		wg.Wait()
	}
}

// The memory that the proxy holds for a peer that does not read is bounded.
func TestSlowReader_Memory(t *testing.T) {
	l := newLab(t, nil)
	n := l.connect(nil)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	line := `{"x":"` + strings.Repeat("x", 1<<20) + `"}` + "\n"
	wrote := make(chan int)
	go func() {
		total := 0
		for range 200 {
			m, err := io.WriteString(n.server.in, line)
			if total += m; err != nil {
				break
			}
		}
		wrote <- total
	}()
	for range 50 { // the host writes, and does not read
		n.ping(n.host, n.server)
	}
	testkit.Until(n.t, "the pipes are full", func() bool {
		was := n.p.Stats().ToHost
		n.ping(n.host, n.server)
		return n.p.Stats().ToHost == was && was > 1<<20
	})
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
		t.Errorf("the proxy holds %d bytes more", grown)
	}
	_ = n.host.out.Close()
	if total := <-wrote; total >= 200<<20 {
		t.Errorf("the proxy took all %d bytes", total)
	}
}

// A server sends thousands of requests to a session that admits four at a time. Each request gets
// exactly one answer: its result, or the error QUOTA_EXCEEDED. Afterwards the host's lines pass.
func TestFlood(t *testing.T) {
	l := newLab(t, func(c *broker.Config) { c.Limits.InFlight = 4 })
	l.root("work", guard.ReadOnly, map[string]string{"a": strings.Repeat("x", 100<<10)})
	n := l.connect(nil)
	const requests = 3000
	sent := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < requests && err == nil; i++ {
			_, err = fmt.Fprintf(n.server.in, `{"jsonrpc":"2.0","id":%d,"method":"files/read","params":{"path":"work/a"}}`+"\n", i)
		}
		sent <- err
	}()
	seen := map[string]bool{}
	for range requests {
		m := n.server.message()
		if seen[string(m.ID)] || m.Error != nil && m.Error.Code != wire.Number("QUOTA_EXCEEDED") {
			t.Fatalf("%+v, seen %v", m, seen[string(m.ID)])
		}
		seen[string(m.ID)] = true
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	n.ping(n.host, n.server)
}

// A thousand requests at a time in each direction, files/* among them, are answered in any
// order.
func TestConcurrent(t *testing.T) {
	l := newLab(t, func(c *broker.Config) { c.Limits.InFlight = 2000 })
	l.root("work", guard.ReadOnly, map[string]string{"a": "text"})
	n := l.connect(nil)
	const calls = 1000
	var wg sync.WaitGroup
	wg.Go(func() { // the server: answers every call of the host's, and sends a files/* request for each
		var own sync.WaitGroup
		for range 2 * calls {
			m := n.server.message()
			if m.Method == "" {
				if !strings.Contains(string(m.Result), `"text"`) || !strings.HasPrefix(string(m.ID), `"f`) {
					t.Errorf("the server got %+v", m)
				}
				continue
			}
			own.Go(func() {
				n.server.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":"f%s","method":"files/read","params":{"path":"work/a"}}`+"\n", m.ID) +
					fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, m.Params))
			})
		}
		own.Wait()
	})
	wg.Go(func() {
		for i := range calls {
			n.host.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"n":%d}}`+"\n", i, i))
		}
	})
	seen := map[string]bool{}
	for range calls {
		m := n.host.message()
		if seen[string(m.ID)] || string(m.Result) != fmt.Sprintf(`{"n":%s}`, m.ID) {
			t.Errorf("the host got %+v", m)
		}
		seen[string(m.ID)] = true
	}
	wg.Wait()
	if st := n.p.Stats(); st.Answered != calls {
		t.Errorf("%+v", st)
	}
}

// A waiting request delays neither passing lines nor other requests.
func TestNoHeadOfLine(t *testing.T) {
	open := make(chan struct{})
	l := newLab(t, func(c *broker.Config) {
		c.Asker = broker.AskerFunc(func(ctx context.Context, _ *broker.Question) (broker.Answer, error) {
			<-open
			return broker.Answer{By: "test"}, nil
		})
	})
	l.root("work", guard.ReadOnly, map[string]string{"a": "text"})
	n := l.connect(nil)
	n.server.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"files/consent","params":{"message":"m","requestedPaths":[%q]}}`+"\n", t.TempDir()))
	for i := range 50 {
		n.ping(n.server, n.host)
		n.ping(n.host, n.server)
		n.server.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":"r%d","method":"files/read","params":{"path":"work/a"}}`+"\n", i))
		if m := n.server.message(); string(m.ID) != fmt.Sprintf(`"r%d"`, i) {
			t.Fatalf("the server got %+v", m)
		}
	}
	close(open)
	if m := n.server.message(); string(m.ID) != "1" {
		t.Errorf("the server got %+v", m)
	}
	// A later request is answered, too.
	n.server.say(`{"jsonrpc":"2.0","id":2,"method":"files/watch","params":{"path":"work"}}` + "\n")
	n.server.message()
}

// A server's cancellation of a request to the session takes effect; a cancellation of a
// request to the host passes to the host.
func TestCancelled(t *testing.T) {
	asked := make(chan struct{})
	l := newLab(t, func(c *broker.Config) {
		c.Asker = broker.AskerFunc(func(ctx context.Context, _ *broker.Question) (broker.Answer, error) {
			close(asked)
			<-ctx.Done()
			return broker.Answer{}, ctx.Err()
		})
	})
	n := l.connect(nil)
	n.server.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":"c","method":"files/consent","params":{"message":"m","requestedPaths":[%q]}}`+"\n", t.TempDir()))
	<-asked
	n.server.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c"}}` + "\n")
	testkit.Until(n.t, "the request is over", func() bool { return n.session.Stats().InFlight == 0 })
	const other = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"d"}}` + "\n"
	n.server.say(other)
	n.host.expect(other)
	n.ping(n.host, n.server) // the server got nothing before
}

// A message that is longer than Options.Frame is not carried. The peer that waits for it gets an
// error, and the session goes on.
func TestTooLong(t *testing.T) {
	l := newLab(t, nil)
	n := l.connect(func(o *proxy.Options) { o.Frame = 100 << 10 })
	long := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		from, notified *end // notified gets the error; nil: nobody
		frame, id      string
	}{
		{n.server, n.host, `{"result":{"t":"` + long + `"},"jsonrpc":"2.0","id":7}`, `7`},
		{n.server, n.host, `{"jsonrpc":"2.0","id":"a\u0062","result":["` + long + `"]}`, `"a\u0062"`},
		{n.server, n.server, `{"jsonrpc":"2.0","id":8,"method":"files/write","params":{"content":"` + long + `"}}`, `8`},
		{n.server, n.server, `{"method":"sampling/createMessage","params":"` + long + `","id":1.5}`, `1.5`},
		{n.host, n.host, `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"id":1,"x":"` + long + `"}}`, `9`},
		{n.host, n.server, `{"jsonrpc":"2.0","id":10,"result":"` + long + `"}`, `10`},
		{n.server, nil, `{"jsonrpc":"2.0","method":"notifications/x","params":"` + long + `"}`, ``},
		{n.server, nil, long, ``}, {n.host, nil, `[` + long + `]`, ``},
		{n.server, nil, `{"id":1,"result":"` + long + `","id":2}`, ``},
		{n.host, n.host, `{"jsonrpc":"2.0","id":11,"method":"x","params":"` + strings.Repeat("x", 110<<10) + `"}`, `11`},
	} {
		var wg sync.WaitGroup
		wg.Go(func() { c.from.say(c.frame + "\r\n") })
		if c.notified != nil {
			m := c.notified.message()
			if m.Error == nil || m.Error.Code != wire.CodeInvalidRequest || string(m.ID) != c.id || !strings.Contains(m.Error.Message, fmt.Sprint(100<<10)) {
				t.Errorf("%.60s: the %s got %+v", c.frame, c.notified.name, m)
			}
		}
		wg.Wait()
		n.ping(n.server, n.host)
		n.ping(n.host, n.server)
	}
	fits := `{"jsonrpc":"2.0","method":"x","params":"` + strings.Repeat("y", 100<<10-42) + `"}`
	if len(fits) != 100<<10 {
		t.Fatal(len(fits))
	}
	go n.server.say(fits + "\n")
	n.host.expect(fits + "\n")
	if st := n.p.Stats(); st.TooLong != 11 {
		t.Errorf("%+v", st)
	}
}

// The proxy takes the messages for the session out of a batch (revision 2025-03-26), and passes on
// the other messages as a batch.
func TestBatch(t *testing.T) {
	l := newLab(t, nil)
	l.root("work", guard.ReadOnly, nil)
	n := l.connect(nil)
	n.server.say(`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"roots/list"}, {"jsonrpc":"2.0","method":"n","params":{"x":1.0}} ]` + "\n")
	n.host.expect(`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"n","params":{"x":1.0}}]` + "\n")
	if m := n.server.message(); string(m.ID) != "2" || !strings.Contains(string(m.Result), "work") {
		t.Errorf("the server got %+v", m)
	}
	n.server.say(`[{"jsonrpc":"2.0","id":3,"method":"files/stat","params":{"path":"work"}}]` + "\n")
	if m := n.server.message(); string(m.ID) != "3" || m.Error != nil {
		t.Errorf("the server got %+v", m)
	}
	n.host.say(`[{"jsonrpc":"2.0","method":"notifications/roots/list_changed"},{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}]` + "\n")
	var batch []message
	if err := json.Unmarshal([]byte(n.server.hear()), &batch); err != nil || len(batch) != 1 || !strings.Contains(string(batch[0].Params), wire.Extension) {
		t.Errorf("the server got %+v, %v", batch, err)
	}
	n.ping(n.server, n.host)
}
