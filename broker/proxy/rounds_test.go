package proxy_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
)

const modern = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"roots":{"listChanged":true}}}`

// call returns a tools/call of 2026-07-28.
func call(id, more string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"t","arguments":{"n":9007199254740993}` + more + `,` + modern + `}}` + "\n"
}

// params are the decoded params of a request at the server.
type params struct {
	Name           string
	Arguments      json.RawMessage
	InputResponses map[string]json.RawMessage
	RequestState   json.RawMessage
	Meta           map[string]json.RawMessage `json:"_meta"`
}

func (n *link) params(m message) params {
	n.t.Helper()
	var p params
	if err := json.Unmarshal(m.Params, &p); err != nil {
		n.t.Fatal(err)
	}
	if string(p.Arguments) != `{"n":9007199254740993}` {
		n.t.Errorf("the arguments became %s", p.Arguments)
	}
	return p
}

const rootsInput = `"r\u006fots":{"method":"roots/list"}`

// R168, R169: each request and each notification gets the capabilities, with an empty roots object.
// The capability elicitation and a number in the params stay unchanged.
func TestModern_Capability(t *testing.T) {
	l := newLab(t, nil)
	n := l.connect(nil)
	for i, in := range []string{
		call("1", ""),
		`{"jsonrpc":"2.0","id":2,"method":"x","params":{"_meta":{"io.modelcontextprotocol\/protocolVersion":"2026-07-28"},"q":1.50}}` + "\n",
		`{"jsonrpc":"2.0","method":"notifications/x","params":{"_meta":{"io.modelcontextprotocol/clientCapabilities":{"roots":null}}}}` + "\n",
	} {
		n.host.say(in)
		m := n.server.message()
		var p struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		}
		var c struct {
			Roots, Elicitation json.RawMessage
			Extensions         map[string]broker.Capability
		}
		if err := json.Unmarshal(m.Params, &p); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(p.Meta["io.modelcontextprotocol/clientCapabilities"], &c); err != nil {
			t.Fatal(err)
		}
		if string(c.Roots) != "{}" || !c.Extensions[wire.Extension].ETags || i == 0 && string(c.Elicitation) != "{}" {
			t.Errorf("%s became %s", in, m.Params)
		}
		if i == 1 && !strings.Contains(string(m.Params), `"q":1.50`) {
			t.Errorf("%s became %s", in, m.Params)
		}
	}
}

// With NoRoots the server sees no roots, not even the host's, and gets the answers of a client
// without roots.
func TestNoRoots(t *testing.T) {
	l := newLab(t, func(c *broker.Config) { c.NoRoots = true })
	n := l.connect(nil)
	if m := n.handshake(`{"roots":{"listChanged":true},"sampling":{}}`); !strings.Contains(string(m.Params), `"capabilities":{"sampling":{}}`) {
		t.Errorf("the server got %s", m.Params)
	}
	n.host.say(call("1", ""))
	if m := n.server.message(); !strings.Contains(string(m.Params), `"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}`) {
		t.Errorf("the server got %s", m.Params)
	}
	n.server.say(`{"jsonrpc":"2.0","id":2,"method":"roots/list"}` + "\n")
	if m := n.server.message(); m.Error == nil || m.Error.Code != wire.CodeMethodNotFound {
		t.Errorf("roots/list: %+v", m)
	}
	n.ping(n.server, n.host)
}

// R170, R171: if the server asks for roots in a result, the host sees only the final answer, with
// the id of the host's call.
func TestModern_Roots(t *testing.T) {
	l := newLab(t, nil)
	dir := l.root("work", guard.ReadOnly, nil)
	n := l.connect(nil)
	for _, id := range []string{`7`, `9007199254740993`, `1.50`, `"a\"b\u00e9"`, `"c\u0064"`} {
		n.host.say(call(id, ""))
		first := n.server.message()
		if string(first.ID) != id {
			t.Fatalf("id %s became %s", id, first.ID)
		}
		n.server.say(`{"id":` + id + `,"result":{"resultType":"input_required","inputRequests":{` + rootsInput + `},"requestState":"s\/1"},"jsonrpc":"2.0"}` + "\n")
		again := n.server.message()
		p := n.params(again)
		want := fmt.Sprintf(`{"roots":[{"uri":"file://%s","name":"work"}]}`, dir)
		if string(p.InputResponses["roots"]) != want || string(p.RequestState) != `"s\/1"` || p.Name != "t" || len(p.Meta) != 2 {
			t.Errorf("the call came again as %s", again.Params)
		}
		if string(again.ID) == id || again.Method != "tools/call" {
			t.Errorf("the call came again under %s, %s", again.ID, again.Method)
		}
		// In the second round the server sends no state.
		n.server.say(`{"jsonrpc":"2.0","id":` + string(again.ID) + `,"result":{"resultType":"input_required","inputRequests":{"q":{"method":"roots/list","params":{}}}}}` + "\n")
		third := n.server.message()
		if p = n.params(third); p.RequestState != nil || len(p.InputResponses) != 1 || string(p.InputResponses["q"]) != want {
			t.Errorf("the call came a third time as %s", third.Params)
		}
		n.server.say(`{"jsonrpc":"2.0", "id":` + string(third.ID) + `,"result":{"x":1e400}}` + "\r\n")
		n.host.expect(`{"jsonrpc":"2.0", "id":` + id + `,"result":{"x":1e400}}` + "\r\n")
	}
	if st := n.p.Stats(); st.Retried != 10 {
		t.Errorf("%+v", st)
	}
}

