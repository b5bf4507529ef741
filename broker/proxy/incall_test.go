package proxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// inputRequired is the result that a host of 2026-07-28 gets in the place of an answer.
type inputRequired struct {
	ResultType    string
	InputRequests map[string]struct {
		Method string
		Params json.RawMessage
	}
	RequestState string
}

// consentInCall sends files/consent for dir from the server, which works on the host's call with
// the given id. It returns the question as the host gets it.
func (n *link) consentInCall(id, dir string) inputRequired {
	n.t.Helper()
	n.server.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":"ask","method":"files/consent","params":{"message":"please","requestedPaths":[%q]}}`+"\n", dir))
	m := n.host.message()
	var a inputRequired
	if err := json.Unmarshal(m.Result, &a); err != nil {
		n.t.Fatalf("the host got %+v: %v", m, err)
	}
	q := a.InputRequests["rootsfs-consent"]
	if string(m.ID) != id || a.ResultType != "input_required" || q.Method != "elicitation/create" || !strings.Contains(string(q.Params), dir) || a.RequestState == "" {
		n.t.Fatalf("the host got %s %s", m.ID, m.Result)
	}
	return a
}

// retry returns the host's repetition of its call, with a new id and the user's answer.
func (a *inputRequired) retry(id, answer string) string {
	state, _ := json.Marshal(a.RequestState)
	return call(id, `,"inputResponses":{"rootsfs-consent":`+answer+`},"requestState":`+string(state))
}

// consentAnswer returns the answer to the server's files/consent, skipping other lines.
func (n *link) consentAnswer() wire.ConsentResult {
	n.t.Helper()
	for {
		if m := n.server.message(); string(m.ID) == `"ask"` {
			return consentResult(n.t, m)
		}
	}
}

// A server asks for consent while it works on a call of a host of 2026-07-28. The host gets the
// question in the place of the answer. The server never sees the question or the repeated call, and
// the host gets the server's answer with the id of the repeated call.
func TestModern_Consent(t *testing.T) {
	l := newLab(t, nil)
	n := l.connect(nil)
	for i, c := range []struct {
		answer  string
		granted bool
	}{{`{"action":"decline"}`, false}, {yes, true}, {`{"action":"cancel"}`, false}, {`[]`, false}} {
		dir := t.TempDir()
		first, second := fmt.Sprint(10*i+1), fmt.Sprint(10*i+2)
		n.host.say(call(first, ""))
		if m := n.server.message(); string(m.ID) != first {
			t.Fatalf("the server got %+v", m)
		}
		a := n.consentInCall(first, dir)
		n.ping(n.server, n.host) // other lines do not wait for the person
		n.host.say(a.retry(second, c.answer))
		if r := n.consentAnswer(); r.Granted != c.granted {
			t.Errorf("%s: %+v", c.answer, r)
		}
		n.server.say(`{"jsonrpc":"2.0", "id":` + first + `,"result":{"x":1e400}}` + "\n")
		n.host.expect(`{"jsonrpc":"2.0", "id":` + second + `,"result":{"x":1e400}}` + "\n")
		n.host.say(`{"jsonrpc":"2.0","method":"mark"}` + "\n")
		n.server.expect(`{"jsonrpc":"2.0","method":"mark"}` + "\n") // and nothing before it
	}
	if st := n.p.Stats(); st.Asked != 4 {
		t.Errorf("%+v", st)
	}
}

// The server asks a second question during the same call, and then for roots. By then the host has
// used three ids for the call, and the server still knows the call by the first.
func TestModern_ConsentTwice(t *testing.T) {
	l := newLab(t, nil)
	n := l.connect(nil)
	n.host.say(call(`"a\"1"`, ""))
	n.server.message()
	a := n.consentInCall(`"a\"1"`, t.TempDir())
	n.host.say(a.retry("2", `{"action":"decline"}`))
	n.consentAnswer()
	dir := t.TempDir()
	a = n.consentInCall("2", dir)
	n.host.say(a.retry("3", yes))
	if r := n.consentAnswer(); !r.Granted {
		t.Errorf("%+v", r)
	}
	n.server.say(`{"jsonrpc":"2.0","id":"a\"1","result":{"resultType":"input_required","inputRequests":{` + rootsInput + `}}}` + "\n")
	again := n.server.message()
	if p := n.params(again); !strings.Contains(string(p.InputResponses["roots"]), dir) {
		t.Errorf("the call came again as %s", again.Params)
	}
	n.server.say(`{"jsonrpc":"2.0","id":` + string(again.ID) + `,"result":{"x":1}}` + "\n")
	n.host.expect(`{"jsonrpc":"2.0","id":3,"result":{"x":1}}` + "\n")
}

// If the server answers a call before the host has repeated the call with the user's answer, the
// server's answer is kept. It is also kept if it asks the host for other input.
func TestModern_ConsentLate(t *testing.T) {
	l := newLab(t, func(c *broker.Config) { c.AskFor = 50 * time.Millisecond })
	n := l.connect(nil)
	for i, result := range []string{`{"x":1.0}`, `{"resultType":"input_required","inputRequests":{"e":{"method":"elicitation/create"}},"requestState":"s"}`} {
		first, second := fmt.Sprint(10*i+1), fmt.Sprint(10*i+2)
		n.host.say(call(first, ""))
		n.server.message()
		a := n.consentInCall(first, t.TempDir())
		if r := n.consentAnswer(); r.Granted || r.Reason != "timeout" {
			t.Errorf("nobody answered: %+v", r)
		}
		n.server.say(`{"jsonrpc":"2.0","id":` + first + `,"result":` + result + "}\n")
		n.ping(n.server, n.host) // and nothing before it
		n.host.say(a.retry(second, yes))
		n.host.expect(`{"jsonrpc":"2.0","id":` + second + `,"result":` + result + "}\n")
	}
	if roots := l.reg.Roots(); len(roots) != 0 {
		t.Errorf("an answer that came too late granted %+v", roots)
	}
}

