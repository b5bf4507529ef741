package session

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// contextFor returns a context for a question. The context ends after d with the cause
// network.ErrUnanswered.
func contextFor(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), d, network.ErrUnanswered)
	t.Cleanup(cancel)
	return ctx
}

// If an answer cannot be saved, the question stays open. An answer that can be saved allows the
// host and writes it to the configuration.
func TestHostIsSaved(t *testing.T) {
	opt, _ := newOptions(t)
	opt.Unmounted, opt.Name = true, "me"
	s := startWith(t, opt)
	file := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "rootsfs/config.toml")
	testkit.Must(t, os.MkdirAll(filepath.Dir(file), 0o700))
	testkit.Must(t, os.WriteFile(file, []byte("oops = 1\n"), 0o600))
	result, ctx := make(chan error, 1), contextFor(t, time.Minute)
	go func() {
		result <- s.consent.AskHost(ctx, broker.Host{Name: "a.test", Port: 443}, func(time.Duration) error { return nil })
	}()
	q := awaitQuestion(t, s, nil)
	if _, err := s.consent.Answer(t.Context(), control.AnswerRequest{ID: q.ID, Approve: true, Save: true}); err == nil || !strings.Contains(err.Error(), "unknown key") {
		t.Errorf("saved in a bad file: %v", err)
	}
	testkit.Must(t, os.Remove(file))
	ans, err := s.consent.Answer(t.Context(), control.AnswerRequest{ID: awaitQuestion(t, s, nil).ID, Approve: true, Save: true})
	if err != nil || ans.Saved != file {
		t.Errorf("%+v, %v", ans, err)
	}
	testkit.Must(t, <-result)
	if text, err := os.ReadFile(file); err != nil || string(text) != "[[net]]\nhosts = [\"a.test:443\"]\nsubject = \"me\"\n" {
		t.Errorf("%s, %v", text, err)
	}
}

// A host is not saved for a session that is named after its program: a project may have chosen the
// program.
func TestHostIsNotSavedForACommandsName(t *testing.T) {
	s := &Session{opt: Options{NameSource: "my-agent", HasProgramName: true}}
	if file, err := s.saveHost(&broker.Host{Name: "evil.test", Port: 443}, 0); err == nil || !strings.Contains(err.Error(), "rootsfs run --name NAME") {
		t.Errorf("%q, %v", file, err)
	}
}
