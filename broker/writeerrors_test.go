package broker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// R054, R075: no method changes, replaces, moves or removes a locked file, nor removes a directory
// that contains one. Of the two paths of a rename or copy, the error names that of the locked file.
func TestLockedFile(t *testing.T) {
	l := newLab(t, nil)
	dir := l.root("r", guard.ReadWrite, map[string]string{"d/locked": "kept", "source": "new"})
	p := l.connect("")
	f, err := os.OpenFile(filepath.Join(dir, "d/locked"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ method, params string }{
		{wire.Write, `{"path":"r/d/locked","content":"x"}`},
		{wire.Write, `{"path":"r/d/locked","content":"x","offset":0}`},
		{wire.Write, `{"path":"r/d/locked","content":"x","append":true}`},
		{wire.Write, `{"path":"r/d/locked","content":"x","upload":true,"last":true}`},
		{wire.Copy, `{"oldPath":"r/source","newPath":"r/d/locked","overwrite":true}`},
		{wire.Rename, `{"oldPath":"r/source","newPath":"r/d/locked","overwrite":true}`},
		{wire.Rename, `{"oldPath":"r/d/locked","newPath":"r/moved"}`},
		{wire.Delete, `{"path":"r/d/locked"}`},
		{wire.Delete, `{"path":"r/d","recursive":true}`},
	} {
		_, d := p.fails(c.method, c.params)
		want := "r/d/locked"
		if strings.Contains(c.params, "recursive") {
			want = "r/d"
		}
		if d.Code != names.ConcurrencyConflict || d.Reason != "Locked" || !d.Retryable || d.Path != want {
			t.Errorf("%s %s: %+v", c.method, c.params, d)
		}
	}
	for rel, want := range map[string]string{"d/locked": "kept", "source": "new"} {
		if got, err := os.ReadFile(filepath.Join(dir, rel)); string(got) != want {
			t.Errorf("%s: %q, %v", rel, got, err)
		}
	}
	f.Close()
	p.must(wire.Rename, `{"oldPath":"r/source","newPath":"r/d/locked","overwrite":true}`, nil)
	p.must(wire.Delete, `{"path":"r/d","recursive":true}`, nil)
}

// R054, R092: an error of rename or copy names the path that caused it, of the two in the request.
// An error with the code CONCURRENCY_CONFLICT also has the etag of the file at this path.
func TestErrorsOfTwoPaths(t *testing.T) {
	l := newLab(t, nil)
	l.root("r", guard.ReadWrite, map[string]string{"old": "old", "new": "newer", "d/": ""})
	l.root("s", guard.ReadWrite, map[string]string{"f": "f"})
	p := l.connect("")
	etag := func(path string) string {
		var st wire.StatResult
		p.must(wire.Stat, map[string]string{"path": path}, &st)
		return st.ETag
	}
	for _, c := range []struct{ method, params, path, reason string }{
		{wire.Rename, `{"oldPath":"r/old","newPath":"r/new","overwrite":true,"ifMatch":"x"}`, "r/old", "Conflict"},
		{wire.Rename, `{"oldPath":"r/old","newPath":"r/new"}`, "r/new", "Exist"},
		{wire.Rename, `{"oldPath":"r/old","newPath":"r"}`, "r", "Permission"},
		{wire.Rename, `{"oldPath":"r","newPath":"r/x"}`, "r", "Permission"},
		{wire.Rename, `{"oldPath":"r/old","newPath":"r/none/x"}`, "r/none/x", "NotExist"},
		{wire.Rename, `{"oldPath":"r/none","newPath":"r/x"}`, "r/none", "NotExist"},
		{wire.Rename, `{"oldPath":"r/old","newPath":"r/d","overwrite":true}`, "r/d", "IsDir"},
		{wire.Copy, `{"oldPath":"r/old","newPath":"r/new"}`, "r/new", "Exist"},
		{wire.Copy, `{"oldPath":"r/old","newPath":"r/none/x"}`, "r/none/x", "NotExist"},
		{wire.Copy, `{"oldPath":"r/none","newPath":"r/x"}`, "r/none", "NotExist"},
		{wire.Copy, `{"oldPath":"r/d","newPath":"r/x"}`, "r/d", "IsDir"},
		{wire.Copy, `{"oldPath":"r/old","newPath":"r/new","overwrite":true,"ifMatch":"x"}`, "r/old", "Conflict"},
		{wire.Copy, `{"oldPath":"r/old","newPath":"s/new","ifMatch":"x"}`, "r/old", "Conflict"},
		{wire.Copy, `{"oldPath":"r/old","newPath":"s/f"}`, "s/f", "Exist"},
	} {
		e, d := p.fails(c.method, c.params)
		if d.Path != c.path || d.Reason != c.reason || !strings.HasPrefix(e.Message, c.path+": ") {
			t.Errorf("%s %s: %q %+v, want %s of %s", c.method, c.params, e.Message, d, c.reason, c.path)
		}
		if d.ETag != "" && d.ETag != etag(c.path) || d.ETag == "" && d.Code == names.ConcurrencyConflict {
			t.Errorf("%s %s: the etag is not that of %s", c.method, c.params, c.path)
		}
	}
	p.must(wire.Copy, map[string]any{"oldPath": "r/old", "newPath": "s/f", "overwrite": true, "ifMatch": etag("r/old")}, nil)
	p.must(wire.Copy, map[string]any{"oldPath": "r/old", "newPath": "r/new", "overwrite": true, "ifMatch": etag("r/old")}, nil)
	p.must(wire.Rename, map[string]any{"oldPath": "r/old", "newPath": "r/d/old", "ifMatch": etag("r/old")}, nil)
}

// R055, R077: the session's limits hold for copies, within one root or into another, and for
// appends, also for several at the same time. An append is refused if it would make the file larger
// than the limit. The bytes of a failed copy or append are refunded.
func TestLimitsOfCopiesAndAppends(t *testing.T) {
	const maxFile, maxWritten = 1000, 3000
	l := newLab(t, func(c *Config) { c.Limits.MaxFile, c.Limits.MaxWritten = maxFile, maxWritten })
	big := strings.Repeat("y", maxFile+1)
	dir := l.root("r", guard.ReadWrite, map[string]string{"big": big, "f": big[:300], "g": ""})
	l.root("s", guard.ReadWrite, nil)
	p := l.connect("")
	refused := func(method, params string, limit int64) {
		t.Helper()
		if e, d := p.fails(method, params); d.Code != names.QuotaExceeded || d.Limit != limit || d.Retryable {
			t.Errorf("%s %.60s: %q %+v", method, params, e.Message, d)
		}
	}
	for _, to := range []string{"r/c", "s/c"} {
		refused(wire.Copy, `{"oldPath":"r/big","newPath":"`+to+`"}`, maxFile)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { p.call(wire.Write, fmt.Sprintf(`{"path":"r/g","append":true,"content":%q}`, big[:300])) })
	}
	wg.Wait()
	if info, err := os.Stat(filepath.Join(dir, "g")); err != nil || info.Size() != 900 {
		t.Errorf("appends of 300 to a file of at most %d made %d, %v", maxFile, info.Size(), err)
	}
	refused(wire.Write, fmt.Sprintf(`{"path":"r/g","append":true,"content":%q}`, big[:300]), maxFile)
	p.must(wire.Copy, `{"oldPath":"r/g","newPath":"r/h"}`, nil)
	p.must(wire.Copy, `{"oldPath":"r/g","newPath":"s/h"}`, nil)
	p.must(wire.Copy, `{"oldPath":"r/f","newPath":"s/f"}`, nil)
	refused(wire.Copy, `{"oldPath":"r/f","newPath":"r/i"}`, maxWritten)
	refused(wire.Copy, `{"oldPath":"r/f","newPath":"s/i"}`, maxWritten)
	refused(wire.Write, `{"path":"r/g","append":true,"content":"x"}`, maxWritten)
	if got := p.s.Stats().Written; got != maxWritten {
		t.Errorf("written %d", got)
	}
}

