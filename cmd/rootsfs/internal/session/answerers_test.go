package session

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/consent"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/oauthissuer"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// attempt asks, by one way into rootsfs, for a file or host that was not granted. greedy is the MCP
// client that asks.
type attempt struct {
	*greedy
	ask func() (granted bool)
}

const testToken = "0123456789abcdef0123456789abcdef"

// ways has, for each way in, a function that prepares an attempt. Without forms, the client cannot
// show forms. Only the ways that call newGreedy use the revision of the protocol.
var ways = map[consent.Way]func(t *testing.T, s *Session, file, revision string, forms bool) attempt{
	consent.WayMount: func(t *testing.T, s *Session, file, _ string, _ bool) attempt {
		return attempt{&greedy{t: t}, func() bool {
			for _, path := range []string{file, filepath.Base(file)} {
				if _, err := childfs.ReadFile(filepath.Join(s.opt.Mount.Point, path)); err == nil {
					return true
				}
			}
			return false
		}}
	},
	consent.WayServer: func(t *testing.T, s *Session, file, _ string, forms bool) attempt {
		return byConsent(t, s.Connect(consent.WayServer, "me"), file, forms)
	},
	consent.WayNetwork: func(t *testing.T, s *Session, _, _ string, forms bool) attempt {
		g, own := &greedy{t: t, unable: !forms}, s.Connect(consent.WayServer, "me")
		t.Cleanup(own.Close)
		own.AskThrough(g)
		return attempt{g, func() bool {
			permitted := false
			err := s.consent.AskHost(contextFor(t, time.Minute), broker.Host{Name: "a.test", Port: 443}, func(time.Duration) error { permitted = true; return nil })
			return err == nil && permitted
		}}
	},
	consent.WayStdio: func(t *testing.T, s *Session, file, revision string, forms bool) attempt {
		return byTool(newGreedy(t, overStdio(t, s, true), revision, forms), file)
	},
	consent.WayToken: func(t *testing.T, s *Session, file, revision string, forms bool) attempt {
		to := overHTTP(t, s, control.HTTPRequest{Token: testToken})
		return byTool(newGreedy(t, to(testToken), revision, forms), file)
	},
	consent.WayOAuth: func(t *testing.T, s *Session, file, revision string, forms bool) attempt {
		i := oauthissuer.New(t)
		to := overHTTP(t, s, control.HTTPRequest{Issuer: i.URL, Audiences: []string{"files"}, Resources: []string{"http://127.0.0.1/mcp"}})
		return byTool(newGreedy(t, to(i.Token("files", map[string]any{"sub": "bob"})), revision, forms), file)
	},
	consent.WayNoToken: func(t *testing.T, s *Session, file, revision string, forms bool) attempt {
		return byTool(newGreedy(t, overHTTP(t, s, control.HTTPRequest{})(""), revision, forms), file)
	},
	consent.WayRoots: func(t *testing.T, s *Session, file, revision string, forms bool) attempt {
		return byTool(newGreedy(t, overStdio(t, s, false), revision, forms, filepath.Dir(file), file), file)
	},
	consent.WayOther: func(t *testing.T, s *Session, file, _ string, forms bool) attempt {
		return byConsent(t, s.Connect("a way in that nobody has thought of", "x"), file, forms)
	},
}

// byTool reads a file by a tool.
func byTool(g *greedy, file string) attempt {
	return attempt{g, func() bool {
		text, ok := g.call("read_text_file", map[string]any{"path": file})
		return ok && text == "private"
	}}
}

// byConsent asks by files/consent.
func byConsent(t *testing.T, c *broker.Session, file string, forms bool) attempt {
	g := &greedy{t: t, unable: !forms}
	c.AskThrough(g)
	t.Cleanup(c.Close)
	return attempt{g, func() bool {
		res, err := c.Consent(t.Context(), nil, wire.ConsentParams{RequestedPaths: []string{file}})
		testkit.Must(t, err)
		return res.Granted
	}}
}

