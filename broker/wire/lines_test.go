package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
)

func TestReadLine(t *testing.T) {
	long := strings.Repeat("x", 1000)
	r := bufio.NewReaderSize(strings.NewReader("a\n\n"+long+"\n"+long[:100]+"\nlast\nhalf"), 16)
	buf := make([]byte, 0, 8)
	for _, want := range []struct {
		line string
		err  error
	}{
		{"a\n", nil}, {"\n", nil}, {long[:lineHead], ErrTooLong}, {long[:100] + "\n", nil}, {"last\n", nil}, {"", io.EOF}, {"", io.EOF},
	} {
		line, err := ReadLine(r, buf, 500)
		if want.err == nil && string(line) != want.line || !errors.Is(err, want.err) {
			t.Errorf("%q, %v, want %q, %v", line, err, want.line, want.err)
		}
		if !strings.HasPrefix(want.line, string(line)) {
			t.Errorf("kept %q of %q", line, want.line)
		}
	}
}

// slow notes each write, and is slow until it is let go.
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

// Every frame arrives whole, once and on a line of its own, whatever its size;
// the frames of one writer arrive in order.
func TestLineWriter(t *testing.T) {
	w := &slow{open: make(chan struct{})}
	close(w.open)
	l := NewLineWriter(w)
	sizes := []int{0, 1, 100, packed, packed + 1, 2 * maxBatch}
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 30 {
				if err := l.Write(fmt.Appendf(nil, "%d %d %s", g, i, strings.Repeat("x", sizes[(g+i)%len(sizes)]%(200_000)))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	next := map[int]int{}
	for _, p := range w.writes {
		if len(p) > maxPacked && strings.Count(p, "\n") > 1 || !strings.HasSuffix(p, "\n") {
			t.Errorf("a write of %d bytes", len(p))
		}
		for line := range strings.SplitSeq(strings.TrimSuffix(p, "\n"), "\n") {
			var g, i int
			if _, err := fmt.Sscanf(line, "%d %d", &g, &i); err != nil || next[g] != i {
				t.Fatalf("%.20q: %v, want %d", line, err, next[g])
			}
			_, _, text := cut2(line)
			if len(text) != sizes[(g+i)%len(sizes)]%200_000 {
				t.Fatalf("frame %d of %d has %d bytes", i, g, len(text))
			}
			next[g]++
		}
	}
	for g := range 16 {
		if next[g] != 30 {
			t.Errorf("%d frames of %d", next[g], g)
		}
	}
}

func cut2(s string) (a, b, rest string) {
	a, s, _ = strings.Cut(s, " ")
	b, rest, _ = strings.Cut(s, " ")
	return a, b, rest
}

// All who wait for a write learn of its failure.
func TestLineWriter_fails(t *testing.T) {
	boom := errors.New("boom")
	w := &slow{open: make(chan struct{}), err: boom}
	l := NewLineWriter(w)
	got := make(chan error)
	for range 10 {
		go func() { got <- l.Write([]byte("frame")) }()
	}
	close(w.open)
	for range 10 {
		if err := <-got; !errors.Is(err, boom) {
			t.Errorf("%v", err)
		}
	}
}

func TestCutResult(t *testing.T) {
	frame := append(AppendResult(AppendReply(nil, []byte(`"rootsfs:1"`))), `{"a":1}}`...)
	for _, end := range []string{"", "\n", "\r\n", " \t"} {
		id, result, ok := CutResult(append(bytes.Clone(frame), end...))
		if !ok || string(id) != "rootsfs:1" || string(result) != `{"a":1}` {
			t.Errorf("%q: %q %q %v", end, id, result, ok)
		}
	}
	for text, result := range map[string]string{
		`{"jsonrpc":"2.0","id":"x","result":{},"error":{}}`: `{},"error":{}`, // no JSON value
		`{"jsonrpc":"2.0","id":"x","result":}`:              ``,
	} {
		if _, got, ok := CutResult([]byte(text)); !ok || string(got) != result {
			t.Errorf("%s: %q %v", text, got, ok)
		}
	}
	for _, other := range []string{
		"", "{}", `{"jsonrpc":"2.0","id":"x"`, `{"jsonrpc":"2.0","id":"x","result":`, `{"jsonrpc":"2.0","id":"x","result":{}]`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":"a\"b","result":{}}`, `{"id":"x","jsonrpc":"2.0","result":{}}`,
		`{"jsonrpc":"2.0","id":"x","error":{}}`, `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", lineHead) + `","result":{}}`,
	} {
		if id, result, ok := CutResult([]byte(other)); ok {
			t.Errorf("%s: %q %q", other, id, result)
		}
	}
}
