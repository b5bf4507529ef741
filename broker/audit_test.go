package broker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// refusalsSince returns the refusals and failures after the first n records.
func (r *records) refusalsSince(n int) (list []guard.Record) {
	for _, rec := range r.all()[n:] {
		if rec.Verdict != guard.Allowed {
			list = append(list, rec)
		}
	}
	return list
}

// R084: each refusal and failure, before the gate or behind it, leaves exactly one record, which
// has the kind of the error.
func TestEveryRefusalIsRecordedOnce(t *testing.T) {
	l := newLab(t, func(c *Config) {
		c.Limits.MaxChunk, c.Limits.MaxFile, c.Limits.Watches, c.Limits.Uploads = 1000, 5000, 1, 1
	})
	l.root("r", guard.ReadWrite, map[string]string{"f": "text", "bin": "\xff\xfe", "d/x": "", "gone": ""})
	l.root("s", guard.ReadWrite, nil)
	l.root("ro", guard.ReadOnly, map[string]string{"f": "text"})
	l.grant(guard.Grant{Root: "theirs", Dir: names.Foreign(t.TempDir()), Subject: "other", Policy: guard.Policy{Rights: guard.ReadOnly}})
	p := l.connect("me")
	p.must("files/watch", `{"path":"r"}`, nil)
	p.must("files/write", `{"path":"r/u","create":true,"upload":true,"content":"abc"}`, nil)
	long := strings.Repeat("x", 2000)
	for _, c := range []struct {
		method, params string
		kind           names.Kind
	}{
		{"files/rename", `{"oldPath":"r/f","newPath":"s/f"}`, names.Invalid},
		{"files/rename", `{"oldPath":"r/f","newPath":"none/f"}`, names.NoConsent},
		{"files/rename", `{"oldPath":"r/f","newPath":"r/d/x"}`, names.Exist},
		{"files/read", `{"path":"r/f","length":100000}`, names.Quota},
		{"files/read", `{"path":"r/bin"}`, names.Quota},
		{"files/read", `{"path":"r/bin","length":10}`, names.IO},
		{"files/read", `{"path":"r/none","length":10}`, names.NotExist},
		{"files/read", `{"path":"none/f","length":10}`, names.NoConsent},
		{"files/read", `{"path":"theirs/f","length":10}`, names.NoConsent},
		{"files/read", `{"path":"/etc/hostname","length":10}`, names.NoConsent},
		{"files/read", `{"path":"r/../f","length":10}`, names.Invalid},
		{"files/read", `{"path":5}`, names.Invalid},
		{"files/read", `{"path":"r/f","length":-1}`, names.Invalid},
		{"files/write", fmt.Sprintf(`{"path":"r/f","content":%q}`, long), names.Quota},
		{"files/write", `{"path":"r/f","content":"x","offset":100000}`, names.Quota},
		{"files/write", `{"path":"r/f","encoding":"base64","content":"%%"}`, names.Invalid},
		{"files/write", `{"path":"r/f","content":"x","ifMatch":"other"}`, names.Conflict},
		{"files/write", `{"path":"r/f","content":"x","offset":9223372036854775807}`, names.Invalid},
		{"files/write", `{"path":"ro/f","content":"x"}`, names.ReadOnly},
		{"files/write", `{"path":"r/u2","create":true,"upload":true,"content":"abc"}`, names.Quota},
		{"files/write", `{"path":"r/u","uploadId":"none","offset":3,"content":"abc"}`, names.Conflict},
		{"files/watch", `{"path":"r"}`, names.Quota},
		{"files/watch", `{"path":"r","events":["moved"]}`, names.Invalid},
		{"files/unwatch", `{"watchId":"none"}`, names.Invalid},
		{"files/copy", `{"oldPath":"r/f","newPath":"ro/g"}`, names.ReadOnly},
		{"files/copy", `{"oldPath":"r/f","newPath":"r/gone"}`, names.Exist},
		{"files/create", `{"path":"r/x","type":"pipe"}`, names.Invalid},
		{"files/create", `{"path":"r/no/x"}`, names.NotExist},
		{"files/delete", `{"path":"r/d"}`, names.NotEmpty},
		{"files/list", `{"path":"r","cursor":"none"}`, names.Invalid},
		{"files/list", `{"path":"r","glob":"["}`, names.Invalid},
		{"files/list", `{"path":"r","limit":-1}`, names.Invalid},
		{"files/consent", `{"message":"m","requestedPaths":[]}`, names.Invalid},
		{"roots/list", `{"cursor":"none"}`, names.Invalid},
		{"files/evil", `{}`, names.Invalid},
		{"fs.read", `{}`, names.Invalid},
	} {
		n := len(l.recs.all())
		p.fails(c.method, c.params)
		got := l.recs.refusalsSince(n)
		if len(got) != 1 || got[0].Kind != c.kind || got[0].Subject != "me" {
			t.Errorf("%s %.80s: want one record of kind %v, have %+v", c.method, c.params, c.kind, got)
		}
	}
}

