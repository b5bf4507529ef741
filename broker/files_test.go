package broker

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

type obj = map[string]any

// SEP-1708's own example requests, to the letter, with the answers it shows
// (SEP-1708, "Brokered File Methods"): R001, R032, R033, R034, R035, R036, R037, R038,
// R039, R040, R041, R042, R043, R044, R045, R046, R047.
func TestSEP1708Examples(t *testing.T) {
	l := newLab(t, nil)
	dir := l.root("project", guard.ReadWrite, map[string]string{
		"src/main.py": "# Python file contents...", "temp_file.txt": "x", "old_name.txt": "old",
	})
	p := l.connect("")
	var read wire.ReadResult
	p.must("files/read", `{"path":"project/src/main.py","encoding":"utf-8","offset":0,"length":1048576}`, &read)
	if read.Content != "# Python file contents..." || read.Size != 25 || read.MimeType != "text/x-python" || !read.EOF {
		t.Errorf("read: %+v", read)
	}
	var wrote wire.WriteResult
	p.must("files/write", `{"path":"project/output.txt","content":"Hello, World!","encoding":"utf-8","create":true}`, &wrote)
	if b, err := os.ReadFile(dir + "/output.txt"); err != nil || string(b) != "Hello, World!" || wrote.BytesWritten != 13 || wrote.Size != 13 || wrote.ETag == "" {
		t.Errorf("write: %q, %v, %+v", b, err, wrote)
	}
	var list wire.ListResult
	p.must("files/list", `{"path":"project/src","recursive":false,"includeHidden":false}`, &list)
	if len(list.Entries) != 1 || list.Entries[0].Name != "main.py" || list.Entries[0].Path != "project/src/main.py" || list.Entries[0].Type != "file" || list.Entries[0].Size != 25 {
		t.Errorf("list: %+v", list)
	}
	var made wire.CreateResult
	p.must("files/create", `{"path":"project/new_directory","type":"directory"}`, &made)
	if st, err := os.Stat(dir + "/new_directory"); err != nil || !st.IsDir() || made.Type != "directory" || made.Path != "project/new_directory" {
		t.Errorf("create: %v, %+v", err, made)
	}
	if r := p.call("files/delete", `{"path":"project/temp_file.txt"}`); r.Error != nil || string(r.Result) != "{}" {
		t.Errorf("delete: %s %v", r.Result, r.Error)
	}
	var moved wire.RenameResult
	p.must("files/rename", `{"oldPath":"project/old_name.txt","newPath":"project/new_name.txt"}`, &moved)
	if b, err := os.ReadFile(dir + "/new_name.txt"); err != nil || string(b) != "old" || moved.Path != "project/new_name.txt" {
		t.Errorf("rename: %q, %v, %+v", b, err, moved)
	}
	var w wire.WatchResult
	p.must("files/watch", `{"path":"project/src","recursive":true,"events":["modified","created","deleted"]}`, &w)
	if w.WatchID == "" {
		t.Error("watch: no id")
	}
}

