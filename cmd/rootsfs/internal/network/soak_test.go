package network

import (
	"context"
	"flag"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// soak is how many look-ups TestSoakResolver makes; 240,000 take a few minutes.
var soak = flag.Int("soak", 4000, "look-ups of TestSoakResolver")

// With 1,000 look-ups at once, an approved name is always found and another name never.
func TestSoakResolver(t *testing.T) {
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test,*.wild.test")})
	got := n.run("soak", fmt.Sprint(*soak), "1000")
	if want := fmt.Sprintf("%d look-ups, 0 wrong", *soak); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	n.g.Close() // nothing more is recorded
	var refused int
	for _, e := range n.events {
		if e.Host == "api.test" {
			t.Errorf("an approved name is on record: %+v", e)
		}
		if e.Host == "evil.test" {
			refused++
		}
	}
	t.Logf("%s; %d refusals are on record", got, refused)
}

func init() {
	// soak looks names up args[0] times, args[1] at once, and prints how often the outcome was
	// wrong.
	programs["soak"] = func(args []string) error {
		count, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil {
			return err
		}
		workers, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		var next, wrong atomic.Int64
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for i := next.Add(1); i <= count; i = next.Add(1) {
					name, exists := "api.test", true
					switch i % 4 {
					case 1:
						name = fmt.Sprintf("a%d.wild.test", i%100)
					case 2:
						name, exists = "evil.test", false
					}
					addrs, err := net.DefaultResolver.LookupHost(context.Background(), name)
					if exists != (err == nil && len(addrs) == 1) && wrong.Add(1) <= 5 {
						fmt.Printf("%s: %v, %v\n", name, addrs, err)
					}
				}
			})
		}
		wg.Wait()
		fmt.Printf("%d look-ups, %d wrong\n", count, wrong.Load())
		return nil
	}
}
