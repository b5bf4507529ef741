package proxy

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// This benchmark carries lines without system calls.
func BenchmarkPump(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20} {
		line := []byte(`{"result":{"content":[{"type":"text","text":"` + strings.Repeat(`word \"q\" and so on, a line of it\n`, size/36) + "\"}]},\"jsonrpc\":\"2.0\",\"id\":7}\n")
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			p := &Proxy{auto: newDetector(On), host: newOutlet(discard{}), prefix: "rootsfs-x-"}
			u := p.pump(&repeatReader{line: line, n: b.N}, p.host, p.fromServer, nil, nil)
			u.bytes, u.limit = &p.stats.up, DefaultFrame
			if err := u.run(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// repeatReader returns the same line n times.
type repeatReader struct {
	line []byte
	at   int
	n    int
}

func (a *repeatReader) Read(p []byte) (n int, err error) {
	for n < len(p) && a.n > 0 {
		k := copy(p[n:], a.line[a.at:])
		n += k
		if a.at += k; a.at == len(a.line) {
			a.at = 0
			a.n--
		}
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }
