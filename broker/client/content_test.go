package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7 >> 3)
	}
	return b
}

// R062: a large file comes in chunks.
func TestOpenReadsInChunks(t *testing.T) {
	want := pattern(10_050)
	for _, sepOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("SEP-1708 only=%v", sepOnly), func(t *testing.T) {
			h := newHost(t, map[string]string{"p/big": string(want), "p/empty": ""})
			h.sepOnly = sepOnly
			f := filesOf(t, h, &client.Options{Chunk: 1000})
			file, err := f.Open(bg, "p/big")
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(file); err != nil || !bytes.Equal(got, want) || file.Size() != int64(len(want)) {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			if n := h.count(wire.Read); n != 11 {
				t.Errorf("%d requests for 11 chunks", n)
			}
			buf := make([]byte, 2500)
			if n, err := file.ReadAt(buf, 9000); n != 1050 || !errors.Is(err, io.EOF) || !bytes.Equal(buf[:n], want[9000:]) {
				t.Errorf("ReadAt at the end: %d, %v", n, err)
			}
			if n, err := file.ReadAt(buf, 1234); n != 2500 || err != nil || !bytes.Equal(buf, want[1234:3734]) {
				t.Errorf("ReadAt: %d, %v", n, err)
			}
			if at, err := file.Seek(-50, io.SeekEnd); at != 10_000 || err != nil {
				t.Fatalf("Seek: %d, %v", at, err)
			}
			if got, err := io.ReadAll(file); err != nil || !bytes.Equal(got, want[10_000:]) {
				t.Errorf("after Seek: %d bytes, %v", len(got), err)
			}
			if _, err := file.Seek(-1, io.SeekStart); !errors.Is(err, names.Invalid) {
				t.Errorf("negative position: %v", err)
			}
			if err := errors.Join(file.Close()); err != nil {
				t.Error(err)
			}
			if _, err := file.ReadAt(buf, 0); !errors.Is(err, fs.ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
			if b, err := f.ReadFile(bg, "p/empty"); err != nil || len(b) != 0 {
				t.Errorf("empty file: %q, %v", b, err)
			}
		})
	}
}

