package proxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// stormHost makes, cancels and repeats calls in random order, also with ids that are in use.
type stormHost struct {
	*end
	rnd  *rand.Rand
	last int // the last new id
	pong chan struct{}

	mu           sync.Mutex // guards the fields below
	ours, theirs []string   // the requestState of each question of the proxy, and of the server
}

// read notes the questions that the host gets.
func (h *stormHost) read() {
	for {
		text, err := h.r.ReadString('\n')
		if err != nil {
			return
		}
		if text == pong {
			h.pong <- struct{}{}
		}
		var m struct {
			Result struct {
				RequestState  string
				InputRequests map[string]json.RawMessage
			}
		}
		if json.Unmarshal([]byte(text), &m) == nil && m.Result.RequestState != "" {
			h.mu.Lock()
			if m.Result.InputRequests["rootsfs-consent"] != nil {
				h.ours = append(h.ours, m.Result.RequestState)
			} else {
				h.theirs = append(h.theirs, m.Result.RequestState)
			}
			h.mu.Unlock()
		}
	}
}

// id returns a new id, or a used one.
func (h *stormHost) id() string {
	if h.last > 0 && h.rnd.IntN(4) == 0 {
		return fmt.Sprint(1 + h.rnd.IntN(h.last))
	}
	h.last++
	return fmt.Sprint(h.last)
}

// questions returns the requestStates of the questions so far.
func (h *stormHost) questions() (ours, theirs []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ours), slices.Clone(h.theirs)
}

// retry repeats a call because of a question, which may already be answered.
func (h *stormHost) retry(id, state string) {
	inputs := ""
	if h.rnd.IntN(2) == 0 {
		inputs = `,"inputResponses":{"rootsfs-consent":{"action":"decline"}}`
	}
	h.say(call(id, inputs+`,"requestState":"`+state+`"`))
}

func (h *stormHost) cancel(id int) {
	h.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`+"\n", id))
}

const (
	ping = `{"jsonrpc":"2.0","id":"ping","method":"ping"}` + "\n"
	pong = `{"jsonrpc":"2.0","id":"ping","result":{}}` + "\n"
)

// stormServer answers calls in random order: with a result, by asking for input, or not at all.
// Meanwhile it asks for consent.
func stormServer(s *end, dir string, rnd *rand.Rand) {
	var open []string
	for asks := 0; ; asks++ {
		text, err := s.r.ReadString('\n')
		if err != nil {
			return
		}
		if text == ping {
			_, _ = io.WriteString(s.in, pong)
		}
		var m message
		if json.Unmarshal([]byte(text), &m) != nil || m.Method != "tools/call" {
			continue
		}
		open = append(open, string(m.ID))
		if rnd.IntN(3) == 0 {
			_, _ = fmt.Fprintf(s.in, `{"jsonrpc":"2.0","id":"ask%d","method":"files/consent","params":{"message":"m","requestedPaths":[%q]}}`+"\n", asks, dir)
		}
		for len(open) > 0 && rnd.IntN(3) > 0 {
			i := rnd.IntN(len(open))
			result := []string{
				`"result":{}`, `"result":{}`, `"result":{},"result":{}`, `"error":{"code":1,"message":"m"}`,
				`"result":{"resultType":"input_required","inputRequests":{` + rootsInput + `},"requestState":"s"}`,
				`"result":{"resultType":"input_required","inputRequests":{` + rootsInput + `,"e":{"method":"elicitation/create"}},"requestState":"s"}`,
			}[rnd.IntN(6)]
			_, _ = fmt.Fprintf(s.in, `{"jsonrpc":"2.0","id":%s,%s}`+"\n", open[i], result)
			if rnd.IntN(8) > 0 { // otherwise the server may answer the call twice
				open[i] = open[len(open)-1]
				open = open[:len(open)-1]
			}
		}
	}
}

// In whatever order calls, questions, cancellations and late answers come, no call is kept when
// all are over. A wrong count would leave no room for calls in the end.
func TestRoundsStorm(t *testing.T) {
	l := newLab(t, func(c *broker.Config) { c.AskFor, c.Limits.Consents = 3*time.Millisecond, -1 })
	l.root("work", guard.ReadOnly, nil)
	for seed := range uint64(3) {
		n := l.connect(nil)
		h := &stormHost{end: n.host, rnd: rand.New(rand.NewPCG(seed, 0)), pong: make(chan struct{})}
		go h.read()
		go stormServer(n.server, t.TempDir(), rand.New(rand.NewPCG(seed, 1)))
		for i := range 1500 {
			if i%20 == 0 { // so that the host is never far ahead of the server
				h.say(ping)
				<-h.pong
			}
			switch h.rnd.IntN(6) {
			case 0:
				h.cancel(1 + h.rnd.IntN(h.last+1))
			case 1, 2:
				ours, theirs := h.questions()
				if all := append(ours, theirs...); len(all) > 0 {
					h.retry(h.id(), all[h.rnd.IntN(len(all))])
				}
			default:
				h.say(call(h.id(), ""))
			}
		}
		calls, held := -1, -1
		testkit.Eventually(func() bool {
			ours, _ := h.questions()
			for _, state := range ours {
				h.last++
				h.retry(fmt.Sprint(h.last), state)
			}
			for id := range h.last + 1 {
				h.cancel(id)
			}
			calls, held = n.p.HeldCalls()
			return calls == 0 && held == 0
		})
		if calls != 0 || held != 0 {
			t.Errorf("seed %d: %d entries of calls and %d bytes are left", seed, calls, held)
		}
		if st := n.p.Stats(); st.Asked == 0 || st.Retried == 0 || st.Refused == 0 {
			t.Errorf("the storm did too little: %+v", st)
		}
		n.end()
	}
}