// Results that ask for no roots pass to the host, even if they ask for other input.
func TestModern_OtherInput(t *testing.T) {
	l := newLab(t, nil)
	n := l.connect(nil)
	for _, result := range []string{
		`{"resultType":"input_required","inputRequests":{"e":{"method":"elicitation/create","params":{"x":1.0}}},"requestState":"s"}`,
		`{"resultType":"input_required","inputRequests":{}}`, `{"resultType":"input_required","requestState":"busy"}`,
		`{"resultType":"complete","structuredContent":{"inputRequests":{` + rootsInput + `},"InputRequests":1}}`,
	} {
		n.host.say(call("1", ""))
		n.server.message()
		answer := `{"jsonrpc":"2.0","id":1,"result":` + result + "}\n"
		n.server.say(answer)
		n.host.expect(answer)
	}
}

// rootsInside are messages of a server in which some host finds a request for roots or files. The
// Go SDK's host answers some of these requests whatever the revision, and so may other hosts.
var rootsInside = map[string]string{
	"plain":                 `{"jsonrpc":"2.0","id":1,"result":{"inputRequests":{"r":{"method":"roots/list","params":{}}}}}`,
	"complete":              `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[],"inputRequests":{"r":{"method":"roots/list","params":{}}}}}`,
	"an unknown type":       `{"jsonrpc":"2.0","id":1,"result":{"resultType":"task","inputRequests":{"r":{"method":"roots\/list","params":{}}}}}`,
	"escaped":               `{"jsonrpc":"2.0","id":1,"result":{"\u0069nputRequests":{"r":{"\u006dethod":"\u0072oots/list","params":{}}}}}`,
	"in capitals":           `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","InputRequests":{"r":{"method":"roots/list","params":{}}}}}`,
	"a method in capitals":  `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"r":{"Method":"roots/list","params":{}}}}}`,
	"first of two":          `{"jsonrpc":"2.0","id":1,"result":{"inputRequests":{"r":{"method":"roots/list","params":{}}},"inputRequests":{}}}`,
	"a second method":       `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list","method":"elicitation/create","params":{}}}}}`,
	"under the id 1.0":      `{"jsonrpc":"2.0","id":1.0,"result":{"inputRequests":{"r":{"method":"roots/list","params":{}}}}}`,
	"under the id \"1\"":    `{"jsonrpc":"2.0","id":"1","result":{"inputRequests":{"r":{"method":"roots/list","params":{}}}}}`,
	"beside a question":     `{"jsonrpc":"2.0","id":1,"result":{"inputRequests":{"e":{"method":"elicitation/create","params":{}},"r":{"method":"roots/list","params":{}}}}}`,
	"files/read":            `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"r":{"method":"files/read","params":{"path":"/"}}}}}`,
	"with a method null":    `{"jsonrpc":"2.0","id":1,"method":null,"result":{"inputRequests":{"r":{"method":"roots/list","params":{}}}}}`,
	"with a method":         `{"jsonrpc":"2.0","id":1,"method":"ping","result":{"inputRequests":{"r":{"method":"roots/list","params":{}}}}}`,
	"with a number":         `{"jsonrpc":"2.0","id":1,"method":5,"result":{"inputRequests":{"r":{"method":"roots/list","params":{}}}}}`,
	"a task's notification": `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"t","status":"input_required","inputRequests":{"r":{"method":"roots/list","params":{}}}}}`,
	"in a batch":            `[{"jsonrpc":"2.0","id":1,"result":{"inputRequests":{"r":{"method":"roots/list","params":{}}}}}]`,
	"a list":                `{"jsonrpc":"2.0","id":1,"result":{"inputRequests":[{"method":"roots/list","params":{}}]}}`,
}

