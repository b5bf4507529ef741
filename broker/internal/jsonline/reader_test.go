package jsonline

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadLine(t *testing.T) {
	long := strings.Repeat("x", 1000)
	r := bufio.NewReaderSize(strings.NewReader("a\n\n"+long+"\n"+long[:100]+"\nlast\nhalf"), 16)
	buf := make([]byte, 0, 8)
	for _, want := range []struct {
		line string
		long int
		err  error
	}{
		{"a\n", 0, nil}, {"\n", 0, nil}, {"", 1001, nil}, {long[:100] + "\n", 0, nil}, {"last\n", 0, nil}, {"", 0, io.EOF}, {"", 0, io.EOF},
	} {
		line, long, err := ReadLine(r, buf, 500)
		if string(line) != want.line || !errors.Is(err, want.err) || (long == nil) != (want.long == 0) || long != nil && long.Size != want.long {
			t.Errorf("%q, %+v, %v, want %q, %d, %v", line, long, err, want.line, want.long, want.err)
		}
	}
}

// Lines up to the limit are read whole, and longer lines are measured, however the stream is
// split into reads.
func FuzzReadLine(f *testing.F) {
	f.Add([]byte("one\ntwo\n\nhalf"), uint16(3))
	f.Add(bytes.Repeat([]byte("long "), 20), uint16(16))
	f.Fuzz(func(t *testing.T, stream []byte, limit uint16) {
		for _, in := range []io.Reader{bytes.NewReader(stream), iotest.OneByteReader(bytes.NewReader(stream))} {
			r, rest := bufio.NewReaderSize(in, 16), stream
			for {
				line, long, err := ReadLine(r, nil, int(limit))
				want, more, whole := bytes.Cut(rest, []byte("\n"))
				if !whole { // a line without a newline is not returned
					if !errors.Is(err, io.EOF) {
						t.Errorf("%q: %q, %v at the end", stream, line, err)
					}
					break
				}
				want, rest = rest[:len(want)+1], more
				switch tooLong := len(want) > int(limit); {
				case tooLong != (long != nil), err != nil, tooLong && long.Size != len(want):
					t.Fatalf("%q: %q of %d bytes, limit %d: %+v, %v", stream, line, len(want), limit, long, err)
				case !tooLong && !bytes.Equal(line, want):
					t.Fatalf("%q: %q, want %q", stream, line, want)
				}
			}
		}
	})
}
