package broker

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/internal/flowcontrol"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// listResult.appendJSON writes JSON that decodes to the wire.ListResult of the page. The weight of
// an entry is at least the length of its JSON, and not much more.
func TestListResult_appendJSON(t *testing.T) {
	r := &listResult{page: vfs.Page{Next: `a"b`}}
	var want wire.ListResult
	want.NextCursor = r.page.Next
	mtime := unix.StatxTimestamp{Sec: 1_700_000_000, Nsec: 123_000_000}
	for _, name := range []string{"plain", "quote\"back\\slash", "line\nend\ttab\x01\x7f", "ä\u2028\U0001F600", "<&>", "bad\xff", "dir\xfe/name"} {
		p, err := guard.NewPath("root", "d/"+name)
		if err != nil {
			t.Fatal(err)
		}
		_, base := p.Split()
		info := vfs.Info{Mode: unix.S_IFREG, Size: 1 << 40, Mtime: mtime}
		r.page.Entries = append(r.page.Entries, vfs.Listed{Path: p, Name: base, Info: info})
		e := wire.Entry{
			Name: lossy(base), Path: lossy(p.String()), Type: wire.TypeFile, Size: 1 << 40,
			MTime: time.Unix(mtime.Sec, int64(mtime.Nsec)).UTC().Format(time.RFC3339Nano),
		}
		if e.Name != base {
			e.RawName = base64.StdEncoding.EncodeToString([]byte(base))
		}
		if e.Path != p.String() {
			e.RawPath = base64.StdEncoding.EncodeToString([]byte(p.String()))
		}
		want.Entries = append(want.Entries, e)
	}
	check := func(r *listResult, want wire.ListResult) {
		t.Helper()
		var got wire.ListResult
		if b := r.appendJSON(nil); wire.Decode(b, &got) != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s\nis %+v\nwant %+v", b, got, want)
		}
	}
	check(r, want)
	for i := range r.page.Entries {
		e := &r.page.Entries[i]
		if json, weight := len(r.appendEntry(nil, e)), weigh(e); json > weight || weight > json+longestEntry {
			t.Errorf("%q: the JSON has %d bytes, its weight is %d", e.Name, json, weight)
		}
	}
	bare := wire.ListResult{NextCursor: want.NextCursor}
	for _, e := range want.Entries {
		e.Size, e.MTime = 0, ""
		bare.Entries = append(bare.Entries, e)
	}
	check(&listResult{page: r.page, bare: true}, bare)
	check(&listResult{}, wire.ListResult{Entries: []wire.Entry{}})
	// The JSON of an entry of plain characters is byte for byte the same as from encoding/json.
	one, err := json.Marshal(wire.ListResult{Entries: want.Entries[:1]})
	if got := (&listResult{page: vfs.Page{Entries: r.page.Entries[:1]}}).appendJSON(nil); err != nil || string(got) != string(one) {
		t.Errorf("%s, want %s, %v", got, one, err)
	}
}

// "metadata": false leaves sizes and times out, and keeps paths and types.
func TestList_metadata(t *testing.T) {
	l := newLab(t, nil)
	l.root("r", guard.ReadOnly, map[string]string{"f": "text", "d/g": ""})
	p := l.connect("")
	for params, want := range map[string]bool{
		`{"path":"r"}`:                   true,
		`{"path":"r","metadata":true}`:   true,
		`{"path":"r","metadata":null}`:   true,
		`{"path":"r","metadata":false}`:  false,
		`{"path":"r/","metadata":false}`: false,
	} {
		var r struct{ Entries []map[string]any }
		p.must("files/list", params, &r)
		types := map[any]any{}
		for _, e := range r.Entries {
			types[e["path"]] = e["type"]
			_, size := e["size"]
			_, mtime := e["mtime"]
			if size != want || mtime != want {
				t.Errorf("%s: %v", params, e)
			}
		}
		if !reflect.DeepEqual(types, map[any]any{"r/f": "file", "r/d": "directory"}) {
			t.Errorf("%s: %v", params, types)
		}
	}
	if e, _ := p.fails("files/list", `{"path":"r","metadata":"no"}`); e.Code != wire.CodeInvalidParams {
		t.Errorf("%+v", e)
	}
}

// While a page is made, its bytes count as bytes in flight. With little room left the page ends
// early. Without room the request is refused, and can be repeated later.
func TestListCountsItsPage(t *testing.T) {
	const files, most = 2000, 2 << 20
	all := map[string]string{}
	for i := range files {
		all[fmt.Sprintf("%s-%04d", strings.Repeat("n", 100), i)] = ""
	}
	l := newLab(t, func(c *Config) { c.Limits.BytesInFlight = most })
	l.root("r", guard.ReadOnly, all)
	p := l.connect("")
	other := p.occupy(most - 300<<10)
	seen, pages := map[string]bool{}, 0
	for cursor, more := "", true; more; pages++ {
		var page wire.ListResult
		p.must("files/list", map[string]any{"path": "r", "limit": 10_000, "cursor": cursor}, &page)
		for _, e := range page.Entries {
			seen[e.Name] = true
		}
		cursor, more = page.NextCursor, page.NextCursor != ""
		p.awaitReleased(most - 300<<10)
	}
	if len(seen) != files || pages < 4 {
		t.Errorf("%d entries on %d pages", len(seen), pages)
	}
	_ = other.GrowTo(most-1<<10, true) // leaves room for the request, but not for a page
	if _, d := p.fails("files/list", `{"path":"r"}`); d.Reason != names.Rate.String() || !d.Retryable || d.RetryAfterMs <= 0 {
		t.Errorf("without room: %+v", d)
	}
	p.awaitReleased(most - 1<<10)
	other.Release()
	var page wire.ListResult
	if p.must("files/list", `{"path":"r","limit":10000}`, &page); len(page.Entries) != files {
		t.Errorf("with room: %d entries", len(page.Entries))
	}
	p.awaitReleased(0)
}

// occupy holds n bytes, as another request of the session would.
func (p *peer) occupy(n int64) *flowcontrol.Reservation {
	p.t.Helper()
	r, err := p.s.limits.requests.TryAcquire(0)
	if err != nil {
		p.t.Fatal(err)
	}
	_ = r.GrowTo(n, true)
	return r
}

// awaitReleased waits until no more than left bytes are held. The bytes of an answer are
// released when the answer was read.
func (p *peer) awaitReleased(left int64) {
	p.t.Helper()
	if !testkit.Eventually(func() bool { return p.s.Stats().HeldBytes <= left }) {
		p.t.Fatalf("%d bytes are held, want at most %d", p.s.Stats().HeldBytes, left)
	}
}

// The size of a page's JSON is computed before the JSON is made. Otherwise a page of names whose bytes
// each take six bytes of JSON would be several times as large as its reservation.
func TestListCountsItsFrame(t *testing.T) {
	const most = 1 << 20
	all := map[string]string{}
	for i := range 1000 {
		all[fmt.Sprintf("%s%04d", strings.Repeat("\x01", 240), i)] = ""
	}
	l := newLab(t, func(c *Config) { c.Limits.BytesInFlight = most })
	l.root("r", guard.ReadOnly, all)
	p := l.connect("")
	p.occupy(most / 2)
	got := p.call("files/list", `{"path":"r"}`)
	var page wire.ListResult
	if got.Error != nil || json.Unmarshal(got.Result, &page) != nil || page.NextCursor == "" || len(got.Result) > most/2 {
		t.Errorf("%+v, %d entries in %d bytes", got.Error, len(page.Entries), len(got.Result))
	}
}