// No message of a server brings a request for roots to the host. This holds for a result of any
// type and id, in any revision, and for a task's notification. The waiting host gets an error.
func TestModern_RootsInResults(t *testing.T) {
	for name, sent := range rootsInside {
		for _, revision := range []string{"2025-11-25", "2026-07-28"} {
			t.Run(name+", "+revision, func(t *testing.T) {
				l := newLab(t, nil)
				n := l.connect(nil)
				if revision == "2026-07-28" {
					n.host.say(call("1", ""))
				} else {
					n.handshake(`{"roots":{}}`)
					n.host.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}` + "\n")
				}
				n.server.message()
				n.server.say(sent + "\n")
				if !strings.Contains(sent, `"notifications/`) {
					if m := n.host.message(); m.Error == nil || m.Result != nil || strings.Trim(string(m.ID), `".0`) != "1" {
						t.Errorf("the host got %s %s %+v", m.ID, m.Result, m.Error)
					}
				}
				n.ping(n.server, n.host)
				if st := n.p.Stats(); st.Refused != 1 || l.countRecords("server's") == 0 && l.countRecords("server") == 0 {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

// If a result asks for roots and for other input, the host gives the other input, and the server
// gets both.
func TestModern_Mixed(t *testing.T) {
	l := newLab(t, nil)
	dir := l.root("work", guard.ReadOnly, nil)
	n := l.connect(nil)
	for _, state := range []string{`,"requestState":"theirs"`, ``} {
		n.host.say(call("1", ""))
		n.server.message()
		n.server.say(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{` + rootsInput +
			`,"ask":{"method":"elicitation/create","params":{"n":1.0}}}` + state + `}}` + "\n")
		m := n.host.message()
		var r struct {
			ResultType    string
			InputRequests json.RawMessage
			RequestState  string
		}
		if err := json.Unmarshal(m.Result, &r); err != nil {
			t.Fatal(err)
		}
		if string(r.InputRequests) != `{"ask":{"method":"elicitation/create","params":{"n":1.0}}}` || r.ResultType != "input_required" || string(m.ID) != "1" {
			t.Fatalf("the host is asked %s", m.Result)
		}
		if strings.Contains(r.RequestState, "theirs") {
			t.Errorf("requestState is %s", r.RequestState)
		}
		mark, _ := json.Marshal(r.RequestState)
		n.host.say(call("2", `,"inputResponses":{"ask":{"action":"accept","v":1e400}},"requestState":`+string(mark)))
		again := n.server.message()
		p := n.params(again)
		if string(again.ID) != "2" || string(p.InputResponses["ask"]) != `{"action":"accept","v":1e400}` ||
			!strings.Contains(string(p.InputResponses["roots"]), dir) || len(p.InputResponses) != 2 {
			t.Errorf("the server got %s %s", again.ID, again.Params)
		}
		want := ""
		if state != "" {
			want = `"theirs"`
		}
		if string(p.RequestState) != want {
			t.Errorf("the server got requestState %s, want %s", p.RequestState, want)
		}
		n.server.say(`{"jsonrpc":"2.0","id":2,"result":{}}` + "\n")
		n.host.expect(`{"jsonrpc":"2.0","id":2,"result":{}}` + "\n")
	}
	n.host.say(call("3", `,"requestState":"`+prefixOf(t, n)+`!"`))
	if m := n.host.message(); m.Error == nil || m.Error.Code != wire.CodeInvalidRequest || string(m.ID) != "3" {
		t.Errorf("a broken state: %+v", m)
	}
	// A server could forge this requestState and make the host send it back. It holds more requests
	// for roots than one result may have.
	memo := base64.RawURLEncoding.EncodeToString([]byte(`{"r":[` + strings.Repeat(`{"k":"a"},`, 16) + `{"k":"a"}]}`))
	n.host.say(call("4", `,"requestState":"`+prefixOf(t, n)+memo+`"`))
	if m := n.host.message(); m.Error == nil || string(m.ID) != "4" {
		t.Errorf("a forged state: %+v", m)
	}
}

// prefixOf returns the beginning of the ids that a proxy makes, as a server can see
// it.
func prefixOf(t *testing.T, n *link) string {
	t.Helper()
	n.host.say(call(`"probe"`, ""))
	n.server.message()
	n.server.say(`{"jsonrpc":"2.0","id":"probe","result":{"resultType":"input_required","inputRequests":{` + rootsInput + `}}}` + "\n")
	m := n.server.message()
	n.server.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{}}` + "\n")
	n.host.expect(`{"jsonrpc":"2.0","id":"probe","result":{}}` + "\n")
	var id string
	if err := json.Unmarshal(m.ID, &id); err != nil {
		t.Fatal(err)
	}
	return id[:strings.LastIndexByte(id, '-')+1]
}

// R172: if the roots cannot be listed, the call is not sent again, and the host gets an error.
func TestModern_Failure(t *testing.T) {
	l := newLab(t, nil)
	n := l.connect(nil)
	n.host.say(call("1", ""))
	n.server.message()
	n.server.say(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list","params":{"cursor":"?"}}}}}` + "\n")
	if m := n.host.message(); m.Error == nil || m.Error.Code != wire.CodeInvalidParams || string(m.ID) != "1" || !strings.Contains(m.Error.Message, "cursor") {
		t.Errorf("the host got %+v", m)
	}
	n.ping(n.host, n.server) // and nothing before it

	// The server asks for roots too often in one result.
	n.host.say(call("3", ""))
	n.server.message()
	var many []string
	for i := range 17 {
		many = append(many, fmt.Sprintf(`"r%d":{"method":"roots/list"}`, i))
	}
	n.server.say(`{"jsonrpc":"2.0","id":3,"result":{"resultType":"input_required","inputRequests":{` + strings.Join(many, ",") + `}}}` + "\n")
	if m := n.host.message(); m.Error == nil || m.Error.Code != wire.CodeInternal || string(m.ID) != "3" {
		t.Errorf("the host got %+v", m)
	}
	n.ping(n.host, n.server)

	// The server asks for roots in too many results.
	n.host.say(call("2", ""))
	id := string(n.server.message().ID)
	for range 10 {
		n.server.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{"resultType":"input_required","inputRequests":{` + rootsInput + `}}}` + "\n")
		id = string(n.server.message().ID)
	}
	n.server.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{"resultType":"input_required","inputRequests":{` + rootsInput + `}}}` + "\n")
	if m := n.host.message(); m.Error == nil || m.Error.Code != wire.CodeInternal || string(m.ID) != "2" {
		t.Errorf("the host got %+v", m)
	}
	n.ping(n.host, n.server)
}

// The host cancels a call that the proxy has repeated with an id of its own. The server gets the
// cancellation with that id, and the server's later answer is dropped.
func TestModern_Cancel(t *testing.T) {
	l := newLab(t, nil)
	n := l.connect(nil)
	n.host.say(call("1", ""))
	n.server.message()
	n.server.say(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{` + rootsInput + `}}}` + "\n")
	id := string(n.server.message().ID)
	n.host.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId": 1,"reason":"why"}}` + "\n")
	n.server.expect(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId": ` + id + `,"reason":"why"}}` + "\n")
	n.server.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{"late":true}}` + "\n")
	n.ping(n.server, n.host)

	// A call that was not repeated is cancelled by its own id.
	n.host.say(call("2", ""))
	n.server.message()
	const cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}` + "\n"
	n.host.say(cancel)
	n.server.expect(cancel)
	n.server.say(`{"jsonrpc":"2.0","id":2,"result":{"resultType":"input_required","inputRequests":{` + rootsInput + `}}}` + "\n")
	if m := n.host.message(); m.Error == nil || string(m.ID) != "2" { // the host ignores this error
		t.Errorf("the host got %+v", m)
	}
}

// R173: a server of revision 2026-07-28 gets no list_changed. After a handshake with an older
// revision the server gets list_changed.
func TestModern_NoListChanged(t *testing.T) {
	l := newLab(t, nil)
	n := l.connect(nil)
	n.host.say(`{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{` + modern + `}}` + "\n")
	n.server.message()
	answer := `{"jsonrpc":"2.0","id":0,"result":{"supportedVersions":["2026-07-28"],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"new","version":"3"}}}}` + "\n"
	n.server.say(answer)
	n.host.expect(answer)
	l.root("one", guard.ReadOnly, nil)
	n.ping(n.host, n.server)
	if st := n.session.Stats(); st.Server != "new 3" || st.Revision != "2026-07-28" || st.Notified != 0 {
		t.Errorf("%+v", st)
	}
	n.handshake(`{}`)
	l.root("two", guard.ReadOnly, nil)
	if m := n.server.message(); m.Method != wire.RootsChanged {
		t.Errorf("the server got %+v", m)
	}
}
