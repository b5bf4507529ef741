package tools_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// One request may ask for work that would take hours. The work ends with the session of the
// request, so the session can be deleted without waiting for the end of the work.
func TestLongWorkEndsWithItsSession(t *testing.T) {
	sameEdit := func(n int) []m { return slices.Repeat([]m{{"oldText": "x", "newText": "x"}}, n) }
	for name, c := range map[string]struct {
		tool string
		args m
	}{
		"a long regular expression": {"search_within_files", m{"regex": strings.Repeat("[x\n]{0,900}y|", 10) + "z"}},
		"an edit of many lines":     {"edit_file", m{"edits": []m{{"oldText": strings.Repeat("x\n", 1<<18) + "y", "newText": ""}}}},
		"many edits":                {"edit_file", m{"edits": append(sameEdit(50_000), m{"oldText": "y", "newText": ""})}},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, nil, nil)
			b.root("code", guard.ReadWrite, "big="+strings.Repeat("x\n", 1<<20))
			site := b.site(tools.HTTPOptions{})
			status, session := post(t, site, hello, func(*http.Request) {})
			if status != http.StatusOK {
				t.Fatal(status)
			}
			c.args["path"] = "code/big"
			body, err := json.Marshal(m{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": m{"name": c.tool, "arguments": c.args}})
			testkit.Must(t, err)
			send(t.Context(), t, site, session, string(body))
			read := func(r guard.Record) bool { return strings.HasSuffix(r.Path.String(), "/big") }
			testkit.Until(t, "the record that the file is read", func() bool { return slices.ContainsFunc(b.recs.All(), read) })
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

// Revoking a root in the middle of a search ends the search. Matches that were found before are
// not returned.
func TestRevokeEndsSearch(t *testing.T) {
	b := start(t, nil, nil)
	b.root("code", guard.ReadOnly, "big=y\n"+strings.Repeat("x\n", 1<<20))
	b.connect("2025-11-25")
	result := make(chan string, 1)
	go func() {
		text, _, failed := b.call("search_within_files", m{"path": "code/big", "regex": strings.Repeat("[x\n]{0,900}y|", 10) + "z"})
		if !failed {
			text = "answered: " + text
		}
		result <- text
	}()
	read := func(r guard.Record) bool { return strings.HasSuffix(r.Path.String(), "/big") }
	testkit.Until(t, "the record that the file is read", func() bool { return slices.ContainsFunc(b.recs.All(), read) })
	_, err := b.reg.Revoke(t.Context(), "code")
	testkit.Must(t, err)
	select {
	case got := <-result:
		if !strings.Contains(got, "revoked") || strings.Contains(got, "answered") {
			t.Error(got)
		}
	case <-time.After(testTimeout):
		t.Error("the search goes on")
	}
}

// One request cannot fill the audit log or the memory with names of files that do not exist.
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

// A client that does not read an answer delays the end of its session only for a bounded time.
func TestHTTPUnreadAnswer(t *testing.T) {
	b := start(t, nil, nil)
	b.root("code", guard.ReadOnly, "big="+strings.Repeat("x", tools.DefaultAnswer-1))
	site := b.site(tools.HTTPOptions{ClientReadTimeout: time.Second})
	status, session := post(t, site, hello, func(*http.Request) {})
	if status != http.StatusOK {
		t.Fatal(status)
	}
	c, err := net.Dial("tcp", site.Listener.Addr().String())
	testkit.Must(t, err)
	defer c.Close()
	testkit.Must(t, c.(*net.TCPConn).SetReadBuffer(1)) // the system takes its minimum instead
	const body = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"code/big"}}}`
	_, err = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Accept: application/json, text/event-stream\r\nMcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s", token, session, len(body), body)
	testkit.Must(t, err)
	_, err = c.Read(make([]byte, 1)) // the answer has begun
	testkit.Must(t, err)
	status, _ = post(t, site, "", func(r *http.Request) {
		r.Method = http.MethodDelete
		r.Header.Set("Mcp-Session-Id", session)
	})
	if status != http.StatusNoContent {
		t.Error(status)
	}
}

// A client that subscribes, but has no stream of events, causes no warnings in the log.
func TestHTTPNobodyListens(t *testing.T) {
	var log lockedBuffer
	b := start(t, func(c *tools.Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}, nil)
	dir := b.root("code", guard.ReadOnly, "a=1")
	site := b.site(tools.HTTPOptions{})
	_, session := post(t, site, hello, func(*http.Request) {})
	inSession := func(r *http.Request) { r.Header.Set("Mcp-Session-Id", session) }
	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"file://` + dir + `/a"}}`,
	} {
		if status, _ := post(t, site, body, inSession); status >= http.StatusBadRequest {
			t.Fatal(status)
		}
	}
	testkit.Until(t, "a change is reported", func() bool {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "a"), []byte(rand.Text()), 0o600))
		return strings.Contains(log.String(), "resources/updated")
	})
	if text := log.String(); strings.Contains(text, "level=WARN") {
		t.Error(text)
	}
}
