package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// The calls of this package work against a host that executes files/* with package broker. They
// work over a wrapped transport of the SDK and over the line transports of the two packages.
func TestExecutor(t *testing.T) {
	t.Run("wrapped", func(t *testing.T) {
		testExecutor(t, func(b *client.Broker, s *broker.Session) (server, host mcp.Transport) {
			st, ct := mcp.NewInMemoryTransports()
			return b.Transport(st), s.Transport(ct)
		})
	})
	t.Run("lines", func(t *testing.T) {
		testExecutor(t, func(b *client.Broker, s *broker.Session) (server, host mcp.Transport) {
			inR, inW := io.Pipe()
			outR, outW := io.Pipe()
			return b.Lines(inR, outW, 0), s.Lines(outR, inW, 0)
		})
	})
}

func testExecutor(t *testing.T, transports func(*client.Broker, *broker.Session) (server, host mcp.Transport)) {
	dir := t.TempDir()
	for name, content := range map[string]string{"a.txt": "alpha", "d/b": "beta", "d/.h": ""} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	if _, err := reg.Grant(bg, guard.Grant{Root: "p", Dir: names.Foreign(dir), Policy: guard.Policy{Rights: guard.ReadWrite}, Origin: "test"}); err != nil {
		t.Fatal(err)
	}
	host := broker.New(broker.Config{Registry: reg, Tree: vfs.New(reg), Limits: broker.Limits{MaxChunk: 1000}})
	defer host.Close()

	b := client.New(nil)
	s := newServer()
	roots := client.NewRootsService(&client.RootsOptions{Broker: b})
	s.AddReceivingMiddleware(roots.Middleware())
	st, ct := transports(b, host.Session("server"))
	ss, err := s.Connect(bg, st, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil)
	cs, err := c.Connect(bg, ct, &mcp.ClientSessionOptions{ProtocolVersion: legacy})
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	f, err := b.Files(ss)
	if err != nil {
		t.Fatal(err)
	}

	if err := fstest.TestFS(f.FS(bg, "p"), "a.txt", "d/b", "d/.h"); err != nil {
		t.Error(err)
	}
	if err := fstest.TestFS(f.FS(bg, ""), "p/a.txt"); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	events, err := f.Watch(ctx, "p/d", client.WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := pattern(12_345)
	w, err := f.WriteFile(bg, "p/d/big", want, client.WriteOptions{Create: true})
	if err != nil || w.Size != int64(len(want)) {
		t.Fatalf("%+v, %v", w, err)
	}
	if ev := <-events; ev.Path != "p/d/big" {
		t.Errorf("event %+v", ev)
	}
	if got, err := f.ReadFile(bg, "p/d/big"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := f.WriteFile(bg, "p/d/big", nil, client.WriteOptions{IfMatch: "stale"}); !errors.Is(err, names.Conflict) {
		t.Errorf("stale etag: %v", err)
	}
	if _, etag, fresh, err := f.ReadFileIf(bg, "p/d/big", w.ETag); err != nil || fresh || etag != w.ETag {
		t.Errorf("revalidation: %v, %v", fresh, err)
	}
	if _, err := f.Append(bg, "p/a.txt", []byte("!"), false); err != nil {
		t.Error(err)
	}
	for _, err := range []error{
		second(f.Mkdir(bg, "p/n/m", true)), second(f.Create(bg, "p/n/f", false)), second(f.Copy(bg, "p/a.txt", "p/n/c", client.MoveOptions{})),
		second(f.Rename(bg, "p/n/c", "p/n/r", client.MoveOptions{})), f.Delete(bg, "p/n", client.DeleteOptions{Recursive: true}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	for path, kind := range map[string]names.Kind{"p/none": names.NotExist, "q/x": names.NoConsent, "p/d": names.IsDir, "p/a.txt/x": names.NotDir} {
		if _, err := f.ReadFile(bg, path); !errors.Is(err, kind) {
			t.Errorf("%s: %v", path, err)
		}
	}
	n := 0
	for e, err := range f.List(bg, "p", client.ListOptions{Recursive: true, Hidden: true, PageSize: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == wire.TypeFile {
			n++
		}
	}
	if n != 4 {
		t.Errorf("%d files listed", n)
	}
	for _, noMetadata := range []bool{false, true} {
		for e, err := range f.List(bg, "p", client.ListOptions{NoMetadata: noMetadata}) {
			if err != nil || (e.MTime == "") != noMetadata || noMetadata && e.Size != 0 || e.Type == "" {
				t.Errorf("without metadata %v: %+v, %v", noMetadata, e, err)
			}
		}
	}
	if g, err := roots.Guard(bg, ss); err != nil || !g.Within(dir+"/a.txt") || g.Within(filepath.Dir(dir)) {
		t.Errorf("guard: %v", err)
	}
	if _, err := reg.Revoke(bg, "p"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadFile(bg, "p/a.txt"); names.Reason(err).Code() != names.PermissionDenied {
		t.Errorf("after the revocation: %v", err)
	}
	for ev := range events {
		if ev.Ended {
			break
		}
	}
}

// R065, R066, R101: an absolute path is accepted below a root that the host announced, or
// below a path that got consent. Only names are compared, so a path that reaches a root through a
// link from elsewhere is refused. The text of a refusal does not contain the directory of the
// roots.
func TestExecutorAbsolutePaths(t *testing.T) {
	base := t.TempDir()
	for _, d := range []string{"granted", "consented", "closed"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(base, d, "sub"), 0o755), os.WriteFile(filepath.Join(base, d, "sub", "a b"), []byte(d), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"asked": "consented", "stray": "granted", "granted/out": "../closed"} {
		if err := os.Symlink(to, filepath.Join(base, link)); err != nil {
			t.Fatal(err)
		}
	}
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	defer reg.RevokeAll(bg)
	if _, err := reg.Grant(bg, guard.Grant{Root: "p", Dir: names.Foreign(filepath.Join(base, "granted")), Policy: guard.Policy{Rights: guard.ReadOnly}, Origin: "test"}); err != nil {
		t.Fatal(err)
	}
	host := broker.New(broker.Config{Registry: reg, Tree: vfs.New(reg), Asker: allowAll{}})
	defer host.Close()
	b, s := client.New(nil), newServer()
	st, ct := mcp.NewInMemoryTransports()
	ss, err := s.Connect(bg, b.Transport(st), nil)
	if err != nil {
		t.Fatal(err)
	}
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil).Connect(bg, host.Session("server").Transport(ct), &mcp.ClientSessionOptions{ProtocolVersion: legacy})
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	f, err := b.Files(ss)
	if err != nil {
		t.Fatal(err)
	}
	read := func(path string) (string, names.Kind) {
		data, err := f.ReadFile(bg, path)
		if err != nil && (!errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), base)) {
			t.Errorf("%s: %v", path, err)
		}
		return string(data), names.Reason(err)
	}
	if _, kind := read(base + "/consented/sub/a b"); kind != names.NoConsent {
		t.Errorf("before the consent: %v", kind)
	}
	granted, err := f.Consent(bg, "to test", base+"/asked")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		base + "/granted/sub/a b":                                "granted",
		names.FormatURI(base + "/granted/sub/a b"):               "granted",
		base + "/asked/sub/a b":                                  "consented",
		base + "/consented//./sub/a b":                           "consented",
		names.FormatURI(granted.ApprovedPaths[0]) + "/sub/a%20b": "consented",
		granted.Approved[0].Root + "/sub/a b":                    "consented",
	} {
		if got, _ := read(path); got != want {
			t.Errorf("%s: %q", path, got)
		}
	}
	for path, want := range map[string]names.Kind{
		"/etc/passwd":                 names.NoConsent,
		base:                          names.NoConsent,
		base + "/closed/sub/a b":      names.NoConsent,
		base + "/grantedx":            names.NoConsent,
		base + "/stray/sub/a b":       names.NoConsent,
		base + "/granted/out/sub/a b": names.Escaped,
	} {
		if got, kind := read(path); got != "" || kind != want {
			t.Errorf("%s: %q, %v", path, got, kind)
		}
	}
	if err := fstest.TestFS(f.FS(bg, base+"/asked"), "sub/a b"); err != nil {
		t.Error(err)
	}
	if err := fstest.TestFS(f.FS(bg, names.FormatURI(base+"/consented")), "sub/a b"); err != nil {
		t.Error(err)
	}
}

type allowAll struct{}

func (allowAll) Ask(_ context.Context, q *broker.Question) (broker.Answer, error) {
	a := broker.Answer{By: "test"}
	for range q.Items {
		a.Decisions = append(a.Decisions, broker.Decision{Allow: true})
	}
	return a, nil
}