// If no call of the host can get the question, the next asker gets it, such as the owner at the
// control socket.
func TestModern_ConsentElsewhere(t *testing.T) {
	byOwner := broker.AskerFunc(func(_ context.Context, q *broker.Question) (broker.Answer, error) {
		return broker.Answer{By: "control", Decisions: []broker.Decision{{Allow: true}}}, nil
	})
	l := newLab(t, func(c *broker.Config) { c.Asker = broker.Chain(broker.AskHost, byOwner) })
	n := l.connect(nil)
	for name, open := range map[string]string{
		"no call":                `{"jsonrpc":"2.0","method":"notifications/x","params":{` + modern + `}}`,
		"a call without forms":   strings.Replace(strings.TrimSpace(call("1", "")), `"elicitation":{}`, `"elicitation":{"url":{}}`, 1),
		"a call that cannot ask": `{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{` + modern + `}}`,
	} {
		n.host.say(open + "\n")
		n.server.message()
		n.server.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":"ask","method":"files/consent","params":{"message":"please","requestedPaths":[%q]}}`+"\n", t.TempDir()))
		if r := n.consentAnswer(); !r.Granted {
			t.Errorf("%s: %+v", name, r)
		}
		n.ping(n.server, n.host) // the host was not asked
	}
}

// A server cannot answer the question in the host's place: neither with an id that has the proxy's
// prefix, which the server knows, nor with a requestState that it makes the host send back.
func TestModern_ConsentForged(t *testing.T) {
	l := newLab(t, nil)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	n := l.connect(nil)
	prefix := prefixOf(t, n)
	n.host.say(call("1", ""))
	n.server.message()
	a := n.consentInCall("1", dir)
	for _, frame := range []string{
		`{"jsonrpc":"2.0","id":` + `"` + a.RequestState + `"` + `,"result":` + yes + `}`, // although the server cannot know this id
		`{"jsonrpc":"2.0","id":"` + prefix + `aaaa","result":` + yes + `}`,
		`{"jsonrpc":"2.0","id":1,"id":"` + prefix + `aaaa","result":` + yes + `}`,
	} {
		n.server.say(frame + "\n")
		n.ping(n.server, n.host)
	}
	// This answer of the server has a requestState like the proxy's. The host sends the state back.
	n.host.say(call("5", ""))
	n.server.message()
	n.server.say(`{"jsonrpc":"2.0","id":5,"result":{"resultType":"input_required","inputRequests":{"rootsfs-consent":{"method":"elicitation/create"}},"requestState":"` + prefix + `aaaa"}}` + "\n")
	n.host.message()
	n.host.say(call("6", `,"inputResponses":{"rootsfs-consent":`+yes+`},"requestState":"`+prefix+`aaaa"`))
	if m := n.host.message(); m.Error == nil || string(m.ID) != "6" {
		t.Errorf("the host got %+v", m)
	}
	if roots := l.reg.Roots(); len(roots) != 0 {
		t.Fatalf("forged consent granted %+v", roots)
	}
	// A requestState can be used only once.
	n.host.say(a.retry("2", `{"action":"decline"}`))
	if r := n.consentAnswer(); r.Granted {
		t.Errorf("%+v", r)
	}
	n.host.say(a.retry("3", yes))
	if m := n.host.message(); m.Error == nil || string(m.ID) != "3" {
		t.Errorf("the host got %+v", m)
	}
	if roots := l.reg.Roots(); len(roots) != 0 {
		t.Errorf("a state used twice granted %+v", roots)
	}
}

// The proxy refuses the server's answer to a call while the host has a question instead of an
// answer. The host gets the error with the id of the repeated call, because the question has
// already answered the first call.
func TestModern_ConsentRefusedAnswer(t *testing.T) {
	l := newLab(t, nil)
	n := l.connect(nil)
	n.host.say(call("1", ""))
	n.server.message()
	a := n.consentInCall("1", t.TempDir())
	n.server.say(`{"jsonrpc":"2.0","id":1,"result":{},"result":{"x":1}}` + "\n")
	n.ping(n.server, n.host) // and nothing before it
	n.host.say(a.retry("2", `{"action":"decline"}`))
	n.consentAnswer()
	if m := n.host.message(); m.Error == nil || string(m.ID) != "2" || !strings.Contains(m.Error.Message, "has a field twice") {
		t.Errorf("the host got %s %+v", m.ID, m.Error)
	}
	n.ping(n.server, n.host)
}

// The host cancels the repeated call by its new id, and the server gets the cancellation with the
// id by which it knows the call. The host may not use the old id again while the server works on
// the call.
func TestModern_ConsentCancel(t *testing.T) {
	l := newLab(t, nil)
	n := l.connect(nil)
	n.host.say(call("1", ""))
	n.server.message()
	a := n.consentInCall("1", t.TempDir())
	n.host.say(call("1", ""))
	if m := n.host.message(); m.Error == nil || string(m.ID) != "1" || !strings.Contains(m.Error.Message, "still answering") {
		t.Errorf("the host got %+v", m)
	}
	n.host.say(a.retry("2", `{"action":"decline"}`))
	n.consentAnswer()
	n.host.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}` + "\n")
	n.server.expect(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}` + "\n")
	n.host.say(call("1", "")) // now the id is free
	if m := n.server.message(); string(m.ID) != "1" {
		t.Errorf("the server got %+v", m)
	}
}
