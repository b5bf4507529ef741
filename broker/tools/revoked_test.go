package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// readingArgs are arguments for each tool that reads in a root. The answers show something of
// the file code/in/file.
var readingArgs = map[string]string{
	"read_file":                 `{"path":"code/in/file"}`,
	"read_text_file":            `{"path":"code/in/file"}`,
	"read_media_file":           `{"path":"code/in/file"}`,
	"read_multiple_files":       `{"paths":["code/in/file"]}`,
	"read_file_range":           `{"path":"code/in/file"}`,
	"list_directory":            `{"path":"code/in"}`,
	"list_directory_with_sizes": `{"path":"code/in"}`,
	"directory_tree":            `{"path":"code"}`,
	"search_files":              `{"path":"code","pattern":"**"}`,
	"search_within_files":       `{"path":"code","substring":"text"}`,
	"get_file_info":             `{"path":"code/in/file"}`,
	"edit_file":                 `{"path":"code/in/file","edits":[{"oldText":"text","newText":"new"}],"dryRun":true}`,
}

// Data that was read before a revocation is in no answer after it. In this test a root ends after
// a reading tool has done its work and before its answer is handed over. The root is that of the
// tool's path, which may be approved again at once, or a root inside it. The end of a root
// elsewhere, whose data is not in the answer, changes nothing.
func TestRevokedBeforeTheAnswer(t *testing.T) {
	for _, tested := range catalog() {
		name := tested.def.Name
		args, ok := readingArgs[name]
		if !ok {
			if tested.def.Annotations.ReadOnlyHint && name != "list_allowed_directories" { // it reads in no root
				t.Errorf("%s is not tested: it needs arguments in readingArgs", name)
			}
			continue
		}
		t.Run(name, func(t *testing.T) {
			s := newRevocable(t)
			for _, c := range []struct {
				what string
				end  func(*call)
				want string // part of the error; "" for an answer
			}{
				{"nothing ends", func(*call) {}, ""},
				{"a root elsewhere ends", func(*call) { s.revoke("other") }, ""},
				{"the root inside ends", func(*call) { s.revoke("inner") }, "read it again"},
				{"the root ends", func(*call) { s.revoke("code") }, "revoked"},
				{"the root ends and is approved again", func(*call) {
					s.revoke("code")
					s.grant("code", s.dir)
				}, "revoked"},
				{"the root ends, is approved again, and the call names it again", func(k *call) {
					s.revoke("code")
					s.grant("code", s.dir)
					k.stamps.Add("code")
				}, "revoked"},
				{"the root ends while the client receives the last progress notification", func(k *call) {
					k.reporting <- struct{}{}
					go func() {
						s.revoke("code")
						<-k.reporting
					}()
				}, "revoked"},
			} {
				s.grantAll()
				res := s.call(tested, args, c.end)
				if text, _ := json.Marshal(res.toMCP()); res.failed != (c.want != "") || !strings.Contains(string(text), c.want) {
					t.Errorf("%s: failed %v: %s; want %q", c.what, res.failed, text, c.want)
				}
			}
		})
	}
}

// A long answer waits behind another one, which the client does not read. If the root of the
// waiting answer ends meanwhile, the client gets a refusal without the root's data.
func TestRevokedBehindALongAnswer(t *testing.T) {
	for _, ends := range []bool{false, true} {
		s := newRevocable(t)
		guardtest.Tree(t, s.dir, "", "long="+strings.Repeat("a", 2*minBuffer))
		s.grantAll()
		i := slices.IndexFunc(catalog(), func(tested tool) bool { return tested.def.Name == "read_text_file" })
		res := s.call(catalog()[i], `{"path":"code/long"}`, func(*call) {})
		if res.failed || !res.isLong() {
			t.Fatalf("not a long result: %+v", res)
		}
		var out bytes.Buffer
		c := &lineConn{LineConn: wire.NewLineConn(io.NopCloser(strings.NewReader("")), writeCloser{&out}, wire.Hooks{}), s: s.s}
		c.long.Lock()
		sent := make(chan struct{})
		go func() {
			c.send([]byte("1"), res)
			close(sent)
		}()
		if ends {
			s.revoke("code")
		}
		c.long.Unlock()
		<-sent
		if got := strings.Contains(out.String(), "aaaa"); got == ends || strings.Contains(out.String(), "revoked") != ends {
			t.Errorf("the root ends %v: answered %.200q", ends, out.String())
		}
	}
}

type writeCloser struct{ io.Writer }

func (writeCloser) Close() error { return nil }

