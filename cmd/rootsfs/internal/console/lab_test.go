package console

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/auditview"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// lab is a running console with its own directories.
type lab struct {
	t    *testing.T
	s    *Server
	work string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	work, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []struct{ variable, name string }{
		{"XDG_RUNTIME_DIR", "run"}, {"XDG_STATE_HOME", "state"}, {"XDG_CONFIG_HOME", "config"},
	} {
		t.Setenv(d.variable, filepath.Join(work, d.name))
		if err := os.Mkdir(filepath.Join(work, d.name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := config.AuditDir()
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(t.Context(), Config{Log: slog.New(slog.DiscardHandler), Records: &auditview.Store{
		Dir: dir, Anchor: config.AnchorPath,
		Sessions: func() ([]string, error) {
			files, _ := audit.Files(dir, "") // after an error the list is empty
			var list []string
			for _, f := range files {
				base := filepath.Base(f)
				list = append(list, base[:strings.LastIndexByte(base, '-')])
			}
			return list, nil
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the console ended with %v", err)
		}
	})
	return &lab{t: t, s: s, work: work}
}

// session begins a session without a mount, with the named roots.
func (l *lab) session(name string, roots ...string) *session.Session {
	l.t.Helper()
	var grants []guard.Grant
	for _, r := range roots {
		dir := filepath.Join(l.work, name+"-"+r)
		if err := os.Mkdir(dir, 0o700); err != nil {
			l.t.Fatal(err)
		}
		grants = append(grants, guard.Grant{Root: guard.RootName(r), Dir: names.Foreign(dir), Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite}})
	}
	s, err := session.Start(l.t.Context(), session.Options{
		Name: name, Unmounted: true, Roots: grants,
		Logger: func(string) (*slog.Logger, error) { return slog.New(slog.DiscardHandler), nil },
	})
	if err != nil {
		l.t.Fatal(err)
	}
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.Run(stop) }()
	l.t.Cleanup(func() {
		close(stop)
		if err := <-ended; err != nil {
			l.t.Error(err)
		}
	})
	return s
}

// browser sends requests to the console as the page does.
type browser struct {
	l           *lab
	cookie, key string
}

// enter logs a new browser in with a new link.
func (l *lab) enter() *browser {
	l.t.Helper()
	b := &browser{l: l}
	_, secret, _ := strings.Cut(l.s.Link(), "#")
	r, body := b.do("POST", "/api/enter", `{"link":"`+secret+`"}`, nil)
	var in struct{ Key string }
	if r.StatusCode != 200 || json.Unmarshal(body, &in) != nil || in.Key == "" || len(r.Cookies()) != 1 {
		l.t.Fatalf("not let in: %d %s", r.StatusCode, body)
	}
	b.cookie, b.key = r.Cookies()[0].Value, in.Key
	return b
}

// request returns the request that the page would send. change, unless nil, alters the request.
func (b *browser) request(method, path, body string, change func(*http.Request)) *http.Request {
	b.l.t.Helper()
	url := "http://" + b.l.s.access.host
	req, err := http.NewRequestWithContext(b.l.t.Context(), method, url+path, strings.NewReader(body))
	if err != nil {
		b.l.t.Fatal(err)
	}
	if method != http.MethodGet {
		req.Header.Set("Origin", url)
		req.Header.Set("Content-Type", "application/json")
	}
	if b.cookie != "" {
		req.AddCookie(&http.Cookie{Name: b.l.s.access.cookie, Value: b.cookie})
	}
	if b.key != "" {
		req.Header.Set(keyHeader, b.key)
	}
	if change != nil {
		change(req)
	}
	return req
}

func (b *browser) do(method, path, body string, change func(*http.Request)) (*http.Response, []byte) {
	b.l.t.Helper()
	req := b.request(method, path, body, change)
	r, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		b.l.t.Fatal(err)
	}
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		b.l.t.Fatal(err)
	}
	return r, data
}

// open begins a request whose answer is a stream.
func (b *browser) open(path string) (io.ReadCloser, error) {
	b.l.t.Helper()
	r, err := http.DefaultTransport.RoundTrip(b.request("GET", path, "", nil))
	if err != nil {
		return nil, err
	}
	return r.Body, nil
}

// must is do for a request that has to succeed. It decodes the answer into out.
func (b *browser) must(method, path, body string, out any) {
	b.l.t.Helper()
	r, data := b.do(method, path, body, nil)
	if r.StatusCode != http.StatusOK {
		b.l.t.Fatalf("%s %s: %d %s", method, path, r.StatusCode, data)
	}
	if err := json.Unmarshal(data, out); err != nil {
		b.l.t.Fatalf("%s %s: %v: %s", method, path, err, data)
	}
}

// dial connects to the console. The connection is closed at the end of the test.
func (l *lab) dial() net.Conn {
	l.t.Helper()
	c, err := net.Dial("tcp", l.s.access.host)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = c.Close() })
	return c
}
