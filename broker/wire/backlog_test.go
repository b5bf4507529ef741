package wire

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/rootsfs/rootsfs/broker/internal/flowcontrol"
)

// A request for which there is no room waits, even if canWait reports false for a moment. If
// canWait reports false for longer, because an answer of the peer is awaited, the request is
// refused.
func TestReserveWhileThePeerIsAsked(t *testing.T) {
	for _, c := range []struct {
		name    string
		isAsked func(waited time.Duration) bool // whether an answer of the peer is awaited
		want    bool                            // whether the second request gets room
		after   time.Duration                   // how long the second request waits
	}{
		{"never", func(time.Duration) bool { return false }, true, time.Second},
		{"at first", func(w time.Duration) bool { return w <= flowcontrol.WaitStep }, true, time.Second},
		{"now and then", func(w time.Duration) bool { return w/flowcontrol.WaitStep%2 == 0 }, true, time.Second},
		{"all the time", func(time.Duration) bool { return true }, false, 2 * flowcontrol.WaitStep},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w := io.Pipe()
				go func() { _, _ = io.Copy(io.Discard, r) }()
				conn := NewLineConn(io.NopCloser(strings.NewReader("")), w, Hooks{})
				defer conn.Close()
				begun := time.Now()
				refused := 0
				conn.Bound(&flowcontrol.Budget{Count: 1}, func() bool { return !c.isAsked(time.Since(begun)) }, func(string) { refused++ })
				room, ok := conn.Reserve([]byte("1"), 10)
				if !ok {
					t.Fatal("no room for the first request")
				}
				time.AfterFunc(time.Second, room.Release)
				_, got := conn.Reserve([]byte("2"), 10)
				if waited := time.Since(begun); got != c.want || waited != c.after || (refused == 0) != c.want {
					t.Errorf("%v after %v, refused %d", got, waited, refused)
				}
				time.Sleep(2 * time.Second) // until the timer above has ended
			})
		})
	}
}

// The number of requests that the SDK has not answered is bounded. A request beyond the bound, and a
// request whose id is in use, is answered with an error under its id. Notifications and responses
// still reach the SDK.
func TestPassIsBounded(t *testing.T) {
	r, w := io.Pipe()
	c := NewLineConn(io.NopCloser(strings.NewReader("")), w, Hooks{})
	defer c.Close()
	var why string
	c.Bound(&flowcontrol.Budget{Count: 2, Bytes: 1 << 20}, nil, func(s string) { why = s })
	handed := make(chan jsonrpc.Message, 10)
	go func() {
		for {
			msg, err := c.Read(context.Background())
			if err != nil {
				return
			}
			handed <- msg
		}
	}()
	written := make(chan string)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := r.Read(buf)
			if err != nil {
				return
			}
			written <- string(buf[:n])
		}
	}()
	call := func(id string) {
		if !c.pass(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":"ping"}`, id)) {
			t.Fatal("closed")
		}
	}
	refused := func(id, text string) {
		t.Helper()
		if s := <-written; !strings.Contains(s, `"id":`+id+`,"error"`) || !strings.Contains(s, text) {
			t.Error(s)
		}
	}
	call("1")
	call(`"1"`)
	call("2")
	refused("2", "too many calls")
	if !strings.Contains(why, "too many calls") {
		t.Error(why)
	}
	c.pass([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`))
	c.pass([]byte(`{"jsonrpc":"2.0","id":2,"result":{}}`))
	c.backlog.ReleaseAnswered((<-handed).(*jsonrpc.Request).ID)
	call(`"1"`)
	refused(`"1"`, "give each its own")
	call("3")
	for _, want := range []string{"ping", "notifications/cancelled", "ping", "", "ping"} { // the second ping is from Backlog.Probe
		switch msg := (<-handed).(type) {
		case *jsonrpc.Request:
			if msg.Method != want {
				t.Errorf("%s, not %q", msg.Method, want)
			}
		case *jsonrpc.Response:
			if want != "" {
				t.Errorf("a response, not %q", want)
			}
		}
	}
}
