package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/proxy"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// strange holds odd lines that a proxy must pass unchanged.
var strange = []string{
	`{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/call","params":{"a":1.50,"b":1e400,"c":-0,"a":2}}` + "\n",
	`{"jsonrpc":"2.0","id":1.5,"result":{"x":{"k":1,"k":2}},"unknown":[1,2,{"y":null}]}` + "\r\n",
	`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"\u00e9\ud800"}}` + "\n",
	" \t{ \"jsonrpc\" : \"2.0\" , \"method\" : \"x\" } \r\n", "\n", "\r\n", "   \n",
	`{"jsonrpc":"2.0","id":` + strings.Repeat("9", 500) + `,"method":"ping"}` + "\n",
	`{"jsonrpc":"2.0","id":"` + strings.Repeat("i", 5000) + `","result":{}}` + "\n",
	`[{"jsonrpc":"2.0","id":1,"method":"a"}, {"jsonrpc":"2.0","id":2,"result":1e5}]` + "\n", "[]\n", "[1, 2]\n",
	`{"jsonrpc":"2.0","id":4,"method":"files"}` + "\n",
	`{"jsonrpc":"2.0","id":6,"result":{"method":"roots/list","id":5,"text":"files/read"}}` + "\n",
	`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"_meta":{"progressToken":1.0},"arguments":"io.modelcontextprotocol"}}` + "\n",
	`{"jsonrpc":"2.0","id":8,"result":{"t":"` + strings.Repeat(`a\"b\\`, 100_000) + `"}}` + "\n",
	`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}` + "\n",
	`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}` + "\n",
	`{"jsonrpc":"2.0","id":9,"method":"sampling/createMessage","params":{}}` + "\n",
}

// broken holds texts that different hosts read differently. A host may always send these texts. A
// server may send them only before the peers speak MCP.
var broken = []string{
	"Server started on port 8080\n", "{not json}\n", "{\"a\":\n", "]\n", "\xff\xfe{\"id\":1}\n", "\ufeff{}\n", "{\"\xff\":\"\xfe\"}\n", "\x00\x01\n",
	`"text"` + "\n", "5\n", "null\n", `{"deep":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}` + "\n",
	"and a last line without an end",
}

// In every mode and both directions, the text that passes is unchanged byte for byte, including a
// last line without an end. Once the peers speak MCP, the broken texts of the server do not pass.
func TestBytes(t *testing.T) {
	l := newLab(t, nil)
	good := strings.Join(strange, "")
	all := good + strings.Join(broken, "")
	for _, m := range []proxy.Mode{proxy.On, proxy.Auto, proxy.Off} {
		n := l.connect(func(o *proxy.Options) { o.Mode = m })
		first := ""
		if m == proxy.Auto { // the line that shows that this is MCP
			first = strange[0]
		}
		var wg sync.WaitGroup
		for _, way := range []struct{ from, to *end }{{n.host, n.server}, {n.server, n.host}} {
			wg.Go(func() {
				_, _ = io.WriteString(way.from.in, first+all)
				_ = way.from.in.Close()
			})
			wg.Go(func() {
				got, err := io.ReadAll(way.to.r)
				all := all
				if way.to == n.host && m != proxy.Off {
					all = good
					answered := bytes.Count(got, []byte("not exactly one JSON-RPC message")) // the line whose id can be read
					got = regexp.MustCompile(`.*"error":{"code":-32600,.*not exactly one JSON-RPC message.*\n`).ReplaceAll(got, nil)
					if refused := n.p.Stats().Refused; refused != int64(len(broken)) || answered != 1 {
						t.Errorf("mode %v: %d lines were refused, %d answered", m, refused, answered)
					}
				}
				if string(got) != first+all || err != nil {
					i := 0
					for i < min(len(got), len(all)) && got[i] == (first + all)[i] {
						i++
					}
					t.Errorf("mode %v: %d bytes from the %s arrived as %d, different from byte %d: %.80q, %v",
						m, len(all), way.from.name, len(got), i, got[i:], err)
				}
			})
		}
		wg.Wait()
		if err := <-n.done; err != nil {
			t.Errorf("mode %v: Run: %v", m, err)
		}
		n.done <- nil
		if got, want := n.p.Stats().MCP, m != proxy.Off; got != want {
			t.Errorf("mode %v: found MCP %v", m, got)
		}
	}
}

