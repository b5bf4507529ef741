package console

import (
	"bufio"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/sessionhub"
)

// updates reads the stream until ok reports true for an update.
func (b *browser) updates(what string, ok func(sessionhub.Update) bool) {
	b.l.t.Helper()
	r, err := b.open("/api/stream")
	if err != nil {
		b.l.t.Fatal(err)
	}
	defer r.Close()
	end := time.AfterFunc(time.Minute, func() { _ = r.Close() })
	defer end.Stop()
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			b.l.t.Fatalf("never happened: %s: %v", what, err)
		}
		var u sessionhub.Update
		if err := json.Unmarshal(line, &u); err != nil {
			b.l.t.Fatal(err)
		}
		if ok(u) {
			return
		}
	}
}

// The stream has the remembered denials, and the page can lift them.
func TestForget(t *testing.T) {
	l := newLab(t)
	v := l.server(l.session("s"), "indexer")
	dir := l.tree("proj", "secret/a")
	b := l.enter()
	v.ask("m", "ro", dir)
	q := l.waiting()
	var a control.AnswerAnswer
	b.must("POST", "/api/answer?session=s", fmt.Sprintf(`{"id":%q,"remember":true}`, q.ID), &a)
	<-v.answers
	var d control.Denial
	b.updates("the stream has the denial", func(u sessionhub.Update) bool {
		if len(u.Denials) == 1 {
			d = u.Denials[0]
		}
		return len(u.Denials) == 1
	})
	if d.Session != "s" || d.Subject != "indexer" || d.Path.Raw() != dir || d.ID == "" {
		t.Errorf("%+v", d)
	}
	for body, want := range map[string]int{
		`{"id":"nope"}`:            404,
		`{}`:                       422,
		`{"id":"a","all":true}`:    422,
		`{"all":true,"more":true}`: 400,
	} {
		if r, data := b.do("POST", "/api/forget?session=s", body, nil); r.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", body, r.StatusCode, data, want)
		}
	}
	if r, data := b.do("POST", "/api/forget?session=gone", `{"all":true}`, nil); r.StatusCode != 404 {
		t.Errorf("a session that is gone: %d %s", r.StatusCode, data)
	}
	var f control.ForgetAnswer
	b.must("POST", "/api/forget?session=s", fmt.Sprintf(`{"id":%q}`, d.ID), &f)
	if len(f.Forgotten) != 1 || f.Forgotten[0].Path.Raw() != dir {
		t.Errorf("%+v", f)
	}
	b.updates("the stream no longer has the denial", func(u sessionhub.Update) bool { return u.QuestionsIncluded && len(u.Denials) == 0 })
	v.ask("m", "ro", dir+"/secret")
	if q := l.waiting(); q.Items[0].Problem != "" {
		t.Errorf("asked again: %+v", q.Items)
	}
}
