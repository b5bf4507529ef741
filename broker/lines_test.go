package broker

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
)

// A running request keeps its line: later lines change neither its parameters nor the id of its
// answer. All lines come in one write.
func TestLines_keepsRequest(t *testing.T) {
	l := newLab(t, nil)
	l.root("r", guard.ReadOnly, map[string]string{"first": "of the first", "other": "of the other"})
	p := l.connect("")
	held, release := make(chan struct{}), make(chan struct{})
	setTestMethod(func(s *Session, r *request) (any, error) {
		close(held)
		<-release
		var q wire.ReadParams
		if err := wire.Decode(r.params, &q); err != nil {
			return nil, err
		}
		return s.read(r, &q)
	})
	wait := map[string]chan reply{}
	line := func(id, method, file string) string {
		ch := make(chan reply, 1)
		wait[id] = ch
		p.mu.Lock()
		p.replies[id] = ch
		p.mu.Unlock()
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"path":"r/%s"}}`+"\n", id, method, file)
	}
	var all strings.Builder
	all.WriteString(line(`"10"`, testOnly, "first"))
	for i := range 50 {
		all.WriteString(line(fmt.Sprintf(`"2%d"`, i), wire.Read, "other"))
	}
	p.raw(all.String())
	<-held
	for id, ch := range wait {
		if id == `"10"` {
			continue
		}
		select {
		case r := <-ch:
			if r.Error != nil || !strings.Contains(string(r.Result), "of the other") {
				t.Errorf("%s: %+v %s", id, r.Error, r.Result)
			}
		case s := <-p.stray:
			t.Fatalf("%s was answered with another id: %s", id, s)
		}
	}
	close(release)
	select {
	case r := <-wait[`"10"`]:
		if r.Error != nil || !strings.Contains(string(r.Result), "of the first") {
			t.Errorf("the first: %+v %s", r.Error, r.Result)
		}
	case s := <-p.stray:
		t.Errorf("the first was answered with another id: %s", s)
	}
}

// A batch that is not JSON as a whole has no effect, even if valid requests are at its
// beginning.
func TestLines_brokenBatch(t *testing.T) {
	l := newLab(t, nil)
	dir := l.root("r", guard.ReadWrite, nil)
	p := l.connect("")
	const write = `{"jsonrpc":"2.0","id":1,"method":"files/write","params":{"path":"r/new","content":"x","create":true}}`
	for _, rest := range []string{",x]", `,{"x":bad}]`, ",]", `,"\x"]`, ",{\"x\":\"\xff\"}]", ",01]"} {
		p.raw("[" + write + rest + "\n")
		if got := <-p.stray; !strings.Contains(got, "not a JSON-RPC batch") {
			t.Errorf("%q: %s", rest, got)
		}
	}
	p.must(wire.RootsList, "{}", nil)
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("written: %v, %v", names, err)
	}
}
