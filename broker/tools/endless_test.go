package tools_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
)

// Work that would take hours, which a client may ask for by a short text, ends with
// its session: an owner who stops the server does not wait for it.
func TestLongWorkEndsWithItsSession(t *testing.T) {
	twice := func(n int) []m { return slices.Repeat([]m{{"oldText": "x", "newText": "x"}}, n) }
	for name, c := range map[string]struct {
		tool string
		args m
	}{
		"a long regular expression": {"search_within_files", m{"regex": strings.Repeat("[x\n]{0,900}y|", 50) + "z"}},
		"an edit of many lines":     {"edit_file", m{"edits": []m{{"oldText": strings.Repeat("x\n", 1<<20) + "y", "newText": ""}}}},
		"many edits":                {"edit_file", m{"edits": append(twice(100_000), m{"oldText": "y", "newText": ""})}},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, nil, nil)
			b.root("code", guard.ReadWrite, "big="+strings.Repeat("x\n", 4<<20))
			site := b.site(tools.HTTPOptions{})
			status, session := post(t, site, hello, func(*http.Request) {})
			if status != http.StatusOK {
				t.Fatal(status)
			}
			c.args["path"] = "code/big"
			body, err := json.Marshal(m{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": m{"name": c.tool, "arguments": c.args}})
			must(t, err)
			send(t.Context(), t, site, session, string(body))
			read := func(r guard.Record) bool { return strings.HasSuffix(r.Path.String(), "/big") }
			for end := time.Now().Add(enough); !slices.ContainsFunc(b.recs.All(), read); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the file is not read")
				}
			}
			status, _ = post(t, site, "", func(r *http.Request) {
				r.Method = http.MethodDelete
				r.Header.Set("Mcp-Session-Id", session)
			})
			if status != http.StatusNoContent {
				t.Error(status)
			}
		})
	}
}

// One request does not fill the audit log, nor the memory, with the names of files
// that are not there.
func TestReadMultipleFilesIsBounded(t *testing.T) {
	b := start(t, nil, nil)
	b.root("code", guard.ReadOnly, "a=1")
	b.connect("2025-11-25")
	if got := b.ok("read_multiple_files", m{"paths": slices.Repeat([]string{"code/none"}, 1000)}); strings.Count(got, "no such file") != 1000 {
		t.Errorf("%d lines", strings.Count(got, "no such file"))
	}
	before := len(b.recs.All())
	b.refused("read_multiple_files", m{"paths": slices.Repeat([]string{"code/none"}, 1001)}, "paths names 1001 files, and one call reads 1000")
	if n := len(b.recs.All()) - before; n != 1 {
		t.Errorf("%d records of one refusal", n)
	}
}
