package client_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

// eachCall returns calls with the path p, by name: at least one for each files/* method that takes
// a path, except files/consent.
func eachCall(f *client.Files, p string) map[string]func() error {
	return map[string]func() error{
		"read":   func() error { _, err := f.ReadFile(bg, p); return err },
		"write":  func() error { _, err := f.WriteFile(bg, p, nil, client.WriteOptions{}); return err },
		"append": func() error { _, err := f.Append(bg, p, nil, false); return err },
		"list": func() error {
			for _, err := range f.List(bg, p, client.ListOptions{}) {
				return err
			}
			return nil
		},
		"create": func() error { _, err := f.Create(bg, p, false); return err },
		"delete": func() error { return f.Delete(bg, p, client.DeleteOptions{}) },
		"rename": func() error { _, err := f.Rename(bg, "p/a", p, client.MoveOptions{}); return err },
		"copy":   func() error { _, err := f.Copy(bg, p, "p/b", client.MoveOptions{}); return err },
		"stat":   func() error { _, err := f.Stat(bg, p); return err },
		"watch":  func() error { _, err := f.Watch(bg, p, client.WatchOptions{}); return err },
		"fs":     func() error { _, err := f.FS(bg, p).Open("."); return err },
	}
}

// R101: this package refuses a path before it sends anything if the path climbs, cannot be sent
// unchanged or is a valid path on no system. With Options.RelativeOnly it also refuses absolute
// paths.
func TestPathsRefusedHere(t *testing.T) {
	h := newHost(t, map[string]string{"p/a": "x"})
	for _, tc := range []struct {
		opts  *client.Options
		paths []string
	}{
		{nil, []string{
			"../x", "p/../../x", "p/..", "..", "p/\x00", "p/\xff", "/p/../x", "/..", `C:\p\..\x`, `C:x`, "c:x/y", `\x`, `\\server`,
			`\\?\C:\x`, `\\.\pipe\x`, `C:\aux`, `C:\x.`, `\\server\share\..\x`, "file:/x", "file:x", "file://host.example", "file:///a/../b", "file:///a/%2e%2e/b",
			"file:///a%2fb", "file:///a%00", "file:///c:/a/../b", "file:///a?b",
		}},
		{&client.Options{RelativeOnly: true}, []string{"/etc/passwd", `C:\x`, "c:/x", `\\server\share\x`, "file:///etc/passwd", "FILE:///C:/x"}},
	} {
		f := filesOf(t, h, tc.opts)
		for _, p := range tc.paths {
			for name, call := range eachCall(f, p) {
				if err := call(); !errors.Is(err, fs.ErrInvalid) {
					t.Errorf("%s of %q: %v", name, p, err)
				}
			}
		}
	}
	if len(h.log) != 0 {
		t.Errorf("sent: %v", h.log)
	}
}

// R065, R101: absolute paths and file URIs inside a root work like paths that begin with the
// root's name, on POSIX and Windows clients, also on a client that knows only SEP-1708. The
// client refuses paths outside its roots.
func TestAbsolutePaths(t *testing.T) {
	for _, tc := range []struct {
		name, base string                      // base "": the directory of the host's roots
		absolute   func(base, p string) string // turns the path p into an absolute path
	}{
		{"POSIX", "", func(base, p string) string { return base + "/" + p }},
		{"POSIX URI", "", func(base, p string) string { return names.FormatURI(base + "/" + p) }},
		{"drive", "C:/Users/me", func(_, p string) string { return `C:\Users\me\` + backslashes(p) }},
		{"drive, slashes", "C:/Users/me", func(base, p string) string { return base + "/" + p }},
		{"drive URI", "C:/Users/me", func(_, p string) string { return "file:///C:" + names.FormatURI("/Users/me/" + p)[len("file://"):] }},
		{"network", "//server/share", func(_, p string) string { return `\\server\share\` + backslashes(p) }},
		{"network URI", "//server/share", func(_, p string) string { return "file://server" + names.FormatURI("/share/" + p)[len("file://"):] }},
	} {
		for _, sepOnly := range []bool{false, true} {
			t.Run(tc.name, func(t *testing.T) {
				h := newHost(t, map[string]string{"p/a b": "x", "p/d/b": "beta"})
				h.sepOnly = sepOnly
				base := h.base
				if tc.base != "" {
					h.base, base, h.windows = tc.base, tc.base, true
				}
				testAbsolute(t, h, func(p string) string { return tc.absolute(base, p) })
			})
		}
	}
}

func backslashes(p string) string {
	b := []byte(p)
	for i := range b {
		if b[i] == '/' {
			b[i] = '\\'
		}
	}
	return string(b)
}

func testAbsolute(t *testing.T, h *host, at func(p string) string) {
	f := filesOf(t, h, nil)
	if b, err := f.ReadFile(bg, at("p/a b")); err != nil || string(b) != "x" {
		t.Errorf("read: %q, %v", b, err)
	}
	if _, err := f.WriteFile(bg, at("p/new"), []byte("n"), client.WriteOptions{Create: true}); err != nil {
		t.Errorf("write: %v", err)
	}
	if b, err := f.ReadFile(bg, "p/new"); err != nil || string(b) != "n" {
		t.Errorf("written: %q, %v", b, err)
	}
	var listed []string
	for e, err := range f.List(bg, at("p"), client.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, e.Name)
	}
	if want := []string{"a b", "d", "new"}; !slices.Equal(listed, want) {
		t.Errorf("listed: %q", listed)
	}
	for p, typ := range map[string]string{"p": wire.TypeDirectory, "p/d": wire.TypeDirectory, "p/a b": wire.TypeFile} {
		if s, err := f.Stat(bg, at(p)); err != nil || s.Type != typ {
			t.Errorf("stat of %s: %+v, %v", p, s, err)
		}
	}
	if _, err := f.Rename(bg, at("p/new"), at("p/d/moved"), client.MoveOptions{}); err != nil {
		t.Errorf("rename: %v", err)
	}
	if err := f.Delete(bg, at("p/d/moved"), client.DeleteOptions{}); err != nil {
		t.Errorf("delete: %v", err)
	}
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	if _, err := f.Watch(ctx, at("p/d"), client.WatchOptions{}); err != nil {
		t.Errorf("watch: %v", err)
	}
	if err := fstest.TestFS(f.FS(bg, at("p")), "a b", "d/b"); err != nil {
		t.Errorf("fs: %v", err)
	}
	for name, call := range eachCall(f, at("q/x")) {
		if name == "watch" || name == "copy" && h.sepOnly {
			continue // the host does not judge the path of this call
		}
		if err := call(); names.Reason(err).Code() != names.PermissionDenied {
			t.Errorf("outside, %s: %v", name, err)
		}
	}
}