// Every code of SEP-1708's table but TIMEOUT (see TestTimeout) occurs, with its number (R049, R050,
// R051, R052, R053, R054, R055).
func TestErrorCodes(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Limits.MaxFile = 100 })
	dir := l.root("rw", guard.ReadWrite, map[string]string{"a": "a", "d/x": "x"})
	ro := l.root("ro", guard.ReadOnly, map[string]string{"a": "a"})
	out := t.TempDir()
	for _, err := range []error{
		os.Symlink(out, dir+"/out"), os.Symlink("/nowhere/at/all", dir+"/dangling"), os.Symlink("loop", dir+"/loop"),
		os.WriteFile(out+"/secret", []byte("secret"), 0o644), unix.Mkfifo(dir+"/fifo", 0o644),
		os.Symlink("/proc/self/root/etc/passwd", ro+"/proc"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	locked, err := os.Open(dir + "/a")
	if err != nil {
		t.Fatal(err)
	}
	defer locked.Close()
	p := l.connect("")
	for _, c := range []struct {
		method, params string
		code           names.Code
		reason         string
	}{
		{"files/read", `{"path":"rw/none"}`, names.FileNotFound, "NotExist"},
		{"files/read", `{"path":"rw/none/x"}`, names.FileNotFound, "NotExist"},
		{"files/read", `{"path":"rw/a/x"}`, names.InvalidPath, "NotDir"},
		{"files/read", `{"path":"rw/d"}`, names.InvalidPath, "IsDir"},
		{"files/read", `{"path":"nobody/x"}`, names.PermissionDenied, "NoConsent"},
		{"files/read", `{"path":"/etc/passwd"}`, names.PermissionDenied, "NoConsent"},        // R065
		{"files/read", `{"path":"file:///etc/passwd"}`, names.PermissionDenied, "NoConsent"}, // R065
		{"files/read", `{"path":"rw/../../etc/passwd"}`, names.InvalidPath, "Invalid"},       // R064, R188
		{"files/read", `{"path":"../../../etc/passwd"}`, names.InvalidPath, "Invalid"},       // R188
		{"files/read", `{"path":"rw/out/secret"}`, names.PermissionDenied, "Escape"},         // R064, R189
		{"files/read", `{"path":"rw/dangling"}`, names.PermissionDenied, "Escape"},           // R064
		{"files/write", `{"path":"rw/dangling","content":"x","create":true}`, names.PermissionDenied, "Escape"},
		{"files/read", `{"path":"ro/proc"}`, names.PermissionDenied, "Escape"},
		{"files/read", `{"path":"rw/a\u0000"}`, names.InvalidPath, "Invalid"},
		{"files/read", `{"path":"rw/` + strings.Repeat("n", 256) + `"}`, names.InvalidPath, "TooLong"},
		{"files/write", `{"path":"ro/a","content":"x"}`, names.PermissionDenied, "ReadOnly"},
		{"files/write", `{"path":"ro/new","content":"x","create":true}`, names.PermissionDenied, "ReadOnly"},
		{"files/delete", `{"path":"ro/a"}`, names.PermissionDenied, "ReadOnly"},
		{"files/create", `{"path":"ro/n"}`, names.PermissionDenied, "ReadOnly"},
		{"files/rename", `{"oldPath":"ro/a","newPath":"ro/b"}`, names.PermissionDenied, "ReadOnly"},
		{"files/write", `{"path":"rw/none","content":"x"}`, names.FileNotFound, "NotExist"},
		{"files/write", `{"path":"rw/a","content":"x","createOnly":true}`, names.ConcurrencyConflict, "Exist"},
		{"files/write", `{"path":"rw/a","content":"x","ifMatch":"other"}`, names.ConcurrencyConflict, "Conflict"},
		{"files/write", `{"path":"rw/a","content":"` + strings.Repeat("x", 101) + `"}`, names.QuotaExceeded, "Quota"},
		{"files/create", `{"path":"rw/a"}`, names.ConcurrencyConflict, "Exist"},
		{"files/delete", `{"path":"rw/d"}`, names.IOError, "NotEmpty"},
		{"files/rename", `{"oldPath":"rw/a","newPath":"rw/d/x"}`, names.ConcurrencyConflict, "Exist"},
		{"files/read", `{"path":"rw/a","length":999999999}`, names.QuotaExceeded, "Quota"},
		{"files/list", `{"path":"rw/a"}`, names.InvalidPath, "NotDir"},
		{"files/unwatch", `{"watchId":"none"}`, "", ""},
	} {
		e, d := p.fails(c.method, c.params)
		want := wire.CodeInvalidParams
		if c.code != "" {
			want = wire.Number(c.code)
		}
		if e.Code != want || d.Code != c.code || d.Reason != c.reason {
			t.Errorf("%s %s: %d %s, %+v; want %s %s", c.method, c.params, e.Code, e.Message, d, c.code, c.reason)
		}
		if e.Message == "" || strings.Contains(e.Message, dir) || strings.Contains(string(e.Data), dir) || strings.Contains(e.Message, out) {
			t.Errorf("%s %s: the message is empty or contains a host path: %q", c.method, c.params, e.Message)
		}
	}
	// A FIFO is refused at once; the open does not wait for a writer.
	if e, _ := p.fails("files/read", `{"path":"rw/fifo"}`); e.Code >= 0 {
		t.Errorf("FIFO: %+v", e)
	}
	// CONCURRENCY_CONFLICT is also the code if a process of the host has locked the file.
	if err := unix.Flock(int(locked.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	if e, d := p.fails("files/write", `{"path":"rw/a","content":"b"}`); d.Reason != "Locked" || e.Code != -31006 || d.ETag == "" || !d.Retryable {
		t.Errorf("locked: %+v %+v", e, d)
	}
}

// A character belongs to the chunk in which it starts. So the chunks make up the file, whether a
// reader adds the length to the offset or takes the next offset from the answer: R035, R036, R060.
func TestReadChunks(t *testing.T) {
	l := newLab(t, nil)
	const chars, longest = "aé漢😀\n\x01\"\\", 39
	files := map[string]string{"f": chars, "empty": ""}
	// One file for each length, so long that chunks start at every byte of chars.
	name := func(length int64) string { return fmt.Sprintf("f%d", length) }
	for length := range int64(longest) + 1 {
		files[name(length)] = strings.Repeat(chars, int(length)+1)
	}
	l.root("r", guard.ReadOnly, files)
	p := l.connect("")
	for length := int64(1); length <= longest; length++ {
		path, text := "r/"+name(length), files[name(length)]
		var byLength, byNext strings.Builder
		for off := int64(0); off < int64(len(text)); off += length {
			var r wire.ReadResult
			p.must("files/read", obj{"path": path, "offset": off, "length": length}, &r)
			byLength.WriteString(r.Content)
		}
		for off := int64(0); ; {
			var r wire.ReadResult
			p.must("files/read", obj{"path": path, "offset": off, "length": length}, &r)
			byNext.WriteString(r.Content)
			if off = r.Next; r.EOF {
				break
			}
		}
		if byLength.String() != text || byNext.String() != text {
			t.Fatalf("length %d: %q, %q", length, byLength.String(), byNext.String())
		}
	}
	var r wire.ReadResult
	p.must("files/read", obj{"path": "r/empty"}, &r)
	if r.Content != "" || !r.EOF || r.Size != 0 {
		t.Errorf("empty: %+v", r)
	}
	p.must("files/read", obj{"path": "r/f", "offset": 1 << 40}, &r)
	if r.Content != "" || !r.EOF {
		t.Errorf("behind the end: %+v", r)
	}
}

// Bytes that are not UTF-8 are refused, with advice how to read them. They are never changed.
func TestReadBinary(t *testing.T) {
	l := newLab(t, nil)
	data := make([]byte, 3<<18)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	l.root("r", guard.ReadOnly, map[string]string{"bin": string(data), "cut": "abc\xe6\xbc", "lone": "\x80abc", "latin": "caf\xe9 x"})
	p := l.connect("")
	for _, f := range []string{"bin", "cut", "lone", "latin"} {
		if _, d := p.fails("files/read", obj{"path": "r/" + f}); d.Code != names.IOError || !strings.Contains(d.Hint, "base64") {
			t.Errorf("%s: %+v", f, d)
		}
	}
	var got bytes.Buffer
	for off := int64(0); ; {
		var r wire.ReadResult
		p.must("files/read", obj{"path": "r/bin", "offset": off, "length": 250_007, "encoding": "base64"}, &r)
		b, err := base64.StdEncoding.DecodeString(r.Content)
		if err != nil {
			t.Fatal(err)
		}
		got.Write(b)
		if off = r.Next; r.EOF {
			break
		}
	}
	if !bytes.Equal(got.Bytes(), data) {
		t.Error("the bytes read are not the bytes of the file")
	}
}

func TestWriteWays(t *testing.T) {
	l := newLab(t, nil)
	dir := l.root("w", guard.ReadWrite, map[string]string{"f": "0123456789", "bom": "x"})
	if err := os.Chmod(dir+"/f", 0o640); err != nil {
		t.Fatal(err)
	}
	p := l.connect("")
	check := func(what, name, want string) {
		t.Helper()
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v; want %q", what, b, err, want)
		}
	}
	p.must("files/write", `{"path":"w/f","content":"AB","offset":3}`, nil)
	check("offset", "f", "012AB56789")
	p.must("files/write", `{"path":"w/f","content":"C","offset":3,"truncate":true}`, nil)
	check("truncate", "f", "012C")
	p.must("files/write", `{"path":"w/f","content":"+","append":true}`, nil)
	check("append", "f", "012C+")
	p.must("files/write", `{"path":"w/f","content":"AP8=","encoding":"base64"}`, nil)
	check("base64", "f", "\x00\xff")
	if st, err := os.Stat(dir + "/f"); err != nil || st.Mode() != 0o640 {
		t.Errorf("the mode was not kept: %v, %v", st.Mode(), err)
	}
	if _, d := p.fails("files/write", `{"path":"w/sub/n","content":"x","create":true}`); d.Code != names.FileNotFound {
		t.Errorf("into a directory that is not there: %+v", d)
	}
	for _, bad := range []string{
		`{"path":"w/f","content":"x","encoding":"latin1"}`, `{"path":"w/f","content":"?","encoding":"base64"}`,
		`{"path":"w/f","content":"x","offset":-1}`, `{"path":"w/f","content":"x","offset":1,"append":true}`,
		`{"path":"w/f","content":"x","last":true}`, `{"path":"w/f","content":"x","uploadId":"u"}`,
		`{"path":"w/f","content":"x","offset":"1"}`, `{"path":"w/f","content":"x","ofset":1}`,
		`{"path":"w/f","path":"w/g","content":"x"}`, `{"content":"x"}`, `[]`, `7`,
	} {
		if e, _ := p.fails("files/write", bad); e.Code != wire.CodeInvalidParams || e.Message == "" {
			t.Errorf("%s: %+v", bad, e)
		}
	}
	check("after refusals", "f", "\x00\xff")
}

// The contents of an upload replace the file in one step, when the upload is completed. An upload
// that was given up leaves nothing.
func TestUpload(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Limits.Uploads = 2 })
	dir := l.root("w", guard.ReadWrite, map[string]string{"big": "old"})
	p := l.connect("")
	var first, r wire.WriteResult
	p.must("files/write", `{"path":"w/big","content":"aaaa","upload":true}`, &first)
	if first.UploadID == "" || first.BytesWritten != 4 {
		t.Fatalf("%+v", first)
	}
	p.must("files/write", obj{"path": "w/big", "content": "cccc", "uploadId": first.UploadID, "offset": 8}, nil)
	if b, _ := os.ReadFile(dir + "/big"); string(b) != "old" {
		t.Errorf("before the last chunk: %q", b)
	}
	if _, d := p.fails("files/write", obj{"path": "w/big", "content": "", "uploadId": first.UploadID, "offset": 12, "last": true}); d.Code == "" {
		t.Error("an upload with a gap was completed")
	}
	p.must("files/write", obj{"path": "w/big", "content": "bbbb", "uploadId": first.UploadID, "offset": 4, "last": true}, &r)
	if b, _ := os.ReadFile(dir + "/big"); string(b) != "aaaabbbbcccc" || r.Size != 12 || r.ETag == "" {
		t.Errorf("after the last chunk: %q, %+v", b, r)
	}
	if _, d := p.fails("files/write", obj{"path": "w/big", "content": "x", "uploadId": first.UploadID, "offset": 8}); d.Code != names.ConcurrencyConflict {
		t.Errorf("a chunk after the upload was completed: %+v", d)
	}
	// A file has at most one upload at a time; a second one is refused.
	p.must("files/write", `{"path":"w/big","content":"1","upload":true}`, &first)
	if _, d := p.fails("files/write", `{"path":"w/big","content":"2","upload":true}`); d.Code != names.ConcurrencyConflict || !d.Retryable || strings.Contains(d.Hint, "read it again") {
		t.Errorf("second upload: %+v", d)
	}
	p.must("files/write", `{"path":"w/other","content":"1","upload":true,"create":true}`, nil)
	if _, d := p.fails("files/write", `{"path":"w/third","content":"1","upload":true,"create":true}`); d.Code != names.QuotaExceeded || d.Limit != 2 {
		t.Errorf("third upload: %+v", d)
	}
	// An abandoned upload makes room for another.
	if r := p.call("files/write", obj{"path": "w/big", "content": "", "uploadId": first.UploadID, "abandon": true}); r.Error != nil {
		t.Errorf("abandon: %+v", r.Error)
	}
	p.must("files/write", `{"path":"w/big","content":"3","upload":true}`, nil)
	p.hangUp()
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 {
		t.Errorf("an upload that was given up left %v, %v", names, err)
	}
}

