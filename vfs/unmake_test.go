package vfs_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// counting is a context that does something when it is asked the nth time whether
// it has ended.
type counting struct {
	context.Context
	left int
	then func() error
}

func (c *counting) Err() error {
	if c.left--; c.left > 0 {
		return nil
	}
	return c.then()
}

// What was made of a path is taken back when the request ends.
func TestMkdirAllCancelled(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.must(os.Mkdir(b.host("a"), 0o755))
		ctx := &counting{bg, 100, func() error { return context.Canceled }}
		_, _, err := b.t.MkdirAll(ctx, who, b.path("a/b"+strings.Repeat("/d", 200)), 0o755)
		b.wantKind(err, names.IO)
		if entries, err := os.ReadDir(b.host("a")); len(entries) != 0 || err != nil {
			t.Errorf("%v is left, %v", entries, err)
		}
	})
}

// Of a root that has ended nothing is taken back: the revocation does not wait
// for it, nor does it go on afterwards. R070.
func TestMkdirAllRevoked(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	revoked := make(chan error, 1)
	ctx := &counting{Context: bg, left: 100}
	ctx.then = func() error {
		ctx.left = 1 << 30
		go func() {
			_, err := b.reg.Revoke(bg, b.path("").Root)
			revoked <- err
		}()
		for st, ok := b.reg.Lookup(b.path("").Root); ok && st.State == guard.Live; st, ok = b.reg.Lookup(b.path("").Root) {
			time.Sleep(time.Millisecond)
		}
		return nil
	}
	_, _, err := b.t.MkdirAll(ctx, who, b.path("d"+strings.Repeat("/d", 1000)), 0o755)
	b.wantKind(err, names.Revoked)
	if err := <-revoked; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(b.host("d"), "d")); err != nil {
		t.Errorf("something was taken back: %v", err)
	}
}

// A directory that is moved out of the root meanwhile is not followed there.
func TestMkdirAllMovedAway(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	out := t.TempDir()
	b.must(os.MkdirAll(filepath.Join(out, "a"), 0o755))
	ctx := &counting{Context: bg, left: 60}
	ctx.then = func() error {
		b.must(os.Rename(b.host("a/b"), filepath.Join(out, "b")))
		return context.Canceled
	}
	b.must(os.MkdirAll(b.host("a"), 0o755))
	_, _, err := b.t.MkdirAll(ctx, who, b.path("a/b"+strings.Repeat("/d", 200)), 0o755)
	b.wantKind(err, names.IO)
	for _, p := range []string{filepath.Join(out, "a"), filepath.Join(out, "b"), b.host("a")} {
		if _, err := os.Stat(p); err != nil {
			t.Error(err)
		}
	}
}

// A file that was made for a write that is refused then is taken back, but not what
// has its name by then, nor what somebody else has written to it meanwhile.
func TestWriteRangeTakesBackOnlyItsOwn(t *testing.T) {
	refuse := &guard.Error{Kind: names.Quota}
	for name, c := range map[string]struct {
		meanwhile func(b *bed)
		want      string // "" for no file
	}{
		"nothing happened":     {func(*bed) {}, ""},
		"replaced by the host": {func(b *bed) { b.put("tmp", "theirs"); b.must(os.Rename(b.host("tmp"), b.host("f"))) }, "theirs"},
		"written by the host":  {func(b *bed) { b.put("f", "theirs") }, "theirs"},
		"gone":                 {func(b *bed) { b.must(os.Remove(b.host("f"))) }, ""},
	} {
		for _, appending := range []bool{false, true} {
			b := newBed(t, false, guard.Policy{})
			_, _, err := b.t.WriteRange(bg, who, b.path("f"), []byte("ours"), vfs.WriteHow{
				Create: true, Append: appending, Mode: 0o644, Room: func(int64) error { c.meanwhile(b); return refuse },
			})
			b.wantKind(err, names.Quota)
			got, err := os.ReadFile(b.host("f"))
			if string(got) != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%s, appending %v: %q, %v", name, appending, got, err)
			}
		}
	}
}
