//lint:file-ignore SA1019 roots are deprecated since revision 2026-07-28 and not replaced; hosts have them.

package tools_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// overStdio connects the client over a pair of streams.
func (b *bench) overStdio(revision string) {
	b.t.Helper()
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- b.srv.Run(context.Background(), toServer, fromServer) }()
	var err error
	b.host, err = b.mcp.Connect(context.Background(), &mcp.IOTransport{Reader: toClient, Writer: fromClient}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	must(b.t, err)
	b.t.Cleanup(func() {
		_ = b.host.Close()
		if err := <-ended; err != nil && !errors.Is(err, io.ErrClosedPipe) {
			b.t.Error(err)
		}
	})
}

// overHTTP connects it over HTTP.
func (b *bench) overHTTP(revision string) {
	b.t.Helper()
	site := b.site(tools.HTTPOptions{})
	var err error
	b.host, err = b.mcp.Connect(context.Background(), &mcp.StreamableClientTransport{
		Endpoint: site.URL, HTTPClient: &http.Client{Transport: bearer{}},
	}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	must(b.t, err)
	b.t.Cleanup(func() { _ = b.host.Close() })
}

// lists returns the names that resources/list tells, all pages.
func (b *bench) lists() (out []string) {
	b.t.Helper()
	for r, err := range b.host.Resources(context.Background(), nil) {
		if err != nil {
			b.t.Fatal(err)
		}
		out = append(out, r.Name)
	}
	slices.Sort(out)
	return out
}

// announced is a client that counts what it is told.
func announced(t *testing.T) (told chan struct{}, o *mcp.ClientOptions) {
	told = make(chan struct{}, 4096)
	return told, &mcp.ClientOptions{ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { told <- struct{}{} }}
}

// until waits for an announcement after which the list has, or lacks, a name.
func (b *bench) until(told <-chan struct{}, name string, there bool) {
	b.t.Helper()
	late := time.After(30 * time.Second)
	for {
		select {
		case <-told:
			if slices.Contains(b.lists(), name) == there {
				return
			}
		case <-late:
			b.t.Fatalf("nothing was announced of %s; the list is %q", name, b.lists())
		}
	}
}

// quietly checks that something is not announced. What came before it may be
// announced late on a busy machine: what is announced is announced every time.
func quietly(t *testing.T, told <-chan struct{}, what string, do func()) {
	t.Helper()
	const quiet = 700 * time.Millisecond // a change is announced in 50
	for range 5 {
		for len(told) > 0 {
			<-told
		}
		do()
		select {
		case <-told:
		case <-time.After(quiet):
			return
		}
		time.Sleep(quiet)
	}
	t.Errorf("%s was announced", what)
}

// resources/list_changed follows what the list shows: roots, and the names directly
// in them; nothing else.
func TestResourceListChanged(t *testing.T) {
	for name, connect := range map[string]func(*bench, string){"stdio": (*bench).overStdio, "http": (*bench).overHTTP} {
		t.Run(name, func(t *testing.T) {
			told, o := announced(t)
			b := start(t, nil, o)
			dir := b.root("code", guard.ReadOnly, "a=1", "d/x=1")
			connect(b, "2025-11-25")
			if got := b.lists(); !slices.Equal(got, []string{"code", "code/a", "code/d"}) {
				t.Fatalf("%q", got)
			}
			must(t, os.WriteFile(filepath.Join(dir, "b"), nil, 0o600))
			b.until(told, "code/b", true)
			must(t, os.Remove(filepath.Join(dir, "a")))
			b.until(told, "code/a", false)
			b.root("more", guard.ReadOnly, "m=1")
			b.until(told, "more/m", true)
			more, _ := b.reg.Lookup("more")
			must(t, os.WriteFile(filepath.Join(more.Grant.Resolved, "n"), nil, 0o600))
			b.until(told, "more/n", true)
			_, err := b.reg.Revoke(context.Background(), "more")
			must(t, err)
			b.until(told, "more", false)
			quietly(t, told, "what is not listed", func() {
				must(t, os.WriteFile(filepath.Join(dir, "d/y"), nil, 0o600))
				must(t, os.WriteFile(filepath.Join(dir, ".hidden"), nil, 0o600))
				must(t, os.WriteFile(filepath.Join(dir, "b"), []byte("longer"), 0o600))
			})
			must(t, b.reg.Set(context.Background(), "code", guard.Read))
			b.until(told, "code/b", false)
		})
	}
}

// Many changes are few announcements, the last of which has all of them.
func TestResourceListChangesGathered(t *testing.T) {
	told, o := announced(t)
	b := start(t, nil, o)
	dir := b.root("code", guard.ReadOnly, "a=1")
	b.overStdio("2025-11-25")
	b.lists()
	const many = 2000
	for i := range many {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("f", i)), nil, 0o600))
	}
	must(t, os.WriteFile(filepath.Join(dir, "last"), nil, 0o600))
	b.until(told, "code/last", true)
	if n := len(told); n > many/10 {
		t.Errorf("%d announcements of %d changes are left", n, many)
	}
}

// A client whose own roots leave a directory out neither sees it listed nor hears
// of changes in it; when its roots change, so does its list.
func TestResourceListOfNarrowedClient(t *testing.T) {
	for name, connect := range map[string]func(*bench, string){"stdio": (*bench).overStdio, "http": (*bench).overHTTP} {
		t.Run(name, func(t *testing.T) {
			told, o := announced(t)
			b := start(t, nil, o)
			dir := b.root("code", guard.ReadOnly, "a=1", "in/x=1", "out/x=1")
			b.mcp.AddRoots(&mcp.Root{URI: names.FormatURI(dir + "/in")})
			connect(b, "2025-11-25")
			if got := b.lists(); !slices.Equal(got, []string{"code/in", "code/in/x"}) {
				t.Fatalf("%q", got)
			}
			quietly(t, told, "what lies outside the client's roots", func() {
				must(t, os.WriteFile(filepath.Join(dir, "b"), nil, 0o600))
				must(t, os.WriteFile(filepath.Join(dir, "out/y"), nil, 0o600))
			})
			must(t, os.WriteFile(filepath.Join(dir, "in/y"), nil, 0o600))
			b.until(told, "code/in/y", true)
			b.mcp.AddRoots(&mcp.Root{URI: names.FormatURI(dir + "/out")})
			b.until(told, "code/out/y", true)
		})
	}
}

// Under revision 2026-07-28 who listens is told.
func TestResourceListChangedWhereListenedFor(t *testing.T) {
	for name, connect := range map[string]func(*bench, string){"stdio": (*bench).overStdio, "http": (*bench).overHTTP} {
		t.Run(name, func(t *testing.T) {
			told, o := announced(t)
			b := start(t, nil, o)
			dir := b.root("code", guard.ReadOnly, "a=1")
			connect(b, "2026-07-28")
			// The SDK's client listens in the background, from it is not told when.
			for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
				must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("b", time.Now().UnixNano())), nil, 0o600))
				if len(told) > 0 {
					return
				}
				if time.Now().After(end) {
					t.Fatal("nothing was announced")
				}
			}
		})
	}
}