// R084: a files/* request without a valid id leaves a record, although it cannot be answered. A
// line that is not a message leaves a record, too.
func TestRubbishIsRecorded(t *testing.T) {
	l := newLab(t, nil)
	l.root("r", guard.ReadWrite, map[string]string{"f": "text"})
	p := l.connectFrames("me", 10_000)
	for _, line := range []string{
		`{"jsonrpc":"2.0","method":"files/delete","params":{"path":"r/f"}}`,
		`{"jsonrpc":"2.0","id":null,"method":"files/delete","params":{"path":"r/f"}}`,
		`{"jsonrpc":"2.0","id":{"a":1},"method":"files/delete","params":{"path":"r/f"}}`,
		`rubbish`,
		`{"id":1,"id":2,"method":"files/delete"}`,
		strings.Repeat("x", 20_000),
	} {
		n := len(l.recs.all())
		p.raw(line + "\n")
		p.must("files/stat", `{"path":"r/f"}`, nil) // frames are read in order, so the line was handled
		got := l.recs.refusalsSince(n)
		if len(got) != 1 || got[0].Kind != names.Invalid || got[0].Verdict != guard.Refused || got[0].Subject != "me" {
			t.Errorf("%.60s: %+v", line, got)
		}
	}
}

// R082: a files/consent for a path that is already approved is recorded, like any other.
func TestConsentApprovedAlreadyIsRecorded(t *testing.T) {
	l := newLab(t, nil)
	dir := l.root("r", guard.ReadWrite, nil)
	p := l.connect("me")
	n := len(l.recs.all())
	p.must("files/consent", map[string]any{"message": "m", "requestedPaths": []string{dir}}, nil)
	got := l.recs.all()[n:]
	if len(got) != 1 || got[0].Op != names.OpGrant || got[0].Verdict != guard.Allowed || got[0].Subject != "me" {
		t.Errorf("%+v", got)
	}
	p.must("files/consent", map[string]any{"message": "m", "requestedPaths": []string{dir, t.TempDir()}}, nil) // nobody can be asked about the second path
	if st := p.s.Stats(); st.Asked != 3 || st.Given != 2 {
		t.Errorf("paths asked for %d, given %d; want 3 and 2", st.Asked, st.Given)
	}
}

// R082: an upload that never becomes a file is on record with the bytes sent for it, whether the
// server abandons the upload or the session ends.
func TestUploadGivenUpIsRecorded(t *testing.T) {
	l := newLab(t, nil)
	l.root("r", guard.ReadWrite, nil)
	p := l.connect("me")
	closesSince := func(n int) (found []guard.Record) {
		for _, rec := range l.recs.all()[n:] {
			if rec.Op == names.OpClose {
				found = append(found, rec)
			}
		}
		return found
	}
	begin := func() (id string) {
		var res wire.WriteResult
		p.must("files/write", `{"path":"r/u","create":true,"upload":true,"content":"abc"}`, &res)
		return res.UploadID
	}
	n := len(l.recs.all())
	p.must("files/write", fmt.Sprintf(`{"path":"r/u","uploadId":%q,"abandon":true}`, begin()), nil)
	begin()
	p.s.Close()
	got := closesSince(n)
	if len(got) != 2 {
		t.Fatalf("want one record for each of two uploads: %+v", got)
	}
	for _, rec := range got {
		if rec.Path.String() != "r/u" || rec.Written != 3 || rec.Subject != "me" || rec.Detail == "" {
			t.Errorf("%+v", rec)
		}
	}
}

// R082: a record names the file that was reached. If a link led to the file, the record names the
// requested path, too.
func TestRecordNamesWhatWasReached(t *testing.T) {
	l := newLab(t, nil)
	dir := l.root("r", guard.ReadWrite, map[string]string{"secret/keys.txt": "key", "secret/old": "", "secret/gone": "", "f": "text"})
	for link, target := range map[string]string{"notes": "secret/keys.txt", "pub": "secret"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	p := l.connect("me")
	for _, c := range []struct{ method, params, path, path2, asked string }{
		{"files/read", `{"path":"r/notes"}`, "r/secret/keys.txt", "", "r/notes"},
		{"files/write", `{"path":"r/notes","content":"new"}`, "r/secret/keys.txt", "", "r/notes"},
		{"files/write", `{"path":"r/notes","content":"more","append":true}`, "r/secret/keys.txt", "", "r/notes"},
		{"files/create", `{"path":"r/pub/made"}`, "r/secret/made", "", "r/pub/made"},
		{"files/list", `{"path":"r/pub"}`, "r/secret", "", "r/pub"},
		{"files/rename", `{"oldPath":"r/pub/old","newPath":"r/moved"}`, "r/secret/old", "r/moved", "r/pub/old"},
		{"files/rename", `{"oldPath":"r/moved","newPath":"r/pub/back"}`, "r/moved", "r/secret/back", "r/pub/back"},
		{"files/copy", `{"oldPath":"r/notes","newPath":"r/copy"}`, "r/secret/keys.txt", "r/copy", "r/notes"},
		{"files/delete", `{"path":"r/pub/gone"}`, "r/secret/gone", "", "r/pub/gone"},
		// This read fails. Its record has both paths, too.
		{"files/read", `{"path":"r/pub/none"}`, "r/secret/none", "", "r/pub/none"},
		{"files/read", `{"path":"r/f"}`, "r/f", "", ""},
	} {
		n := len(l.recs.all())
		p.call(c.method, c.params)
		got := l.recs.all()[n:]
		if len(got) != 1 {
			t.Errorf("%s %s: %+v", c.method, c.params, got)
			continue
		}
		rec := got[0]
		detailOK := c.asked == "" && rec.Detail == "" || c.asked != "" && strings.Contains(rec.Detail, "asked for "+c.asked)
		if rec.Path.String() != c.path || rec.Path2.String() != c.path2 || !detailOK {
			t.Errorf("%s %s: %v %v %q", c.method, c.params, rec.Path, rec.Path2, rec.Detail)
		}
	}
}
