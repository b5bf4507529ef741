package serve

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// giveUp is the time after which a test no longer expects an answer.
const giveUp = 30 * time.Second

// stdioServer is an MCP server over stdio. Its methods speak to the server without an SDK, so that
// the tests see the JSON that the server sent. The methods may be called concurrently.
type stdioServer struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	log *bytes.Buffer // the server's standard error; may be read after cmd.Wait
	// ended is closed at the end of the server's standard output.
	ended chan struct{}

	mu      sync.Mutex // guards the fields below
	last    int        // the id of the last request
	waiting map[int]chan reply
	notes   []string // methods of notifications
}

// reply is a result or an error, in its original text.
type reply struct {
	Result json.RawMessage
	Error  json.RawMessage
}

// open starts a server and shakes hands. At the end of the test the client hangs up. Then rootsfs
// must end without an error; other servers may end with one.
func open(t testing.TB, cmd *exec.Cmd) *stdioServer {
	t.Helper()
	s := start(t, cmd)
	t.Cleanup(func() {
		_ = s.in.Close()
		killTimer := time.AfterFunc(giveUp, func() { _ = cmd.Process.Kill() })
		defer killTimer.Stop()
		<-s.ended
		if err := cmd.Wait(); err != nil && strings.Contains(cmd.Path, "rootsfs") {
			t.Errorf("the server did not end well: %v\n%s", err, s.log)
		}
	})
	return s
}

// start starts a server and shakes hands, as a client without capabilities.
func start(t testing.TB, cmd *exec.Cmd) *stdioServer {
	t.Helper()
	s := &stdioServer{t: t, cmd: cmd, log: &bytes.Buffer{}, waiting: map[int]chan reply{}, ended: make(chan struct{})}
	cmd.Stderr = s.log
	var err error
	s.in, err = cmd.StdinPipe()
	testkit.Must(t, err)
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	go func() {
		defer close(s.ended)
		s.read(out)
	}()
	t.Cleanup(func() { _ = s.in.Close() })
	r := s.call("initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "test", "version": "1"},
	})
	if r.Result == nil {
		t.Fatalf("initialize: %s", r.Error)
	}
	s.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	return s
}

// read passes the server's answers to the waiting requests until the server's output ends. Then it
// closes the channels of the requests that still wait.
func (s *stdioServer) read(out io.Reader) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var m struct {
			ID     *int
			Method string
			reply
		}
		if err := json.Unmarshal(line, &m); err != nil {
			s.t.Errorf("not a message: %v: %s", err, line)
			continue
		}
		s.mu.Lock()
		if m.ID == nil {
			s.notes = append(s.notes, m.Method)
		} else if c := s.waiting[*m.ID]; c != nil {
			c <- m.reply
			delete(s.waiting, *m.ID)
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.waiting {
		close(c)
	}
	s.waiting = nil
}

func (s *stdioServer) send(message any) {
	line, err := json.Marshal(message)
	if err != nil {
		s.t.Error(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.in.Write(append(line, '\n')) // if the server has ended, no answer comes
}

// request sends a request. It returns a channel for the answer. If the server's output ends before
// the answer comes, the channel is closed.
func (s *stdioServer) request(method string, params any) <-chan reply {
	c := make(chan reply, 1)
	s.mu.Lock()
	s.last++
	id := s.last
	if s.waiting == nil {
		close(c)
	} else {
		s.waiting[id] = c
	}
	s.mu.Unlock()
	s.send(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	return c
}

// call sends a request and waits for the answer.
func (s *stdioServer) call(method string, params any) reply {
	s.t.Helper()
	select {
	case r, ok := <-s.request(method, params):
		if !ok {
			s.t.Errorf("%s: the server has hung up", method)
		}
		return r
	case <-time.After(giveUp):
		s.t.Errorf("%s %v: no answer within %v", method, params, giveUp)
		return reply{}
	}
}

// block is one block of a tool's answer.
type block struct {
	Type     string `json:"type"`
	Text     string `json:"text,omitempty"`
	Data     string `json:"data,omitempty"`
	MIMEType string `json:"mimeType,omitempty"`
	Resource any    `json:"resource,omitempty"`
}

// answer is the answer of a tool.
type answer struct {
	Content           []block        `json:"content"`
	StructuredContent map[string]any `json:"structuredContent"`
	IsError           bool           `json:"isError"`
	RPC               string         `json:"-"` // the JSON-RPC error, if there is no result
}

// failed reports whether the call failed, by a JSON-RPC error or by a result with isError.
func (a *answer) failed() bool { return a.IsError || a.RPC != "" }

// text returns the text of the first block, or the JSON-RPC error.
func (a *answer) text() string {
	if a.RPC != "" {
		return a.RPC
	}
	if len(a.Content) == 0 {
		return ""
	}
	return a.Content[0].Text
}

// note returns the text of the second block.
func (a *answer) note() string {
	if len(a.Content) < 2 {
		return ""
	}
	return a.Content[1].Text
}

// tool calls a tool.
func (s *stdioServer) tool(name string, args map[string]any) *answer {
	s.t.Helper()
	return s.parse(name, s.call("tools/call", map[string]any{"name": name, "arguments": args}))
}

func (s *stdioServer) parse(name string, r reply) *answer {
	s.t.Helper()
	a := &answer{RPC: string(r.Error)}
	if r.Error == nil {
		if err := json.Unmarshal(r.Result, a); err != nil {
			s.t.Errorf("%s: %v: %s", name, err, r.Result)
		}
	}
	return a
}

// ok calls a tool that must succeed and returns its text.
func (s *stdioServer) ok(name string, args map[string]any) string {
	s.t.Helper()
	a := s.tool(name, args)
	if a.failed() {
		s.t.Errorf("%s %v: %s", name, args, a.text())
	}
	return a.text()
}

// mustFail calls a tool that must fail with a text that contains why.
func (s *stdioServer) mustFail(name string, args map[string]any, why string) {
	s.t.Helper()
	if a := s.tool(name, args); !a.failed() || !strings.Contains(a.text(), why) {
		s.t.Errorf("%s %v: failed %t: %s; want an error with %q", name, args, a.failed(), a.text(), why)
	}
}

type m = map[string]any

func (a *answer) String() string {
	text, _ := json.Marshal(a) // strings and decoded JSON: cannot fail
	return fmt.Sprintf("%s%s", text, a.RPC)
}