// resources/read returns no data of a root that ends while a file or directory in it is read.
func TestRevokedBeforeTheResource(t *testing.T) {
	s := newRevocable(t)
	s.grantAll()
	for _, path := range []string{s.dir, s.dir + "/in/file"} {
		for _, ends := range []bool{false, true} {
			revoked := make(chan struct{})
			revoke := func(root guard.RootName) {
				go func() {
					s.revoke(root)
					close(revoked)
				}()
				testkit.Until(t, "the end of the root", func() bool { _, live := s.s.cfg.Registry.EpochOf(root); return !live })
			}
			if ends {
				s.onRead.Store(&revoke)
			}
			res, err := s.s.readResource(context.Background(), &mcp.ReadResourceRequest{Params: &mcp.ReadResourceParams{URI: names.FormatURI(path)}})
			if ends != (err != nil) || ends && !strings.Contains(err.Error(), "revoked") {
				t.Errorf("%s, the root ends %v: %v, %v", path, ends, res, err)
			}
			if ends {
				<-revoked
				s.grantAll()
			}
		}
	}
}

// revocable is a server with the roots code, inner (the directory in of code) and other.
type revocable struct {
	t     *testing.T
	s     *Server
	dir   string
	other string
	// onRead is called once, when a file or directory is opened to be read. Its argument is the root.
	onRead atomic.Pointer[func(guard.RootName)]
	// onWrite is called once, when a write is on record.
	onWrite atomic.Pointer[context.CancelFunc]
	mu      sync.Mutex // guards records
	records []guard.Record
}

// Record implements guard.Auditor.
func (r *revocable) Record(rec guard.Record) error {
	r.mu.Lock()
	r.records = append(r.records, rec)
	r.mu.Unlock()
	if rec.Written > 0 {
		if f := r.onWrite.Swap(nil); f != nil {
			(*f)()
		}
	}
	if rec.Op == names.OpOpen || rec.Op == names.OpOpendir {
		if f := r.onRead.Swap(nil); f != nil {
			(*f)(rec.Path.Root)
		}
	}
	return nil
}

func newRevocable(t *testing.T) *revocable {
	t.Helper()
	r := &revocable{t: t, dir: t.TempDir(), other: t.TempDir()}
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener(), Auditor: r})
	r.s = New(Config{Registry: reg, Tree: vfs.New(reg)})
	guardtest.Tree(t, r.dir, "", "in/file=text\n")
	t.Cleanup(func() {
		r.s.Close()
		if _, err := reg.RevokeAll(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *revocable) grant(name guard.RootName, dir string) {
	r.t.Helper()
	_, err := r.s.cfg.Registry.Grant(context.Background(), guard.Grant{
		Root: name, Dir: names.Foreign(dir), Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite},
	})
	noError(r.t, err)
}

// grantAll grants each of the three roots that does not exist.
func (r *revocable) grantAll() {
	r.t.Helper()
	for name, dir := range map[guard.RootName]string{"code": r.dir, "inner": filepath.Join(r.dir, "in"), "other": r.other} {
		if _, ok := r.s.cfg.Registry.Lookup(name); !ok {
			r.grant(name, dir)
		}
	}
}

func (r *revocable) revoke(name guard.RootName) {
	_, err := r.s.cfg.Registry.Revoke(context.Background(), name)
	if err != nil {
		r.t.Error(err)
	}
}

// call calls a tool. It calls end when the work of the tool is done, before the answer is handed
// over.
func (r *revocable) call(t tool, args string, end func(*call)) *result {
	r.t.Helper()
	run := t.run
	t.run = func(c *call) (*result, error) {
		res, err := run(c)
		end(c)
		return res, err
	}
	res, err := r.s.answer(context.Background(), &t, &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{
		Name: t.def.Name, Arguments: json.RawMessage(args),
	}}, nil)
	noError(r.t, err)
	return res
}

// If the difference cannot be shown, because the call is cancelled right after the edit, the answer
// says that the edit was made.
func TestEditWithoutDifference(t *testing.T) {
	s := newRevocable(t)
	s.grantAll()
	ctx, cancel := context.WithCancel(t.Context())
	s.onWrite.Store(&cancel)
	i := slices.IndexFunc(catalog(), func(tested tool) bool { return tested.def.Name == "edit_file" })
	res, err := s.s.answer(ctx, &catalog()[i], &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{
		Name: "edit_file", Arguments: json.RawMessage(`{"path":"code/in/file","edits":[{"oldText":"text","newText":"new"}]}`),
	}}, nil)
	noError(t, err)
	if res.failed || !strings.Contains(res.text, "The edits were made. They are not shown") || ctx.Err() == nil {
		t.Errorf("failed %v: %s", res.failed, res.text)
	}
	if now, err := os.ReadFile(s.dir + "/in/file"); err != nil || string(now) != "new\n" {
		t.Errorf("%q, %v", now, err)
	}
}

// A call that is cancelled while it waits for other calls is recorded once, like a call that is
// cancelled while it runs.
func TestCancelledWhileItWaits(t *testing.T) {
	s := newRevocable(t)
	noError(t, s.s.room.Acquire(t.Context(), int64(s.s.cfg.InFlight)))
	defer s.s.room.Release(int64(s.s.cfg.InFlight))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	res, err := s.s.answer(ctx, &catalog()[0], &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Name: catalog()[0].def.Name}}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", res, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.records) != 1 || s.records[0].Verdict != guard.Failed || !strings.Contains(s.records[0].Detail, catalog()[0].def.Name) {
		t.Errorf("records %+v", s.records)
	}
}
