package consent

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/events"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// An approval with the mode "ro" grants the requested rights that guard.ReadOnly has. The approval
// is refused if there are no such rights.
func TestApproveReadOnly(t *testing.T) {
	for asked, want := range map[guard.Rights]string{
		guard.ReadWrite: "ro", guard.ReadOnly: "ro", guard.List: "list", guard.Write | guard.Read: "read", guard.Write: "",
	} {
		q := &broker.Question{Items: []broker.Item{{Requested: "/a", Resolved: "/a", Mode: asked.String(), Rights: asked}}}
		d, err := decide(q, control.AnswerRequest{Approve: true, Mode: "ro"})
		if want == "" {
			if err == nil {
				t.Errorf("%v: %+v", asked, d)
			}
			continue
		}
		if err != nil || d[0].Mode != want {
			t.Errorf("%v: %+v, %v", asked, d, err)
		}
	}
}

// A consent may stage a root that a server asked to write to. It never makes a root writable
// that a server asked to have staged.
func TestApproveStaged(t *testing.T) {
	staged := guard.ReadWrite | guard.Stage
	for _, tt := range []struct {
		asked guard.Rights
		mode  string
		ok    bool
	}{{guard.ReadWrite, "stage", true}, {staged, "rw", false}, {guard.ReadOnly, "stage", false}} {
		q := &broker.Question{Items: []broker.Item{{Requested: "/a", Resolved: "/a", Mode: tt.asked.String(), Rights: tt.asked}}}
		if d, err := decide(q, control.AnswerRequest{Approve: true, Mode: tt.mode}); (err == nil) != tt.ok {
			t.Errorf("asked for %v, answered %s: %+v, %v", tt.asked, tt.mode, d, err)
		}
	}
	p := Preapproved{Dir: "/a", Rights: staged}
	if p.covers(&broker.Item{Resolved: "/a", Rights: guard.ReadWrite}) || !p.covers(&broker.Item{Resolved: "/a", Rights: guard.ReadOnly}) {
		t.Error("a staged pre-approval covers plain writing, or does not cover reading")
	}
}

// newQuestions returns the Questions of the session "me", which has no servers and no audit log.
func newQuestions(t *testing.T) *Questions {
	t.Helper()
	return New(Config{
		Session: "me", Registry: guard.NewRegistry(guard.Config{Opener: vfs.Opener()}), Log: slog.New(slog.DiscardHandler), Events: &events.Hub{},
		Servers: func() []*broker.Session { return nil },
	})
}

// queueQuestion puts a question about one directory to the owner, and returns when the question
// waits. The channel gets the answer for the server.
func queueQuestion(t *testing.T, qs *Questions, subject guard.Subject, dir string) (id string, answered <-chan broker.Answer) {
	t.Helper()
	q := &broker.Question{ID: "q-" + string(subject), Subject: subject, Until: time.Now().Add(time.Hour),
		Items: []broker.Item{{Requested: names.Foreign(dir), Resolved: names.Foreign(dir), Mode: "ro", Rights: guard.ReadOnly}}}
	answers := make(chan broker.Answer, 1)
	go func() {
		if a, err := qs.waiting.Ask(t.Context(), q); err == nil {
			answers <- a
		}
	}()
	for {
		changed := qs.waiting.Changed()
		if list := qs.waiting.List(); len(list) > 0 {
			return list[0].ID, answers
		}
		<-changed
	}
}

// Answer resolves the links in a narrower path, because rootsfs consent, the console and top send
// the path as the owner wrote it. If the path is invalid, or has a link that a program can change,
// Answer refuses it, and the question goes on waiting.
func TestNarrowerPathIsResolved(t *testing.T) {
	work := t.TempDir()
	t.Setenv("XDG_STATE_HOME", filepath.Join(work, "state"))
	for _, d := range []string{"proj/docs", "else", "served", "links"} {
		testkit.Must(t, os.MkdirAll(filepath.Join(work, d), 0o700))
	}
	for link, to := range map[string]string{"links/docs": "proj/docs", "links/else": "else", "served/docs": "proj/docs"} {
		testkit.Must(t, os.Symlink(filepath.Join(work, to), filepath.Join(work, link)))
	}
	dirs, err := writabledirs.Open()
	testkit.Must(t, err)
	testkit.Must(t, dirs.NoteWritable(filepath.Join(work, "served")))
	qs := newQuestions(t)
	id, answered := queueQuestion(t, qs, "v", filepath.Join(work, "proj"))
	for path, want := range map[string]string{
		"links/docs":                       "is not absolute",
		filepath.Join(work, "links/else"):  "is not below",
		filepath.Join(work, "links/none"):  "narrower path",
		filepath.Join(work, "served/docs"): "narrower path",
		work + "/proj/docs\x00":            "narrower path",
	} {
		_, err := qs.Answer(t.Context(), control.AnswerRequest{ID: id, Approve: true, Path: path})
		if err == nil || !strings.Contains(err.Error(), want) || len(qs.waiting.List()) != 1 {
			t.Errorf("%q: %v, want %q and a question that waits", path, err, want)
		}
	}
	_, err = qs.Answer(t.Context(), control.AnswerRequest{ID: id, Approve: true, Path: filepath.Join(work, "links/docs")})
	testkit.Must(t, err)
	if d := (<-answered).Decisions; len(d) != 1 || d[0].Path != filepath.Join(work, "proj/docs") {
		t.Errorf("%+v", d)
	}
}

// A denial is remembered before the server gets the answer, because the server may ask again at
// once. If a denial cannot be remembered, the server gets no answer and the question stays
// open.
func TestDenialIsRememberedFirst(t *testing.T) {
	qs := newQuestions(t)
	id, answered := queueQuestion(t, qs, "v", "/denied")
	for i := range maxDenials {
		qs.denials.entries = append(qs.denials.entries, control.Denial{ID: fmt.Sprint(i), Subject: "v", Path: names.Foreign(fmt.Sprint("/", i))})
	}
	if _, err := qs.Answer(t.Context(), control.AnswerRequest{ID: id, Remember: true}); err == nil || len(qs.waiting.List()) != 1 {
		t.Fatalf("the question was answered, though the denial is not remembered: %v", err)
	}
	qs.denials.entries = nil
	if _, err := qs.Answer(t.Context(), control.AnswerRequest{ID: id, Remember: true}); err != nil {
		t.Fatal(err)
	}
	if d := (<-answered).Decisions; len(d) != 1 || d[0].Allow || !qs.denials.covers("v", &broker.Item{Requested: "/denied/f"}) {
		t.Errorf("%+v", d)
	}
}

// A remembered denial of a path is in force for all sessions of one user, and for no other user.
func TestDenialsArePerUser(t *testing.T) {
	var d denials
	item := broker.Item{Requested: "/home/me/private", Resolved: "/home/me/private"}
	testkit.Must(t, d.add(&broker.Question{Subject: "oauth:bob#1", Items: []broker.Item{item}}))
	for who, want := range map[guard.Subject]bool{"oauth:bob#1": true, "oauth:bob#2": true, "oauth:bob": true, "oauth:alice#1": false, "oauth:bobby": false, "serve#1": false} {
		if got := d.covers(who, &item); got != want {
			t.Errorf("denied to %s: %v", who, got)
		}
	}
}
