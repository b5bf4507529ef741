package sandbox

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// host plays the MCP host of the hostile program (the forger), and the host's user, who answers
// questions.
type host struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	seen []string // all lines that the host has read
}

type message struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result struct{ Content []struct{ Text string } }
}

func (h *host) say(format string, args ...any) {
	h.t.Helper()
	_, err := fmt.Fprintf(h.in, format+"\n", args...)
	testkit.Must(h.t, err)
}

// until reads messages up to the first that want accepts, and returns that message.
func (h *host) until(what string, want func(m *message) bool) *message {
	h.t.Helper()
	for {
		line, err := h.out.ReadString('\n')
		if err != nil {
			h.t.Fatalf("before %s: %v; the host read %q", what, err, h.seen)
		}
		h.seen = append(h.seen, line)
		var m message
		if json.Unmarshal([]byte(line), &m) == nil && want(&m) {
			return &m
		}
	}
}

// answer returns the text of the answer to a call.
func (h *host) answer(id string) string {
	h.t.Helper()
	m := h.until("the answer to "+id, func(m *message) bool { return string(m.ID) == id && m.Method == "" })
	if len(m.Result.Content) == 0 {
		return h.seen[len(h.seen)-1]
	}
	return m.Result.Content[0].Text
}

// forge runs the hostile program as an MCP server that forges the consent of its host's user. The
// test even gives the program the id of rootsfs's question to the user.
func (o *outside) forge(r run) result {
	t := o.t
	t.Helper()
	res := result{Name: "forge the host's consent"}
	h := o.startHost(r)
	h.say(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"h","version":"1"}}}`)
	h.until("the greeting", func(m *message) bool { return string(m.ID) == "0" })
	h.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	call := func(id, tool, question string) {
		h.say(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":{"Dir":%q,"Secret":%q,"SecretContent":%q,"Question":%q}}}`, id, tool, o.Dir, o.Secret, o.SecretContent, question)
	}
	isQuestion := func(m *message) bool {
		return m.Method == "elicitation/create" && strings.Contains(string(m.Params), o.Dir)
	}
	question := "none"
	call("1", "ask", "")
	if r.level != bare { // without rootsfs nobody asks the question
		question = h.question(isQuestion)
	}
	call("2", "forge", question)
	// This is the forger's own form. The user says yes to it.
	h.until("the forger's own form", func(m *message) bool { return string(m.ID) == `"mine"` })
	h.say(`{"jsonrpc":"2.0","id":"mine","result":{"action":"accept","content":{"path1":"allow"}}}`)
	h.answer("2")
	if r.level != bare {
		h.checkNothingForwarded(question)
		h.say(`{"jsonrpc":"2.0","id":%q,"result":{"action":"decline"}}`, question)
	}
	call("3", "read", "")
	res.Detail = h.answer("3")
	if res.Worked = res.Detail == "works"; res.Worked {
		res.Detail = ""
	}
	if r.level != bare {
		o.checkConsent(h, isQuestion, call)
	}
	testkit.Must(t, h.in.Close())
	_, _ = io.Copy(io.Discard, h.out) // messages that the host has not read yet
	testkit.Must(t, h.cmd.Wait())
	return res
}

// question returns the id of the next question from rootsfs to the user.
func (h *host) question(isQuestion func(*message) bool) (id string) {
	h.t.Helper()
	m := h.until("the question", isQuestion)
	testkit.Must(h.t, json.Unmarshal(m.ID, &id))
	return id
}

// checkConsent checks that with the user's consent the same attempt succeeds. So only the consent
// was missing.
func (o *outside) checkConsent(h *host, isQuestion func(*message) bool, call func(id, tool, question string)) {
	o.t.Helper()
	call("4", "ask", "")
	h.say(`{"jsonrpc":"2.0","id":%q,"result":{"action":"accept","content":{"path1":"read only"}}}`, h.question(isQuestion))
	text := ""
	n := 4
	if !testkit.Eventually(func() bool { // the grant may not be in effect yet
		n++
		call(fmt.Sprint(n), "read", "")
		text = h.answer(fmt.Sprint(n))
		return text == "works"
	}) {
		o.t.Errorf("with the user's consent reading says %q: the attempt shows nothing", text)
	}
}

// checkNothingForwarded fails the test if any line that the host read has the question's id, except
// the question.
func (h *host) checkNothingForwarded(question string) {
	h.t.Helper()
	n := 0
	for _, line := range h.seen {
		if strings.Contains(line, question) {
			n++
		}
	}
	if n != 1 {
		h.t.Errorf("the host read the id of rootsfs's question %d times: %q", n, h.seen)
	}
}

func (o *outside) startHost(r run) *host {
	t := o.t
	t.Helper()
	o.resetFiles()
	o.resetRoot()
	cmd := o.driver(o.command(r, nil, "hostile", "-forge"))
	cmd.Stderr = os.Stderr
	leak, err := os.Open(os.DevNull)
	testkit.Must(t, err)
	defer leak.Close()
	cmd.ExtraFiles = []*os.File{leak}
	h := &host{t: t, cmd: cmd.Cmd}
	h.in, err = cmd.StdinPipe()
	testkit.Must(t, err)
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	h.out = bufio.NewReader(out)
	testkit.Must(t, cmd.Start())
	timer := time.AfterFunc(giveUp, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { timer.Stop() })
	return h
}
