package proxy

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
)

// After each part, an opening gives the same result as for the whole text so far.
func FuzzOpening(f *testing.F) {
	const rpc = `{"jsonrpc":"2.0","method":"x","params":{"a":"\\"}]"}}`
	for _, s := range append(lineSeeds, rpc, rpc+" \t", rpc+" x", " ["+rpc+","+rpc+"] x", "["+rpc, `{"a\\\\":"\\\""}`, `{]`, `[}`, "  ", "ls", "\x00") {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.IndexByte(line, '\n') >= 0 {
			return // it would be two lines
		}
		var o opening
		for n := range len(line) + 1 {
			part := line[:n]
			o.look(part)
			i := jsonline.SkipSpace(part, 0)
			if got, want := o.rpc(), isRPC(part); got != want {
				t.Fatalf("%q: rpc %v, want %v", part, got, want)
			}
			foreign := i < n && (part[i] != '{' && part[i] != '[' || jsonline.EndOfValue(part, i) >= 0 && !isRPC(part))
			if o.isForeign() != foreign || o.begun != (i < n) {
				t.Fatalf("%q: foreign %v, want %v; kind %q", part, o.isForeign(), foreign, o.kind)
			}
		}
	})
}

// Even if a line comes byte by byte, each byte is examined at most twice before the decision.
func TestSniff_Linear(t *testing.T) {
	pad := strings.Repeat("x", 20_000)
	for name, in := range map[string]string{
		"message":       `{"jsonrpc":"2.0","method":"` + pad,
		"message ended": `{"jsonrpc":"2.0","method":"x"}` + strings.Repeat(" ", len(pad)),
		"batch":         `[{"jsonrpc":"2.0","method":"x"},"` + pad,
		"many values":   `{"a":[` + strings.Repeat("{},", len(pad)/3),
		"blank":         strings.Repeat(" ", len(pad)),
	} {
		t.Run(name, func(t *testing.T) {
			work, held := 0, 0
			u := &pump{
				src: iotest.OneByteReader(strings.NewReader(in)), dst: newOutlet(&sink{}), auto: newDetector(Auto), fromHost: true, limit: 2 * len(in),
				bytes: &atomic.Int64{}, look: func([]byte) ([]byte, bool) { return nil, true }, long: func(*jsonline.Head) { t.Error("long") },
			}
			u.auto.onRaw = func() {}
			for range in {
				if rerr, err := u.step(); rerr != nil || err != nil {
					t.Fatal(rerr, err)
				}
				work, held = max(work, u.first.work), u.end-u.start
			}
			if held != len(in) || u.auto.state() != undecided {
				t.Fatalf("%d of %d bytes are held, decided %d: the test shows nothing", held, len(in), u.auto.state())
			}
			if work < len(in) || work > 2*len(in) {
				t.Errorf("%d bytes were looked at to decide about %d", work, len(in))
			}
		})
	}
}

// If a line does not end, the decision is made when the line exceeds the limit.
func TestSniff_Limit(t *testing.T) {
	const rpc = `{"jsonrpc":"2.0","method":"x"}`
	for _, c := range []struct {
		in   string
		want state
	}{
		{strings.Repeat(" ", 300), isRaw}, {"{" + strings.Repeat(" ", 300), isRaw}, {rpc + strings.Repeat(" ", 300), isMCP},
	} {
		var longs int
		u := &pump{
			src: strings.NewReader(c.in), dst: newOutlet(&sink{}), auto: newDetector(Auto), fromHost: true, limit: 200,
			bytes: &atomic.Int64{}, look: func([]byte) ([]byte, bool) { return nil, true }, long: func(*jsonline.Head) { longs++ },
		}
		u.auto.onRaw = func() {}
		if _, err := u.step(); err != nil {
			t.Fatal(err)
		}
		if got := u.auto.state(); got != c.want || (longs == 1) != (c.want == isMCP) {
			t.Errorf("%.40q: decided %d, want %d; %d long lines", c.in, got, c.want, longs)
		}
	}
}