// overStdio is the way to a server of tools over a pair of streams, as `serve` makes it.
func overStdio(t *testing.T, s *Session, ask bool) mcp.Transport {
	t.Helper()
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	srv := s.NewTools("serve", control.ToolsRequest{Ask: ask})
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(t.Context(), toServer, fromServer) }()
	t.Cleanup(func() {
		_ = fromClient.Close()
		<-ended
		srv.Close()
	})
	return &mcp.IOTransport{Reader: toClient, Writer: fromClient}
}

// A question is answered by the first answerer of the way in (see consent.Answerers) that is ready
// to answer. If no answerer is ready, the access is not granted. The asker's own client is not
// asked unless StartingHost is an answerer of the way in.
func TestAnswerers(t *testing.T) {
	for _, way := range consent.Ways() {
		if ways[way] == nil {
			t.Errorf("no attempt for the way in %q", way)
		}
	}
	for way, begin := range ways {
		for _, revision := range []string{"2025-11-25", "2026-07-28"} {
			for name, c := range map[string]struct {
				conf  string
				ready []consent.Answerer // the answerers that would allow the request
			}{
				"everybody allows": {"[[files.allow]]\npath = \"FILE\"\n", []consent.Answerer{consent.Configuration, consent.StartingHost, consent.Owner}},
				"no configuration": {"", []consent.Answerer{consent.StartingHost, consent.Owner}},
				"no form":          {"", []consent.Answerer{consent.Owner}},
				"nobody is asked":  {"[files]\nconsent = \"deny\"\n", nil},
			} {
				if way == consent.WayNetwork && name == "nobody is asked" {
					continue // files.consent is about paths, not hosts
				}
				t.Run(fmt.Sprintf("%s, %s, %s", way, revision, name), func(t *testing.T) {
					var want consent.Answerer
					for _, one := range slices.Backward(consent.Answerers(way)) {
						if slices.Contains(c.ready, one) {
							want = one
						}
					}
					s, file := startWithFile(t, c.conf, way == consent.WayMount)
					a := begin(t, s, file, revision, slices.Contains(c.ready, consent.StartingHost))
					var granted bool
					done := make(chan struct{})
					go func() {
						defer close(done)
						granted = a.ask()
					}()
					q := awaitQuestion(t, s, done)
					if (q != nil) != (want == consent.Owner) {
						t.Errorf("a question waits for the owner: %v, and %q should answer", q != nil, want)
					}
					if q != nil {
						_, err := s.consent.Answer(t.Context(), control.AnswerRequest{ID: q.ID, Approve: true})
						testkit.Must(t, err)
					}
					<-done
					if granted != (want != "") {
						t.Errorf("granted: %v, and %q should answer", granted, want)
					}
					if n := a.questions.Load(); n > 0 && !slices.Contains(consent.Answerers(way), consent.StartingHost) {
						t.Errorf("the asker's own client was asked %d times", n)
					}
					if n := len(s.Registry().Roots()); way != consent.WayNetwork && (n > 0) != granted {
						t.Errorf("%d roots were granted", n)
					}
				})
			}
		}
	}
}

// A grant to the client on a session's standard streams does not hold for clients that come by
// another way in. Neither does a grant to a server whose subject is sharedSubject.
func TestGrantIsForOneClient(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, *Session, string) attempt{
		"client": func(t *testing.T, s *Session, file string) attempt {
			return byTool(newGreedy(t, overStdio(t, s, true), "2025-11-25", true), file)
		},
		"server": func(t *testing.T, s *Session, file string) attempt {
			return byConsent(t, s.Connect(consent.WayServer, sharedSubject), file, true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, file := startWithFile(t, "", false)
			if !begin(t, s, file).ask() {
				t.Fatal("not granted")
			}
			checkNotShared(t, s)
		})
	}
}

func checkNotShared(t *testing.T, s *Session) {
	t.Helper()
	other := newGreedy(t, overHTTP(t, s, control.HTTPRequest{})(""), "2025-11-25", true)
	if text, ok := other.call("list_allowed_directories", map[string]any{}); !ok || strings.Contains(text, "private") {
		t.Errorf("%v: %q", ok, text)
	}
	for _, st := range s.Registry().Roots() {
		if st.Grant.Subject == "" || st.Grant.Subject == st.Grant.Subject.WithoutSession() {
			t.Errorf("granted to %q: %+v", st.Grant.Subject, st.Grant)
		}
	}
}
