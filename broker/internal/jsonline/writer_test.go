package jsonline

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// slow records each write, and blocks writes until open is closed.
type slow struct {
	open   chan struct{}
	mu     sync.Mutex
	writes []string
	err    error
}

func (s *slow) Write(p []byte) (int, error) {
	<-s.open
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, string(p))
	return len(p), s.err
}

// Every frame arrives whole, once and on a line of its own, whatever its size. The frames of one
// goroutine arrive in order.
func TestWriter(t *testing.T) {
	w := &slow{open: make(chan struct{})}
	close(w.open)
	l := NewWriter(w)
	sizes := []int{0, 1, 100, maxJoin, maxJoin + 1, 2 * maxBatch}
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 30 {
				if err := l.Send(fmt.Appendf(nil, "%d %d %s", g, i, strings.Repeat("x", sizes[(g+i)%len(sizes)]%(200_000)))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	next := map[int]int{}
	for _, p := range w.writes {
		if len(p) > maxJoined && strings.Count(p, "\n") > 0 {
			t.Errorf("a write of %d bytes joins frames", len(p))
		}
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(strings.Join(w.writes, ""), "\n"), "\n") {
		var g, i int
		if _, err := fmt.Sscanf(line, "%d %d", &g, &i); err != nil || next[g] != i {
			t.Fatalf("%.20q: %v, want %d", line, err, next[g])
		}
		_, _, text := cut2(line)
		if len(text) != sizes[(g+i)%len(sizes)]%200_000 {
			t.Fatalf("frame %d of goroutine %d has %d bytes", i, g, len(text))
		}
		next[g]++
	}
	for g := range 16 {
		if next[g] != 30 {
			t.Errorf("%d frames of goroutine %d", next[g], g)
		}
	}
}

func cut2(s string) (a, b, rest string) {
	a, s, _ = strings.Cut(s, " ")
	b, rest, _ = strings.Cut(s, " ")
	return a, b, rest
}

// All callers that wait for a write get its error.
func TestWriter_fails(t *testing.T) {
	boom := errors.New("boom")
	w := &slow{open: make(chan struct{}), err: boom}
	l := NewWriter(w)
	got := make(chan error)
	for range 10 {
		go func() { got <- l.Send([]byte("frame")) }()
	}
	close(w.open)
	for range 10 {
		if err := <-got; !errors.Is(err, boom) {
			t.Errorf("%v", err)
		}
	}
}

// A frame may be a part of a buffer whose rest is still to be read or passed on. Sending the frame
// changes nothing behind it, whatever its length, and later lines pass unchanged. A frame
// that is sent in the middle of a passing line begins a line of its own.
func TestWriter_frameInBuffer(t *testing.T) {
	for _, size := range []int{5, maxJoin, maxJoin + 1} {
		w := &slow{open: make(chan struct{})}
		close(w.open)
		l := NewWriter(w)
		a, b := strings.Repeat("a", size), strings.Repeat("b", size)
		buf := []byte(a + "|" + b + "\n")
		for _, err := range []error{l.Send(buf[:size]), l.Send(buf[size+1 : 2*size+1]), l.Pass(buf[size:]), l.Pass(buf[:3]), l.Send(buf[:2]), l.Pass([]byte("\n"))} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if got, want := strings.Join(w.writes, ""), a+"\n"+b+"\n|"+b+"\naaa\naa\n\n"; got != want {
			t.Errorf("%.60q, want %.60q", got, want)
		}
	}
}
