package tools_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// lists returns the names in all pages of resources/list.
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

// announced is a client that counts the announcements that it gets.
func announced(t *testing.T) (told chan struct{}, o *mcp.ClientOptions) {
	told = make(chan struct{}, 64)
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

// R225: the roots are the resources that are listed. A client is told when one comes or
// goes: under revision 2026-07-28 if it listens.
func TestResourceListOfRoots(t *testing.T) {
	for name, connect := range map[string]func(*bench, string){"stdio": (*bench).overStdio, "http": (*bench).overHTTP} {
		t.Run(name, func(t *testing.T) {
			told, o := announced(t)
			b := start(t, nil, o)
			b.root("code", guard.ReadOnly, "a=1", "d/x=1")
			connect(b, "2025-11-25")
			if got := b.lists(); !slices.Equal(got, []string{"code"}) {
				t.Fatalf("%q", got)
			}
			b.root("more", guard.ReadOnly, "m=1")
			b.until(told, "more", true)
			_, err := b.reg.Revoke(context.Background(), "more")
			testkit.Must(t, err)
			b.until(told, "more", false)
		})
		t.Run(name+", listening", func(t *testing.T) {
			told, o := announced(t)
			b := start(t, nil, o)
			connect(b, "2026-07-28")
			// The SDK's client listens in the background, and does not report when it has
			// begun.
			for i, end := 0, time.Now().Add(enough); len(told) == 0; i++ {
				b.root(fmt.Sprint("r", i), guard.ReadOnly)
				time.Sleep(20 * time.Millisecond)
				if time.Now().After(end) {
					t.Fatal("nothing was announced")
				}
			}
		})
	}
}

// A session that does not read does not delay the announcements to other sessions of the same
// server, although the SDK writes to them one after the other.
func TestListChangedBesideUnread(t *testing.T) {
	told, o := announced(t)
	b := start(t, nil, o)
	x := b.reluctant(t)
	b.connect("2025-11-25")
	b.root("one", guard.ReadOnly)
	x.until("list_changed") // of tools or resources, of which it takes neither
	b.until(told, "one", true)
	b.root("two", guard.ReadOnly)
	b.until(told, "two", true)
}