// A child process writes the same bytes with and without the proxy.
func TestBytes_Child(t *testing.T) {
	l := newLab(t, nil)
	all := []byte(strings.Join(strange, ""))
	run := func(through bool) []byte {
		cmd := exec.Command("sh", "-c", `echo '{"started":1}'; tr 0-8 1-9; echo "{\"ended\":$?}"`)
		if !through {
			cmd.Stdin = bytes.NewReader(all)
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		in, out, gone := child(t, cmd)
		var got bytes.Buffer
		err := proxy.Run(context.Background(), proxy.Options{
			Host: io.NopCloser(bytes.NewReader(all)), HostOut: nopCloser{&got}, Server: in, ServerOut: out,
			Session: l.b.Session("child"), Mode: proxy.On, Gone: gone,
		})
		if err != nil {
			t.Fatal(err)
		}
		return got.Bytes()
	}
	if with, without := run(true), run(false); !bytes.Equal(with, without) {
		t.Errorf("%d bytes with the proxy, %d without", len(with), len(without))
	}
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// child starts cmd with pipes that the test has made. gone is closed when cmd has ended.
func child(t testing.TB, cmd *exec.Cmd) (in, out *os.File, gone <-chan struct{}) {
	t.Helper()
	inR, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout = inR, outW
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = inR.Close(), outW.Close()
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	return in, out, ended
}

// If one direction ends, its end is passed on and the other direction stays open.
func TestHalfClose(t *testing.T) {
	l := newLab(t, nil)
	n := l.connect(nil)
	n.host.say("half a line")
	_ = n.host.in.Close()
	if got, err := io.ReadAll(n.server.r); string(got) != "half a line" || err != nil {
		t.Fatalf("the server got %q, %v", got, err)
	}
	n.server.say(`{"still":"here"}` + "\n" + `{"and":"half a line"}`)
	n.host.expect(`{"still":"here"}` + "\n")
	_ = n.server.in.Close()
	if got, err := io.ReadAll(n.host.r); string(got) != `{"and":"half a line"}` || err != nil {
		t.Fatalf("the host got %q, %v", got, err)
	}
	if err := <-n.done; err != nil {
		t.Errorf("Run: %v", err)
	}
	n.done <- nil

	n = l.connect(nil) // the server's output ends first
	_ = n.server.in.Close()
	if got, err := io.ReadAll(n.host.r); len(got) != 0 || err != nil {
		t.Fatalf("the host got %q, %v", got, err)
	}
	n.host.say("more\n")
	n.server.expect("more\n")
}

// The last message of a stream is handled even if its line has no end.
func TestHalfClose_LastMessage(t *testing.T) {
	l := newLab(t, nil)
	l.root("work", guard.ReadOnly, nil)
	n := l.connect(nil)
	n.server.say(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
	_ = n.server.in.Close()
	if m := n.server.message(); !strings.Contains(string(m.Result), "work") {
		t.Errorf("the server got %+v", m)
	}
	if got, err := io.ReadAll(n.host.r); len(got) != 0 || err != nil {
		t.Errorf("the host got %q, %v", got, err)
	}
	n.host.say(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"capabilities":{}}}`)
	_ = n.host.in.Close()
	if got, err := io.ReadAll(n.server.r); !strings.Contains(string(got), wire.Extension) || !bytes.HasSuffix(got, []byte("}")) || err != nil {
		t.Errorf("the server got %q, %v", got, err)
	}
}

// When the host leaves, the server still gets the answers to its earlier requests. The test raises
// drainTimeout, because the last answers may come after the usual time on a machine under load.
func TestHalfClose_Answers(t *testing.T) {
	proxy.SetDrain(t, testkit.Patience)
	l := newLab(t, nil)
	l.root("work", guard.ReadOnly, map[string]string{"a": strings.Repeat("x", 100<<10)})
	n := l.connect(nil)
	const requests = 10 // their answers do not fit into the pipe to the server
	for i := range requests {
		n.server.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"files/read","params":{"path":"work/a"}}`+"\n", i))
	}
	n.ping(n.server, n.host)
	_ = n.host.in.Close()
	for range requests {
		if m := n.server.message(); m.Error != nil {
			t.Fatalf("the server got %+v", m)
		}
	}
	if rest, err := io.ReadAll(n.server.r); len(rest) != 0 || err != nil {
		t.Errorf("then %q, %v", rest, err)
	}
}

// stuck is an unread stream whose Close does not end a Write, like a standard output that
// is a pipe.
type stuck chan struct{}

func (s stuck) Write([]byte) (int, error) { <-s; return 0, io.ErrClosedPipe }
func (s stuck) Close() error              { return nil }

// If a server's last message is too long to be carried, the host gets an error for the message
// before the stream ends.
func TestHalfClose_LastMessageTooLong(t *testing.T) {
	l := newLab(t, nil)
	for range 100 {
		n := l.connect(func(o *proxy.Options) { o.Frame = 1000 })
		n.server.say(`{"jsonrpc":"2.0","id":7,"result":"` + strings.Repeat("x", 1000) + `"}`)
		_ = n.server.in.Close()
		if m := n.host.message(); string(m.ID) != "7" || m.Error == nil || !strings.Contains(m.Error.Message, "longer than the 1000 bytes") {
			t.Fatalf("the host got %+v", m)
		}
		if _, err := n.host.r.ReadByte(); !errors.Is(err, io.EOF) {
			t.Fatalf("then %v", err)
		}
		n.end()
	}
}