func TestList(t *testing.T) {
	l := newLab(t, nil)
	files := map[string]string{".hidden": "", "sub/deep/x.go": "", "sub/.git/config": ""}
	for i := range 25 {
		files[fmt.Sprintf("f%02d", i)] = "x"
	}
	dir := l.root("r", guard.ReadOnly, files)
	l.root("other", guard.ReadWrite, nil)
	if err := os.WriteFile(dir+"/bad\xff", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p := l.connect("")
	for _, top := range []string{`{"path":""}`, `{"path":"."}`, `{}`} {
		var r wire.ListResult
		p.must("files/list", top, &r)
		if len(r.Entries) != 2 || r.Entries[0].Path != "other" || r.Entries[0].Mode != "rw" || r.Entries[1].Mode != "ro" || r.Entries[1].Type != "directory" {
			t.Errorf("%s: %+v", top, r)
		}
	}
	collect := func(params obj) (all []string, pages int) {
		for {
			var r wire.ListResult
			p.must("files/list", params, &r)
			pages++
			for _, e := range r.Entries {
				all = append(all, e.Path)
			}
			if r.NextCursor == "" {
				slices.Sort(all)
				return
			}
			params["cursor"] = r.NextCursor
		}
	}
	if all, pages := collect(obj{"path": "r", "limit": 4}); len(all) != 27 || pages < 7 || slices.Contains(all, "r/.hidden") || len(slices.Compact(all)) != 27 {
		t.Errorf("%d in %d pages: %v", len(all), pages, all)
	}
	if all, _ := collect(obj{"path": "r", "recursive": true, "includeHidden": true}); !slices.Contains(all, "r/sub/.git/config") || !slices.Contains(all, "r/.hidden") {
		t.Errorf("everything: %v", all)
	}
	if all, _ := collect(obj{"path": "r", "recursive": true, "glob": "**/*.go"}); !slices.Equal(all, []string{"r/sub/deep/x.go"}) {
		t.Errorf("glob: %v", all)
	}
	if all, _ := collect(obj{"path": "r", "recursive": true, "depth": 1, "glob": "sub*"}); !slices.Equal(all, []string{"r/sub"}) {
		t.Errorf("depth: %v", all)
	}
	var r wire.ListResult
	p.must("files/list", obj{"path": "r", "glob": "bad*"}, &r)
	if len(r.Entries) != 1 || r.Entries[0].RawName != base64.StdEncoding.EncodeToString([]byte("bad\xff")) || r.Entries[0].Name != "bad\uFFFD" {
		t.Errorf("a name that is not UTF-8: %+v", r)
	}
	for _, bad := range []string{
		`{"path":"r","cursor":"x"}`, `{"path":"r","limit":-1}`, `{"path":"r","limit":99999}`, `{"path":"r","glob":"[z"}`,
		`{"path":"r","depth":1}`, `{"path":"","cursor":"x"}`,
	} {
		if e, _ := p.fails("files/list", bad); e.Code != wire.CodeInvalidParams {
			t.Errorf("%s: %+v", bad, e)
		}
	}
}

func TestDeleteRenameCopyStat(t *testing.T) {
	l := newLab(t, nil)
	dir := l.root("a", guard.ReadWrite, map[string]string{"d/1": "1", "d/e/2": "2", "f": "f", "g": "g"})
	other := l.root("b", guard.ReadWrite, map[string]string{"x": "x"})
	if err := os.Symlink("f", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	p := l.connect("")
	if _, d := p.fails("files/delete", `{"path":"a"}`); d.Code == "" {
		t.Error("the root itself was deleted")
	}
	if _, d := p.fails("files/delete", `{"path":"a","recursive":true}`); d.Code == "" {
		t.Error("the root itself was deleted")
	}
	p.must("files/delete", `{"path":"a/d","recursive":true}`, nil)
	p.must("files/delete", `{"path":"a/link"}`, nil)
	if b, err := os.ReadFile(dir + "/f"); err != nil || string(b) != "f" {
		t.Errorf("deleting a link deleted what it points to: %q, %v", b, err)
	}
	if e, d := p.fails("files/rename", `{"oldPath":"a/f","newPath":"b/f"}`); !strings.Contains(d.Hint, "files/copy") {
		t.Errorf("across roots: %+v %+v", e, d)
	}
	if _, d := p.fails("files/rename", `{"oldPath":"a/f","newPath":"a/g"}`); d.Reason != "Exist" {
		t.Errorf("onto another: %+v", d)
	}
	p.must("files/rename", `{"oldPath":"a/f","newPath":"a/g","overwrite":true}`, nil)
	var c wire.RenameResult
	p.must("files/copy", `{"oldPath":"a/g","newPath":"b/copy"}`, &c)
	if b, err := os.ReadFile(other + "/copy"); err != nil || string(b) != "f" || c.Size != 1 {
		t.Errorf("copy: %q, %v, %+v", b, err, c)
	}
	var st wire.StatResult
	p.must("files/stat", `{"path":"a/g"}`, &st)
	if st.Type != "file" || st.Size != 1 || st.ETag == "" || !st.Writable {
		t.Errorf("stat: %+v", st)
	}
	if ts, err := time.Parse(time.RFC3339, st.MTime); err != nil || ts.Location() != time.UTC {
		t.Errorf("mtime %q: %v", st.MTime, err)
	}
	var w wire.WriteResult
	p.must("files/write", obj{"path": "a/g", "content": "new", "ifMatch": st.ETag}, &w)
	if _, d := p.fails("files/write", obj{"path": "a/g", "content": "lost", "ifMatch": st.ETag}); d.Reason != "Conflict" || d.ETag != w.ETag {
		t.Errorf("R073: %+v, want the current etag %s", d, w.ETag)
	}
}

// A root that only serves to run the command is not in the answer to roots/list.
func TestImplicit(t *testing.T) {
	l := newLab(t, nil)
	l.root("project", guard.ReadOnly, nil)
	l.grant(guard.Grant{Root: "interpreter", Dir: names.Foreign(t.TempDir()), Policy: guard.Policy{Rights: guard.ReadOnly}, Implicit: true})
	p := l.connect("")
	var roots wire.RootsResult
	p.must("roots/list", `{}`, &roots)
	if len(roots.Roots) != 1 || roots.Roots[0].Name != "project" {
		t.Errorf("roots: %+v", roots)
	}
}

// In a flat layout roots/list has the paths at which the server sees the roots, and the
// server may use them. The host's own paths keep their meaning.
func TestFlat(t *testing.T) {
	l := newLab(t, func(c *Config) { c.FlatAt = "/roots" })
	dir := l.root("project", guard.ReadOnly, map[string]string{"a b": "text"})
	p := l.connect("")
	var roots wire.RootsResult
	p.must("roots/list", `{}`, &roots)
	if len(roots.Roots) != 1 || roots.Roots[0].URI != "file:///roots/project" {
		t.Errorf("roots: %+v", roots)
	}
	for _, path := range []string{"/roots/project/a b", "file:///roots/project/a%20b", "project/a b", dir + "/a b"} {
		var read wire.ReadResult
		p.must("files/read", `{"path":"`+path+`"}`, &read)
		if read.Content != "text" {
			t.Errorf("%s: %+v", path, read)
		}
	}
	for _, path := range []string{"/roots/other/x", "/roots", "/rootsproject/a", "/roots/project/../../etc/passwd"} {
		if r := p.call("files/read", `{"path":"`+path+`"}`); r.Error == nil {
			t.Errorf("%s was read", path)
		}
	}
}