// R092: the error says why a path is invalid.
func TestInvalidSaysWhy(t *testing.T) {
	l := newLab(t, nil)
	dir := l.root("r", guard.ReadWrite, map[string]string{"d/e/": "", "f": ""})
	l.root("s", guard.ReadWrite, nil)
	if err := os.Symlink("loop", filepath.Join(dir, "loop")); err != nil {
		t.Fatal(err)
	}
	p := l.connect("")
	for _, c := range []struct{ method, params, why string }{
		{wire.Read, `{"path":"r/loop"}`, "in a circle"},
		{wire.List, `{"path":"r/loop/x"}`, "in a circle"},
		{wire.Create, `{"path":"r/loop/x"}`, "in a circle"},
		{wire.Rename, `{"oldPath":"r/d","newPath":"r/d/e/d"}`, "into itself"},
		{wire.Rename, `{"oldPath":"r/d","newPath":"r/d/e/d","overwrite":true}`, "into itself"},
		{wire.Rename, `{"oldPath":"r/f","newPath":"s/f"}`, "different roots"},
		{wire.Copy, `{"oldPath":"r/f","newPath":"r/f","overwrite":true}`, "onto itself"},
	} {
		if e, d := p.fails(c.method, c.params); d.Reason != "Invalid" || !strings.Contains(e.Message, c.why) || strings.Contains(e.Message, dir) {
			t.Errorf("%s %s: %q %+v", c.method, c.params, e.Message, d)
		}
	}
}