// The proxy ends a direction when the reader of that direction has gone. It ends both directions
// when the context of Run ends, or when the server is known to be gone (Options.Gone).
func TestHangUps(t *testing.T) {
	l := newLab(t, nil)
	t.Run("the server reads no more", func(t *testing.T) {
		n := l.connect(nil)
		_ = n.server.out.Close()
		testkit.Until(n.t, "the host is told", func() bool {
			_, err := io.WriteString(n.host.in, "x\n")
			return err != nil
		})
		n.server.say(`{"but":"writes"}` + "\n")
		n.host.expect(`{"but":"writes"}` + "\n")
	})
	t.Run("the host reads no more", func(t *testing.T) {
		n := l.connect(nil)
		_ = n.host.out.Close()
		testkit.Until(n.t, "the server is told", func() bool {
			_, err := io.WriteString(n.server.in, "x\n")
			return err != nil
		})
	})
	t.Run("the server reads no more, the host sends nothing that is carried", func(t *testing.T) {
		n := l.connect(func(o *proxy.Options) { o.Frame = 1000 })
		_ = n.server.out.Close()
		testkit.Until(n.t, "the host is told", func() bool {
			_, err := io.WriteString(n.host.in, "of a line without an end ")
			return err != nil
		})
	})
	t.Run("the host reads no more, the server sends nothing that is carried", func(t *testing.T) {
		for _, what := range []string{"of a line without an end ", `{"jsonrpc":"2.0","id":1,"method":"roots/list"}` + "\n"} {
			n := l.connect(func(o *proxy.Options) { o.Frame = 1000 })
			_ = n.host.out.Close()
			go func() { _, _ = io.Copy(io.Discard, n.server.r) }() // the server reads
			testkit.Until(n.t, "the server is told", func() bool {
				_, err := io.WriteString(n.server.in, what)
				return err != nil
			})
		}
	})
	t.Run("the host reads nothing", func(t *testing.T) {
		out := make(stuck)
		defer close(out)
		n := l.connect(func(o *proxy.Options) { o.Frame, o.HostOut = 1000, out })
		for range 3 { // one of them waits to be written, and the others wait for it
			n.server.say(`{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", 1000) + `"}` + "\n")
		}
		testkit.Until(n.t, "all is read", func() bool { return n.p.Stats().TooLong == 3 })
		why := errors.New("enough")
		n.cancel(why)
		if err := <-n.done; !errors.Is(err, why) {
			t.Errorf("Run: %v", err)
		}
		n.done <- nil
	})
	t.Run("context", func(t *testing.T) {
		n := l.connect(nil)
		why := errors.New("enough")
		n.cancel(why)
		if err := <-n.done; !errors.Is(err, why) {
			t.Errorf("Run: %v", err)
		}
		n.done <- nil
		if _, err := n.server.r.ReadByte(); err == nil {
			t.Error("the server's input is open")
		}
	})
	t.Run("gone", func(t *testing.T) {
		gone := make(chan struct{})
		n := l.connect(func(o *proxy.Options) { o.Gone = gone })
		n.server.say(`{"last":"words"}` + "\n")
		close(gone)
		_ = n.server.in.Close()
		n.host.expect(`{"last":"words"}` + "\n")
		if err := <-n.done; err != nil { // though the host's input is open
			t.Errorf("Run: %v", err)
		}
		n.done <- nil
	})
	t.Run("in the middle of requests", func(t *testing.T) {
		wait := make(chan struct{})
		l := newLab(t, func(c *broker.Config) {
			c.Asker = broker.AskerFunc(func(ctx context.Context, _ *broker.Question) (broker.Answer, error) {
				close(wait)
				<-ctx.Done()
				return broker.Answer{}, ctx.Err()
			})
		})
		n := l.connect(nil)
		n.server.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"files/consent","params":{"message":"m","requestedPaths":[%q]}}`+"\n", t.TempDir()))
		<-wait
		n.end()
	})
}

// In both directions the number of messages in a batch is bounded. A longer batch is not passed
// on: its sender gets an error, and the session continues. A longer batch of the server causes
// one record. (Otherwise a line of half a million messages could cause as many records.)
func TestBatchOfTooMany(t *testing.T) {
	l := newLab(t, nil)
	n := l.connect(nil)
	n.handshake(`{}`)
	batch := func(messages int) string {
		return "[" + strings.Repeat(`{"jsonrpc":"2.0","method":"notifications/x"},`, messages-1) + `{"jsonrpc":"2.0","method":"notifications/y"}]` + "\n"
	}
	for _, way := range []struct{ from, to *end }{{n.host, n.server}, {n.server, n.host}} {
		most := batch(wire.MaxBatch)
		way.from.say(most)
		way.to.expect(most)
		way.from.say(batch(wire.MaxBatch + 1))
		if m := way.from.message(); m.Error == nil || string(m.ID) != "null" || !strings.Contains(m.Error.Message, "send fewer") {
			t.Errorf("the %s got %+v", way.from.name, m)
		}
		n.ping(way.from, way.to)
	}
	if got := l.countRecords("more than the 1000 messages"); got != 1 {
		t.Errorf("%d records of the server's batch, want 1", got)
	}
	if st := n.p.Stats(); st.Refused != 2 {
		t.Errorf("%+v", st)
	}
}
