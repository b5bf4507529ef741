package tools_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// Over a pair of streams, a line that is not a message gets an error, and the session goes on. Ids
// come back unchanged. When the client hangs up, the session ends.
func TestLines(t *testing.T) {
	longest, restore := tools.LowerFrame()
	t.Cleanup(restore)
	b := start(t, nil, nil)
	b.root("code", guard.ReadOnly, "a=one <&>\u2028 \"two\"")
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- b.srv.Run(context.Background(), in, out) }()
	answers := bufio.NewReader(fromServer)
	ask := func(line string) string {
		t.Helper()
		_, err := io.WriteString(toServer, line+"\n")
		testkit.Must(t, err)
		answer, err := answers.ReadString('\n')
		testkit.Must(t, err)
		return answer
	}
	if got := ask(hello); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":1,"result":{`) {
		t.Errorf("%s", got)
	}
	_, err := io.WriteString(toServer, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n\n")
	testkit.Must(t, err)
	for line, want := range map[string]string{
		"nonsense": `"id":null,"error":`,
		"[]":       `"id":null,"error":`,
		"{}":       `"id":null,"error":`,
		`{"jsonrpc":"2.0","id":"x \"y\"","method":"ping"}`:           `{"jsonrpc":"2.0","id":"x \"y\"","result":{}}`,
		`{"jsonrpc":"2.0","id":9007199254740991,"method":"nothing"}`: `"id":9007199254740991`,
		`[{"jsonrpc":"2.0","id":7,"method":"ping"}]`:                 `{"jsonrpc":"2.0","id":7,"result":{}}`,
		strings.Repeat("x", longest):                                 fmt.Sprintf("longer than %d bytes", longest),
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"code/a"}}}`:    `"id":3,"result":{"content":[{"type":"text","text":"one <&>  \"two\""}],"structuredContent":{"content":"one <&>  \"two\""}}}`,
		`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"code/none"}}}`: `code/none: no such file or directory"}],"isError":true}}`,
		`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"write_file","arguments":{}}}`:                       `"id":5,"error":{"code":-32602`,
		`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"read_text_file","name":"x"}}`:                       `"id":6,"error":`,
	} {
		if got := ask(line); !strings.Contains(got, want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%.80s: %s; want %s", line, got, want)
		}
	}
	testkit.Must(t, toServer.Close())
	if err := <-ended; err != nil {
		t.Errorf("the session ended with %v", err)
	}
}

// A call over lines can be cancelled. It is then not answered, and the session continues.
func TestLinesCancel(t *testing.T) {
	b := start(t, nil, nil)
	dir := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("1"), 0o600))
	// The root lacks the right to watch, because a watch of its files would count towards the
	// limit, before or after the first call.
	_, err := b.reg.Grant(context.Background(), guard.Grant{Root: "slow", Dir: names.Foreign(dir), Origin: "test",
		Policy: guard.Policy{Rights: guard.ReadOnly &^ guard.Watch, Limits: guard.Limits{OpsPerSecond: 0.05, Burst: 1}}})
	testkit.Must(t, err)
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- b.srv.Run(context.Background(), in, out) }()
	answers := bufio.NewReader(fromServer)
	for _, line := range []string{hello, `{"jsonrpc":"2.0","method":"notifications/initialized"}`} {
		_, err := io.WriteString(toServer, line+"\n")
		testkit.Must(t, err)
	}
	next := func() string {
		t.Helper()
		line, err := answers.ReadString('\n')
		testkit.Must(t, err)
		return line
	}
	next()
	// The second operation waits for many seconds.
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"slow/f"}}}`,
		`{"jsonrpc":"2.0","id":"4","method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"slow/f"}}}`,
	} {
		_, err := io.WriteString(toServer, line+"\n")
		testkit.Must(t, err)
	}
	first := next()
	for _, id := range []string{"2", `"4"`} {
		if strings.Contains(first, `"id":`+id+",") {
			continue
		}
		_, err := io.WriteString(toServer, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`,"reason":"test"}}`+"\n")
		testkit.Must(t, err)
	}
	_, err = io.WriteString(toServer, `{"jsonrpc":"2.0","id":9,"method":"ping"}`+"\n")
	testkit.Must(t, err)
	if got := next(); !strings.Contains(got, `"id":9`) {
		t.Errorf("a cancelled call was answered: %s", got)
	}
	go func() { _, _ = io.Copy(io.Discard, answers) }() // needed only if the test has failed
	testkit.Must(t, toServer.Close())
	if err := <-ended; err != nil {
		t.Errorf("the session ended with %v", err)
	}
}

// A client sends its last lines, most of which are no messages, and hangs up. The server gives the
// lines their answers. Then Run ends, without waiting for the hour that SetPatience sets.
func TestHangUpAfterInvalidLines(t *testing.T) {
	t.Cleanup(tools.SetPatience(time.Hour))
	longest, restore := tools.LowerFrame()
	t.Cleanup(restore)
	for name, c := range map[string]struct {
		sent    string
		answers int
	}{
		"no JSON":            {"garbage\n", 1},
		"many lines":         {strings.Repeat("garbage\n", 200), 200},
		"half a line":        {`{"jsonrpc":"2.0","id":1,"me`, 0},
		"a line and a half":  {"garbage\n" + `{"jsonrpc"`, 1},
		"a batch, no JSON":   {"[garbage\n", 1},
		"an empty batch":     {"[]\n", 1},
		"a batch of numbers": {"[1,2]\n", 2},
		"invalid UTF-8":      {"\xff\xfe\n", 1},
		"too long":           {strings.Repeat("x", longest) + "\n", 1},
		"a number":           {"7\n", 1},
		"an empty object":    {"{}\n", 1},
		"an answer":          {`{"jsonrpc":"2.0","id":1,"result":{}}` + "\n", 0},
		"an id twice":        {strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n", 2), 2},
		"a notification":     {`{"jsonrpc":"2.0","method":"notifications/none"}` + "\n", 0},
	} {
		for _, handshake := range []string{"", hello + "\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"} {
			t.Run(name+map[bool]string{false: " before the handshake", true: " in a session"}[handshake != ""], func(t *testing.T) {
				b := start(t, nil, nil)
				r, w := io.Pipe()
				go func() {
					_, _ = io.WriteString(w, handshake+c.sent)
					_ = w.Close()
				}()
				fromServer, out := io.Pipe()
				ended := make(chan error, 1)
				go func() {
					ended <- b.srv.Run(t.Context(), r, out)
					_ = out.Close()
				}()
				late := time.AfterFunc(4*testTimeout, func() { _ = fromServer.CloseWithError(errors.New("the server waits for something")) })
				defer late.Stop()
				got, err := io.ReadAll(fromServer)
				testkit.Must(t, err)
				testkit.Must(t, <-ended)
				want := c.answers + strings.Count(handshake, `"id"`)
				if have := strings.Count(string(got), `"id":`); have != want {
					t.Errorf("%d answers, want %d: %.300s", have, want, got)
				}
			})
		}
	}
}

// A session over a socket, which serves as both streams, ends without an error when the client
// hangs up.
func TestHangUpOfSocket(t *testing.T) {
	b := start(t, nil, nil)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	testkit.Must(t, err)
	defer l.Close()
	client, err := net.Dial("unix", l.Addr().String())
	testkit.Must(t, err)
	conn, err := l.Accept()
	testkit.Must(t, err)
	testkit.Must(t, client.Close())
	if err := b.srv.Run(t.Context(), conn, conn); err != nil {
		t.Errorf("the session ended with %v", err)
	}
}
