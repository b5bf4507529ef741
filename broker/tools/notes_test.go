package tools_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// If a client does not read the answer to its first request, the SDK queues the notifications that
// follow. The queue is bounded for each of these kinds of notifications. Once the client reads, the
// server reads the rest, and the client sees none of the server's own pings.
func TestStdioHoldsBoundedNotifications(t *testing.T) {
	for _, method := range []string{"notifications/roots/list_changed", "notifications/cancelled", "notifications/none"} {
		t.Run(method, func(t *testing.T) {
			t.Cleanup(tools.LowerCallBounds(heldBound))
			b := start(t, nil, nil)
			unread, theirs := io.Pipe()
			ours, w := io.Pipe()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- b.srv.Run(ctx, ours, theirs) }()
			_, err := io.WriteString(w, hello+"\n")
			testkit.Must(t, err)
			note := fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":{"requestId":1000,"_meta":{"x":"%s"}}}`+"\n", method, strings.Repeat("x", heldLine))
			var sent atomic.Int64
			stop := make(chan struct{})
			go func() {
				defer close(stop)
				for range 3 * heldBound / heldLine {
					n, err := io.WriteString(w, note)
					if err != nil {
						return
					}
					sent.Add(int64(n))
				}
			}()
			if n := settle(t, sent.Load, heldBound-2*heldLine, 3*heldBound-heldLine); n > heldBound+2*heldLine {
				t.Errorf("the server has read %d KiB of notifications that it has not handled; the bound is %d KiB", n>>10, int64(heldBound)>>10)
			}
			x := newTalker(t, w, unread)
			x.next(`"id":1,`)
			<-stop // the server has read the rest
			x.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			x.say(`{"jsonrpc":"2.0","id":7,"method":"ping"}`)
			x.next(`"id":7,`)
			for len(x.lines) > 0 {
				if line := <-x.lines; strings.Contains(line, "rootsfs-") {
					t.Errorf("the client was sent %s", line)
				}
			}
			cancel()
			_ = w.Close()
			_ = unread.Close()
			testkit.Must(t, <-ended)
		})
	}
}
