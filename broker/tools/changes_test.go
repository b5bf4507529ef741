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

// resourceNames returns the names in all pages of resources/list.
func (b *bench) resourceNames() (out []string) {
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

// collectAnnouncements returns the options of a client that sends an element to announcements for
// each announcement that it gets.
func collectAnnouncements(t *testing.T) (announcements chan struct{}, o *mcp.ClientOptions) {
	announcements = make(chan struct{}, 64)
	return announcements, &mcp.ClientOptions{ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { announcements <- struct{}{} }}
}

// awaitAnnounced waits for an announcement after which resources/list has a name, or, if wantListed
// is false, lacks the name.
func (b *bench) awaitAnnounced(announcements <-chan struct{}, name string, wantListed bool) {
	b.t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		select {
		case <-announcements:
			if slices.Contains(b.resourceNames(), name) == wantListed {
				return
			}
		case <-timeout:
			b.t.Fatalf("nothing was announced of %s; the list is %q", name, b.resourceNames())
		}
	}
}

// R225: resources/list has the roots. A client of revision 2025-11-25 gets an announcement when a
// root comes or goes. A client of revision 2026-07-28 that listens gets one when a root comes.
func TestResourceListOfRoots(t *testing.T) {
	for name, connect := range map[string]func(*bench, string){"stdio": (*bench).overStdio, "http": (*bench).overHTTP} {
		t.Run(name, func(t *testing.T) {
			announcements, o := collectAnnouncements(t)
			b := start(t, nil, o)
			b.root("code", guard.ReadOnly, "a=1", "d/x=1")
			connect(b, "2025-11-25")
			if got := b.resourceNames(); !slices.Equal(got, []string{"code"}) {
				t.Fatalf("%q", got)
			}
			b.root("more", guard.ReadOnly, "m=1")
			b.awaitAnnounced(announcements, "more", true)
			_, err := b.reg.Revoke(context.Background(), "more")
			testkit.Must(t, err)
			b.awaitAnnounced(announcements, "more", false)
		})
		t.Run(name+", listening", func(t *testing.T) {
			announcements, o := collectAnnouncements(t)
			b := start(t, nil, o)
			connect(b, "2026-07-28")
			// The SDK's client listens in the background, and does not report when it has
			// begun.
			for i, end := 0, time.Now().Add(testTimeout); len(announcements) == 0; i++ {
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
	announcements, o := collectAnnouncements(t)
	b := start(t, nil, o)
	x := b.reluctant(t)
	b.connect("2025-11-25")
	b.root("one", guard.ReadOnly)
	x.until("list_changed") // of tools or resources; the server has begun to write it, and x does not read it
	b.awaitAnnounced(announcements, "one", true)
	b.root("two", guard.ReadOnly)
	b.awaitAnnounced(announcements, "two", true)
}
