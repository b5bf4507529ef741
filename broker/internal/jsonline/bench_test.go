package jsonline

import (
	"fmt"
	"strings"
	"testing"
)

// This benchmark scans lines: text as tools return it, with an escape every few bytes,
// and base64, with none.
func BenchmarkParse(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20} {
		for name, word := range map[string]string{"text": `word \"q\" and so on, a line of it\n`, "base64": "aGVsbG8gd29ybGQ="} {
			line := []byte(`{"result":{"content":[{"type":"text","text":"` + strings.Repeat(word, size/len(word)) + `"}]},"jsonrpc":"2.0","id":7}`)
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				b.SetBytes(int64(len(line)))
				for b.Loop() {
					if f, ok := Parse(line); !ok || f.ID.Absent() {
						b.Fatal("not read")
					}
				}
			})
		}
	}
}
