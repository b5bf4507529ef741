package consent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// The delay and the text of an answer that grants nothing do not depend on what exists at the
// path. This holds if nobody answers, if a person denies after a while, and if the path was
// denied before. (If a missing path were refused at once, the delay would show that it is missing.)
func TestConsentTellsNothing(t *testing.T) {
	home := t.TempDir()
	for _, d := range []string{"src", "work/denied/in", "work/other"} {
		if err := os.MkdirAll(filepath.Join(home, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"inside": "work/denied/in", "nothing": "work/denied/gone", "work/denied/out": "work/other"} {
		if err := os.Symlink(filepath.Join(home, to), filepath.Join(home, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(home+"/.bashrc", []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, alike := range map[string][][]string{
		"a file in the home directory":           {{".bashrc"}, {"missing"}, {"missing/f"}, {".bashrc/f"}},
		"beside a path that is allowed":          {{"src", ".bashrc"}, {"src", "missing"}},
		"through a link into a denied directory": {{"inside"}, {"nothing"}},
		"below what was denied":                  {{"work/denied/in"}, {"work/denied/gone"}, {"work/denied/out"}},
	} {
		for _, answer := range []time.Duration{0, 7 * time.Second} {
			results := map[string]string{}
			for _, paths := range alike {
				got := consentIn(t, home, paths, answer)
				if results[got] = fmt.Sprint(paths); len(results) > 1 {
					t.Errorf("%s: the answers tell apart what is there: %v", name, results)
				}
			}
		}
	}
}

// consentIn asks for paths below home, and returns the answer to the server and its delay. The
// path src is pre-approved, and a denial of work/denied is remembered. A person denies the other
// paths after the duration after; if it is 0, nobody answers.
func consentIn(t *testing.T, home string, paths []string, after time.Duration) (result string) {
	synctest.Test(t, func(t *testing.T) {
		reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
		qs := newQuestions(t)
		qs.SetFiles([]Preapproved{{home + "/src", guard.ReadOnly}}, false)
		if err := qs.denials.add(&broker.Question{Subject: "x", Items: []broker.Item{{Requested: names.Foreign(home + "/work/denied"), Resolved: names.Foreign(home + "/work/denied")}}}); err != nil {
			t.Fatal(err)
		}
		person := broker.AskerFunc(func(ctx context.Context, q *broker.Question) (broker.Answer, error) {
			if _, all := qs.denials.markDenied(q); all {
				return broker.Answer{}, nil
			}
			if after == 0 {
				<-ctx.Done()
				return broker.Answer{}, broker.ErrUnanswered
			}
			time.Sleep(after)
			return broker.Answer{}, nil
		})
		b := broker.New(broker.Config{Registry: reg, Tree: vfs.New(reg), AskFor: 2 * time.Minute, Asker: broker.Chain(qs.askConfig(true), person)})
		front := b.Session("x")
		var asked []string
		for _, p := range paths {
			asked = append(asked, filepath.Join(home, p))
		}
		begun := time.Now()
		res, err := front.Consent(context.Background(), nil, wire.ConsentParams{Message: "m", RequestedPaths: asked})
		if err != nil {
			t.Fatal(err)
		}
		result = fmt.Sprintf("%+v after %v", *res, time.Since(begun))
		front.Close()
		b.Close()
		if _, err := reg.RevokeAll(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return result
}