// R100: a client that declares smaller chunks gets smaller chunks.
func TestDeclaredChunk(t *testing.T) {
	for caps, want := range map[string]int64{`{"maxChunk":700}`: 700, `{"maxChunk":5000}`: 1000, `{"maxChunk":-1}`: 1000, `{"maxChunk":"x"}`: 1000, `{}`: 1000} {
		h := newHost(t, map[string]string{"p/f": strings.Repeat("x", 3000)})
		h.caps = `{"extensions":{"io.github.rootsfs/files":` + caps + `}}`
		f := filesOf(t, h, &client.Options{Chunk: 1000})
		var read, wrote int64
		h.on(wire.Read, func(_ context.Context, raw json.RawMessage) (any, error) {
			var p wire.ReadParams
			_ = wire.Decode(raw, &p)
			read = max(read, *p.Length)
			return h.read(raw)
		})
		h.on(wire.Write, func(_ context.Context, raw json.RawMessage) (any, error) {
			var p wire.WriteParams
			_ = wire.Decode(raw, &p)
			wrote = max(wrote, int64(len(p.Content)))
			return h.write(raw)
		})
		b, err := f.ReadFile(bg, "p/f")
		if err != nil || len(b) != 3000 {
			t.Fatal(err)
		}
		if _, err := f.WriteFile(bg, "p/f", b, client.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		if read != want || wrote != want {
			t.Errorf("%s: reads of %d, writes of %d", caps, read, wrote)
		}
	}
}

// If a file changes while it is read, the read fails. It never returns a mixture of both states.
func TestOpenSeesOneState(t *testing.T) {
	h := newHost(t, map[string]string{"p/f": strings.Repeat("a", 3000)})
	f := filesOf(t, h, &client.Options{Chunk: 1000})
	file, err := f.Open(bg, "p/f")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.dirs["p"].WriteFile("f", []byte(strings.Repeat("b", 3000)), 0o644); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(file); !errors.Is(err, names.Conflict) || strings.Contains(string(b), "b") {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
}

func TestMalformedReadResult(t *testing.T) {
	h := newHost(t, map[string]string{"p/f": "x"})
	f := filesOf(t, h, nil)
	for _, tc := range []struct {
		name   string
		result any
		want   error
	}{
		{"size is larger than the content", map[string]any{"content": "", "size": 10}, io.ErrUnexpectedEOF},
		{"content is not base64", map[string]any{"content": "***", "size": 3}, names.IO},
		{"a number as text", map[string]any{"content": "", "size": "10"}, names.IO},
	} {
		h.on(wire.Read, func(context.Context, json.RawMessage) (any, error) { return tc.result, nil })
		if _, err := f.ReadFile(bg, "p/f"); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestWriter(t *testing.T) {
	h := newHost(t, map[string]string{"p/old": "old"})
	f := filesOf(t, h, &client.Options{Chunk: 1000})
	get := func(name string) string {
		b, err := h.dirs["p"].ReadFile(name)
		if err != nil {
			return "absent"
		}
		return string(b)
	}
	for _, n := range []int{0, 1, 999, 1000, 1001, 2000, 4321} {
		want := string(pattern(n))
		w, err := f.WriteFile(bg, "p/new", []byte(want), client.WriteOptions{Create: true})
		if err != nil || get("new") != want || w.Size != int64(n) || w.ETag != etag([]byte(want)) {
			t.Fatalf("%d bytes: %+v, %v", n, w, err)
		}
	}
	// nothing is visible before Close, and an abandoned upload never is
	w, err := f.NewWriter(bg, "p/old", client.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 30 {
		if _, err := w.Write(pattern(100)); err != nil {
			t.Fatal(err)
		}
	}
	if h.count(wire.Write) == 0 || get("old") != "old" {
		t.Fatalf("half a file: %q", get("old"))
	}
	w.Abort()
	if err := w.Close(); !errors.Is(err, fs.ErrClosed) || get("old") != "old" {
		t.Fatalf("given up: %v, %q", err, get("old"))
	}
	for _, tc := range []struct {
		name string
		o    client.WriteOptions
		size int
		want names.Kind
	}{
		{"p/absent", client.WriteOptions{}, 1, names.NotExist},
		{"p/absent", client.WriteOptions{}, 5000, names.NotExist},
		{"p/old", client.WriteOptions{CreateOnly: true}, 5000, names.Exist},
		{"p/old", client.WriteOptions{IfMatch: "stale"}, 5000, names.Conflict},
	} {
		if _, err := f.WriteFile(bg, tc.name, pattern(tc.size), tc.o); !errors.Is(err, tc.want) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	if get("absent") != "absent" || get("old") != "old" {
		t.Error("a refused write wrote")
	}
	// parts of a file
	if _, err := f.Append(bg, "p/old", []byte("er"), false); err != nil || get("old") != "older" {
		t.Errorf("append: %q, %v", get("old"), err)
	}
	if _, err := f.WriteAt(bg, "p/old", []byte("XY"), 1); err != nil || get("old") != "oXYer" {
		t.Errorf("write at: %q, %v", get("old"), err)
	}
	if _, err := f.Append(bg, "p/old", pattern(1001), false); !errors.Is(err, names.Quota) {
		t.Errorf("more than a chunk: %v", err)
	}
	// a client without uploads
	h.sepOnly = true
	want := string(pattern(4321))
	if _, err := f.WriteFile(bg, "p/seed", []byte(want), client.WriteOptions{Create: true}); err != nil || get("seed") != want {
		t.Errorf("SEP-1708 only: %d bytes, %v", len(get("seed")), err)
	}
	h.on(wire.Write, func(context.Context, json.RawMessage) (any, error) { return wire.WriteResult{BytesWritten: 1}, nil })
	if _, err := f.WriteFile(bg, "p/old", []byte("three"), client.WriteOptions{}); !errors.Is(err, names.IO) {
		t.Errorf("a short write: %v", err)
	}
}

// Text travels as text, unless JSON escapes would make it longer than base64.
func TestWriteEncoding(t *testing.T) {
	h := newHost(t, map[string]string{"p/f": ""})
	f := filesOf(t, h, nil)
	var got wire.WriteParams
	h.on(wire.Write, func(_ context.Context, raw json.RawMessage) (any, error) {
		got = wire.WriteParams{}
		if err := wire.Decode(raw, &got); err != nil {
			return nil, err
		}
		return h.write(raw)
	})
	for content, want := range map[string]string{"héllo <&>\n": wire.UTF8, "\xff": wire.Base64, strings.Repeat("\x01", 50): wire.Base64} {
		if _, err := f.WriteFile(bg, "p/f", []byte(content), client.WriteOptions{}); err != nil || got.Encoding != want {
			t.Errorf("%q as %s, %v", content, got.Encoding, err)
		}
	}
}
