package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
)

var errStop = errors.New("enough")

// Records arrive once, in order, across rotation and a restart of the log.
func TestFollowAcrossRotation(t *testing.T) {
	o := options(t)
	o.MaxBytes = 4000
	l := mustOpen(t, o)
	mustRecord(t, l, refusal(t, "old"))
	const n = 300
	ready := make(chan struct{})
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		<-ready
		for i := range n {
			if i == n/2 {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				var err error
				if l, err = Open(o); err != nil {
					t.Error(err)
					return
				}
			}
			if err := l.Record(refusal(t, fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		}
		l.Close()
	})
	seq, seen := uint64(2), 0
	err := follow(t.Context(), o.Dir, o.Session, Filter{}, nil, func(e Entry) error {
		if e.Seq != seq+1 {
			t.Errorf("line %d after %d", e.Seq, seq)
		}
		seq = e.Seq
		if e.Op == "open" {
			if e.Path.Raw() != fmt.Sprint(seen) {
				t.Errorf("%s instead of %d", e.Path, seen)
			}
			seen++
		}
		if seen == n {
			return errStop
		}
		return nil
	}, func() { close(ready) })
	if !errors.Is(err, errStop) || seen != n {
		t.Errorf("%v after %d", err, seen)
	}
}

func TestFollowSinceAndFilter(t *testing.T) {
	o := options(t)
	o.MaxBytes = 1500
	l := mustOpen(t, o)
	for i := range 10 {
		r := allowed(t, fmt.Sprint(i))
		r.Time = time.Unix(int64(1000+i), 0)
		if i%2 == 0 {
			r.Verdict = guard.Refused
		}
		mustRecord(t, l, r)
	}
	mustClose(t, l)
	var got []string
	f := Filter{Since: time.Unix(1003, 0), Denied: true}
	err := Follow(t.Context(), o.Dir, "", f, nil, func(e Entry) error {
		got = append(got, e.Path.Raw())
		if e.Path == "8" {
			return errStop
		}
		return nil
	})
	if !errors.Is(err, errStop) || !slices.Equal(got, []string{"4", "6", "8"}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestFollowEnds(t *testing.T) {
	o := options(t)
	mustOpen(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	if err := follow(ctx, o.Dir, o.Session, Filter{}, nil, nil, cancel); err != nil {
		t.Errorf("after cancel: %v", err)
	}
	if err := Follow(t.Context(), o.Dir+"/none", "", Filter{}, nil, nil); err == nil {
		t.Error("followed a directory that is not there")
	}
	if err := Follow(t.Context(), o.Dir, "", Filter{Path: "[a"}, nil, nil); err == nil {
		t.Error("followed with a malformed pattern")
	}
}

// A file that appears in the same tick of the file system's clock as the listing does not
// change the directory's time. Follow finds the file nevertheless.
func TestFollowFindsFileOfTheSameTick(t *testing.T) {
	o := options(t)
	mustClose(t, mustOpen(t, o))
	tick := time.Now().Add(time.Hour) // with a time in the past, the result would depend on this machine's speed
	if err := os.Chtimes(o.Dir, tick, tick); err != nil {
		t.Fatal(err)
	}
	changes, found := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	create := func() { // called between the first listing and the second
		o.Session += "-later"
		mustClose(t, mustOpen(t, o))
		if err := os.Chtimes(o.Dir, tick, tick); err != nil {
			t.Error(err)
		}
	}
	following.Go(func() {
		err := follow(ctx, o.Dir, "", Filter{}, changes, func(Entry) error { return errStop }, create)
		if errors.Is(err, errStop) {
			close(found)
		}
	})
	for range 2 { // follow receives the second token after it has listed the directory for the first
		select {
		case changes <- struct{}{}:
		case <-found:
			return
		}
	}
	t.Error("not found")
}