// R055, R077: if a last chunk leaves its upload open, the bytes of the chunk were written, and
// count. So a server cannot exceed the limit by sending every chunk as the last.
func TestLimitOfLastChunks(t *testing.T) {
	const maxWritten = 1000
	l := newLab(t, func(c *Config) { c.Limits.MaxWritten = maxWritten })
	dir := l.root("r", guard.ReadWrite, nil)
	p := l.connect("")
	var up wire.WriteResult
	p.must(wire.Write, `{"path":"r/u","create":true,"upload":true,"content":""}`, &up)
	chunk := func(off, n int) wire.ErrorData {
		_, d := p.fails(wire.Write, obj{"path": "r/u", "uploadId": up.UploadID, "offset": off, "content": strings.Repeat("x", n), "last": true})
		return d
	}
	for i := range 2 {
		if d := chunk(1+400*i, 400); d.Reason != "Invalid" || !strings.Contains(d.Hint, "still open") {
			t.Errorf("a gap: %+v", d)
		}
	}
	if d := chunk(801, 400); d.Code != names.QuotaExceeded || d.Limit != maxWritten {
		t.Errorf("beyond the limit: %+v", d)
	}
	if got := p.s.Stats().Written; got != 800 {
		t.Errorf("written %d", got)
	}
	p.must(wire.Write, obj{"path": "r/u", "uploadId": up.UploadID, "offset": 0, "content": "x", "last": true}, nil)
	if st, err := os.Stat(filepath.Join(dir, "u")); err != nil || st.Size() != 801 {
		t.Errorf("%v, %v", st, err)
	}
}

// A copy of more bytes than the session may transfer in a second is not refused.
func TestCopyAtTheLimit(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Limits.BytesPerSecond, c.Limits.MaxChunk = 1<<20, 1<<20 })
	l.root("r", guard.ReadWrite, map[string]string{"f": strings.Repeat("y", 1<<20+1<<18)})
	var res wire.RenameResult
	l.connect("").must(wire.Copy, `{"oldPath":"r/f","newPath":"r/g"}`, &res)
	if res.Size != 1<<20+1<<18 {
		t.Errorf("%+v", res)
	}
}

// R054, R073: if a last chunk cannot be accepted now, the upload stays open, and sending the
// chunk again completes it. Only an upload that can never complete ends.
func TestUploadSurvivesItsLastChunk(t *testing.T) {
	l := newLab(t, nil)
	dir := l.root("r", guard.ReadWrite, map[string]string{"f": "old"})
	p := l.connect("")
	begin := func() (id string) {
		var r wire.WriteResult
		p.must(wire.Write, `{"path":"r/f","upload":true,"content":"abc"}`, &r)
		return r.UploadID
	}
	last := func(id string, off int) obj {
		return obj{"path": "r/f", "uploadId": id, "offset": off, "content": "d", "last": true}
	}
	f, err := os.OpenFile(filepath.Join(dir, "f"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	id := begin()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, d := p.fails(wire.Write, last(id, 3)); d.Reason != "Locked" || !d.Retryable {
		t.Errorf("locked: %+v", d)
	}
	if _, d := p.fails(wire.Write, last(id, 10)); d.Reason != "Invalid" || !strings.Contains(d.Hint, "still open") {
		t.Errorf("a gap: %+v", d)
	}
	f.Close()
	p.must(wire.Write, obj{"path": "r/f", "uploadId": id, "offset": 3, "content": "defghij"}, nil)
	p.must(wire.Write, last(id, 10), nil)
	if b, _ := os.ReadFile(filepath.Join(dir, "f")); string(b) != "abcdefghijd" {
		t.Errorf("%q", b)
	}
	if _, d := p.fails(wire.Write, last(id, 3)); d.Retryable || !strings.Contains(d.Hint, beginAgain) {
		t.Errorf("after the end: %+v", d)
	}
	id = begin()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("theirs"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, d := p.fails(wire.Write, last(id, 3)); d.Reason != "Conflict" || d.Retryable || d.ETag == "" || d.Hint != beginAgain {
		t.Errorf("changed meanwhile: %+v", d)
	}
	// R070: after the root was narrowed or has ended, a chunk is refused as PERMISSION_DENIED, even
	// if the root has its rights again.
	id = begin()
	for _, rights := range []guard.Rights{guard.ReadOnly, guard.ReadWrite} {
		if err := l.reg.Set(t.Context(), "r", rights); err != nil {
			t.Fatal(err)
		}
		if _, d := p.fails(wire.Write, last(id, 3)); d.Code != names.PermissionDenied || d.Retryable {
			t.Errorf("narrowed: %+v", d)
		}
	}
	id = begin()
	if _, err := l.reg.Revoke(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	if _, d := p.fails(wire.Write, last(id, 3)); d.Code != names.PermissionDenied || d.Reason != "Revoked" || d.Retryable {
		t.Errorf("revoked: %+v", d)
	}
}

// R092, R125: the refusal of files/list says what is wrong with the request.
func TestListSaysWhatIsWrong(t *testing.T) {
	l := newLab(t, nil)
	l.root("r", guard.ReadWrite, nil)
	p := l.connect("")
	for params, want := range map[string]string{
		`{"path":"r","glob":"["}`:                                 "pattern",
		`{"path":"r","glob":"` + strings.Repeat("a", 2000) + `"}`: "1024 bytes",
		`{"path":"r","cursor":"foreign"}`:                         "cursor",
	} {
		if e, _ := p.fails(wire.List, params); e.Code != wire.CodeInvalidParams || !strings.Contains(e.Message, want) {
			t.Errorf("%.60s: %+v", params, e)
		}
	}
}
