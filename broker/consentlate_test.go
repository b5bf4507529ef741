package broker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

// An answer that comes when the question is over grants nothing, even if the Asker ignores the
// end of its context. A question is over when its request is cancelled, its session is closed or
// its time is up.
func TestConsentLateAnswer(t *testing.T) {
	for name, end := range map[string]func(p *peer, id string){
		"cancelled": func(p *peer, id string) {
			p.raw(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}` + "\n")
		},
		"closed":    func(p *peer, _ string) { p.s.Close() },
		"timed out": func(*peer, string) {},
	} {
		t.Run(name, func(t *testing.T) {
			begun, answered := make(chan struct{}, 1), make(chan struct{})
			l := newLab(t, func(c *Config) {
				c.AskFor = time.Second
				c.Asker = AskerFunc(func(ctx context.Context, _ *Question) (Answer, error) {
					defer close(answered)
					begun <- struct{}{}
					<-ctx.Done()
					return Answer{Decisions: []Decision{{Allow: true}}, By: "late"}, nil
				})
			})
			p := l.connect("alice")
			id, ch := p.send("files/consent", obj{"message": "m", "requestedPaths": []string{t.TempDir()}})
			<-begun
			end(p, id)
			<-answered
			if name == "timed out" {
				if r := <-ch; r.Error != nil || !strings.Contains(string(r.Result), `"granted":false`) || !strings.Contains(string(r.Result), `"reason":"timeout"`) {
					t.Errorf("%s %+v", r.Result, r.Error)
				}
			}
			p.s.Close() // returns when every question is decided
			if got := l.reg.RootsOf("alice"); len(got) != 0 {
				t.Errorf("granted: %+v", got)
			}
			if rec := l.recs.last(names.OpGrant); rec.Op != 0 {
				t.Errorf("on record: %+v", rec)
			}
		})
	}
}

// A person who narrows a question grants a part of the directory that was shown. If the path of
// the directory, or of the part, leads elsewhere when the person answers, nothing is granted.
func TestConsentNarrowsWhatWasShown(t *testing.T) {
	for name, swap := range map[string]func(base string) error{
		"the path is another directory": func(base string) error {
			return errors.Join(os.Rename(base+"/shown", base+"/moved"), os.Rename(base+"/secret", base+"/shown"))
		},
		"the path is a link to another directory": func(base string) error {
			return errors.Join(os.Rename(base+"/shown", base+"/moved"), os.Symlink("secret", base+"/shown"))
		},
		"the narrower path is a link": func(base string) error {
			return errors.Join(os.RemoveAll(base+"/shown/sub"), os.Symlink("../secret/sub", base+"/shown/sub"))
		},
		"a file":    func(base string) error { return os.Rename(base+"/secret", base+"/shown/other") },
		"unchanged": func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			a := &answers{}
			l := newLab(t, func(c *Config) { c.Asker = a })
			base := t.TempDir()
			for _, d := range []string{"shown", "secret"} {
				if err := os.MkdirAll(filepath.Join(base, d, "sub"), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(base, d, "sub/f"), []byte(d), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			narrower := base + "/shown/sub"
			if name == "a file" { // a file in the directory is a narrower path, too
				narrower += "/f"
			}
			a.give = func(*Question) (Answer, error) {
				return Answer{Decisions: []Decision{{Allow: true, Path: narrower}}, By: "test"}, swap(base)
			}
			p := l.connect("")
			r := ask(p, "", base+"/shown")
			if want := name == "unchanged" || name == "a file"; r.Granted != want {
				t.Errorf("granted: %+v", r)
			}
			for _, root := range r.Approved {
				path := root.Root
				if name == "unchanged" {
					path += "/f"
				}
				var read wire.ReadResult
				if p.must("files/read", obj{"path": path}, &read); read.Content != "shown" {
					t.Errorf("%q is read through a consent for another directory", read.Content)
				}
			}
		})
	}
}

// If many questions about one directory are answered with yes at the same time, each grants the
// directory, and there is one root.
func TestConsentAtOnce(t *testing.T) {
	const questions, rounds = 20, 10
	for range rounds {
		var all sync.WaitGroup
		all.Add(questions)
		l := newLab(t, func(c *Config) {
			c.Limits.Consents = -1
			c.Asker = AskerFunc(func(context.Context, *Question) (Answer, error) {
				all.Done()
				all.Wait()
				return Answer{Decisions: []Decision{{Allow: true}}, By: "test"}, nil
			})
		})
		p, dir := l.connect("alice"), t.TempDir()
		var replies []chan reply
		for range questions {
			_, ch := p.send("files/consent", obj{"message": "m", "requestedPaths": []string{dir}})
			replies = append(replies, ch)
		}
		for _, ch := range replies {
			if r := <-ch; r.Error != nil || !strings.Contains(string(r.Result), `"granted":true`) {
				t.Errorf("%s %+v", r.Result, r.Error)
			}
		}
		if got := l.reg.RootsOf("alice"); len(got) != 1 {
			t.Errorf("%d roots", len(got))
		}
	}
}

// R030, R068: whatever a directory or a file is called, consent can be given for it,
// and it is read by its root's name and by its path.
func TestConsentNamesRoots(t *testing.T) {
	l := newLab(t, func(c *Config) {
		c.Limits.Consents = -1
		c.Asker = AskerFunc(allowAll)
	})
	p, base := l.connect("alice"), t.TempDir()
	long := strings.Repeat("報告", 40)
	roots := map[string]bool{}
	for _, name := range []string{long, long + "2", strings.Repeat("n", 255), "a\nb", "a\x01b", "x\u202ey", "-rf", "a:b", "a=b", " ", ".hidden", "~", "*", "a%2Fb", "..."} {
		for _, file := range []bool{false, true} {
			at := filepath.Join(base, map[bool]string{false: "d", true: "f"}[file], name)
			f := at
			if !file {
				f = filepath.Join(at, "f")
			}
			if err := errors.Join(os.MkdirAll(filepath.Dir(f), 0o755), os.WriteFile(f, []byte(name), 0o644)); err != nil {
				t.Fatal(err)
			}
			r := ask(p, "", at)
			if !r.Granted || roots[r.Approved[0].Root] {
				t.Errorf("%q: %+v", name, r)
				continue
			}
			root := r.Approved[0].Root
			roots[root] = true
			if !file {
				root += "/f"
			}
			for _, path := range []string{root, f} {
				var read wire.ReadResult
				if p.must("files/read", obj{"path": path}, &read); read.Content != name {
					t.Errorf("%q by %q: %q", name, path, read.Content)
				}
			}
		}
	}
}

func allowAll(_ context.Context, q *Question) (Answer, error) {
	return Answer{Decisions: slices.Repeat([]Decision{{Allow: true}}, len(q.Items)), By: "test"}, nil
}

// The name of a root that was granted by consent is safe in a shell, on a terminal and for a
// reader, whatever the directory is called, because no person chose the name. The answer has the
// true path, too.
func TestConsentMakesSafeNames(t *testing.T) {
	l := newLab(t, func(c *Config) {
		c.Limits.Consents = -1
		c.Asker = AskerFunc(func(context.Context, *Question) (Answer, error) {
			return Answer{By: "test", Decisions: []Decision{{Allow: true}}}, nil
		})
	})
	p := l.connect("alice")
	base, seen := t.TempDir(), map[string]bool{}
	for dir, want := range map[string]string{
		"a$(id>PWNED)1": "a-id-PWNED-1", "a$(id>PWNED)2": "a-id-PWNED-2", "proj": "proj", "proj\u2800": "proj-2", "-rf": "rf", ".ssh": "ssh",
		"a b": "a-b", "`id`": "id", "\u0430bc": "bc", "a\tb": "a-b-2", "日本": "root", strings.Repeat("x", 200): strings.Repeat("x", 120),
	} {
		path := filepath.Join(base, dir)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		r, err := p.s.Consent(t.Context(), nil, wire.ConsentParams{Message: "m", RequestedPaths: []string{path}})
		if err != nil || len(r.Approved) != 1 {
			t.Fatalf("%q: %+v, %v", dir, r, err)
		}
		got := r.Approved[0]
		if stem := strings.TrimSuffix(want, "-2"); got.Root != stem && got.Root != stem+"-2" || got.Path != path || seen[got.Root] || !names.IsShellWord(got.Root) {
			t.Errorf("%q became the root %q (%q), want %q", dir, got.Root, got.Path, want)
		}
		seen[got.Root] = true
	}
}
