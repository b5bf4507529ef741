package proxy_test

import (
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker/proxy"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// After the host has closed its output, a server that waits for an answer is stopped, because the
// answer cannot come any more. The server may ask before or after the host closes its output, and
// its request may be for the session or for the host. (If it were not stopped, the server would run
// until its own timeout, which is a minute for servers on the TypeScript SDK.)
func TestHostLeaves(t *testing.T) {
	l := newLab(t, nil)
	l.root("work", guard.ReadOnly, nil)
	for _, c := range []struct{ name, before, after string }{
		{"the server asks for roots afterwards", "", `{"jsonrpc":"2.0","id":"r","method":"roots/list"}`},
		{"the server asks for a file afterwards", "", `{"jsonrpc":"2.0","id":"r","method":"files/list","params":{"path":"work"}}`},
		{"the server has asked the host before", `{"jsonrpc":"2.0","id":"r","method":"sampling/createMessage"}`, ""},
		{"the server asks the host afterwards", "", `{"jsonrpc":"2.0","id":"r","method":"ping"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			stopped := make(chan struct{})
			n := l.connect(func(o *proxy.Options) { o.Stop = func() { close(stopped) } })
			n.handshake(`{}`)
			if c.before != "" {
				n.server.say(c.before + "\n")
				n.host.expect(c.before + "\n")
			}
			_ = n.host.in.Close()
			if _, err := n.server.r.ReadByte(); err == nil {
				t.Fatal("the server's input is open")
			}
			if c.after != "" {
				n.server.say(c.after + "\n")
			}
			testkit.Until(n.t, "the server is stopped", closed(stopped))
		})
	}
}

// A server is stopped if its host neither writes nor reads any more, because nobody reads the
// server's messages.
func TestHostLeaves_HungUp(t *testing.T) {
	stopped := make(chan struct{})
	n := newLab(t, nil).connect(func(o *proxy.Options) { o.Stop = func() { close(stopped) } })
	n.handshake(`{}`)
	_, _ = n.host.in.Close(), n.host.out.Close()
	testkit.Until(n.t, "the server is stopped", closed(stopped))
}

func closed(c <-chan struct{}) func() bool {
	return func() bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
}

// A server that waits for no answer continues its work after the host has closed its output. The
// host still reads, and gets the server's output.
func TestHostLeaves_AtWork(t *testing.T) {
	n := newLab(t, nil).connect(func(o *proxy.Options) { o.Stop = func() { t.Error("the server was stopped") } })
	n.handshake(`{}`)
	const asked = `{"jsonrpc":"2.0","id":"r","method":"ping"}` + "\n"
	const answer = `{"jsonrpc":"2.0","id":"r","result":{}}` + "\n"
	n.server.say(asked)
	n.host.expect(asked)
	n.host.say(answer)
	n.server.expect(answer)
	_ = n.host.in.Close()
	time.Sleep(500 * time.Millisecond) // in this time the server would be stopped
	const result = `{"jsonrpc":"2.0","id":5,"result":{"late":true}}` + "\n"
	n.server.say(result)
	n.host.expect(result)
}
