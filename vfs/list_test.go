package vfs_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// list lists p with all pages, and returns the entries in order.
func (b *bed) list(p guard.Path, o vfs.ListOptions) (all []vfs.Listed) {
	b.Helper()
	for {
		page, err := b.t.List(bg, who, p, o)
		b.must(err)
		all = append(all, page.Entries...)
		if o.Cursor = page.Next; o.Cursor == "" {
			return all
		}
	}
}

func rels(p guard.Path, list []vfs.Listed) []string {
	out := []string{}
	for _, e := range list {
		out = append(out, strings.TrimPrefix(strings.TrimPrefix(e.Path.Rel(), p.Rel()), "/"))
	}
	return out
}

// same compares without regard to order.
func (b *bed) same(what string, got, want []string) {
	b.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		b.Errorf("%s: %q, want %q", what, got, want)
	}
}

// R038, R039: the options for recursion, hidden names, depth and patterns select the same entries
// in pages of one entry, of two, and of the default size.
func TestList(t *testing.T) {
	tree := []string{"a.go", "b.txt", ".hid/x.go", ".dot", "sub/c.go", "sub/deep/d.go", "sub/deep/.e", "other/f.txt"}
	for name, c := range map[string]struct {
		o    vfs.ListOptions
		want string
	}{
		"one level":        {vfs.ListOptions{}, "a.go b.txt other sub"},
		"hidden":           {vfs.ListOptions{Hidden: true}, ".dot .hid a.go b.txt other sub"},
		"recursive":        {vfs.ListOptions{Recursive: true}, "a.go b.txt other other/f.txt sub sub/c.go sub/deep sub/deep/d.go"},
		"recursive hidden": {vfs.ListOptions{Recursive: true, Hidden: true}, ".dot .hid .hid/x.go a.go b.txt other other/f.txt sub sub/c.go sub/deep sub/deep/.e sub/deep/d.go"},
		"depth 1":          {vfs.ListOptions{Recursive: true, Depth: 1}, "a.go b.txt other sub"},
		"depth 2":          {vfs.ListOptions{Recursive: true, Depth: 2}, "a.go b.txt other other/f.txt sub sub/c.go sub/deep"},
		"glob, one level":  {vfs.ListOptions{Glob: "*.go"}, "a.go"},
		"glob":             {vfs.ListOptions{Recursive: true, Glob: "*.go"}, "a.go"},
		"glob two stars":   {vfs.ListOptions{Recursive: true, Glob: "**/*.go"}, "a.go sub/c.go sub/deep/d.go"},
		"glob in a dir":    {vfs.ListOptions{Recursive: true, Glob: "sub/*"}, "sub/c.go sub/deep"},
		"glob braces":      {vfs.ListOptions{Recursive: true, Glob: "{sub/deep,other}/*"}, "sub/deep/d.go other/f.txt"},
		"glob class":       {vfs.ListOptions{Recursive: true, Glob: "s[tu]b/**/d.go"}, "sub/deep/d.go"},
		"glob and depth":   {vfs.ListOptions{Recursive: true, Depth: 2, Glob: "**/*.go"}, "a.go sub/c.go"},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b *bed) {
				for _, f := range tree {
					b.put("top/"+f, f)
				}
				p := b.at("top").Path
				for _, limit := range []int{1, 2, 0} {
					c.o.Limit = limit
					b.same(fmt.Sprintf("limit %d", limit), rels(p, b.list(p, c.o)), strings.Fields(c.want))
				}
			})
		})
	}
}

// Each page leaves one record, with the number of entries, and has the entries'
// attributes; the last page has no cursor, even when it is full.
func TestListPages(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	for i := range 6 {
		b.put(fmt.Sprintf("d/%d", i), strings.Repeat("x", i))
	}
	o := vfs.ListOptions{Limit: 3}
	var pages []vfs.Page
	for {
		page, err := b.t.List(bg, who, b.at("d").Path, o)
		b.must(err)
		pages = append(pages, page)
		for _, e := range page.Entries {
			if want := fmt.Sprint(e.Info.Size); e.Name != want || e.Path.Rel() != "d/"+want || !e.Info.IsRegular() {
				t.Errorf("%q %v %+v", e.Name, e.Path, e.Info)
			}
		}
		if o.Cursor = page.Next; o.Cursor == "" {
			break
		}
	}
	if len(pages) != 2 {
		t.Errorf("%d pages", len(pages))
	}
	recs := b.rec.Of(names.OpOpendir)
	if len(recs) != 2 || recs[0].Read != 3 || recs[1].Read != 3 {
		t.Errorf("records: %+v", recs)
	}
}

// Links are listed as links, and special files are not listed. A listing does not enter the
// target of a link. Without rootsfs, the link "out" leads to a directory outside.
func TestListLinksAndSpecialFiles(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		outside := t.TempDir()
		b.must(os.WriteFile(filepath.Join(outside, "secret"), nil, 0o644))
		b.put("real/f", "")
		b.must(os.Symlink(outside, b.host("out")))
		b.must(os.Symlink("real", b.host("in")))
		b.must(unix.Mkfifo(b.host("fifo"), 0o644))
		list := b.list(b.at("").Path, vfs.ListOptions{Recursive: true})
		b.same("names", rels(b.at("").Path, list), []string{"real", "real/f", "out", "in"})
		for _, e := range list {
			if link := e.Name == "out" || e.Name == "in"; link != (e.Info.Type() == unix.S_IFLNK) {
				t.Errorf("%s has mode %o", e.Name, e.Info.Mode)
			}
		}
		if got, err := os.ReadDir(b.host("out")); err != nil || len(got) != 1 {
			t.Errorf("without the guard: %v, %v", got, err)
		}

		// A link at the listed path itself is followed if the options say so, but never out of
		// the root.
		in := b.at("in").Path
		b.wantKind(second(b.t.List(bg, who, in, vfs.ListOptions{})), names.Invalid)
		got := b.list(in, vfs.ListOptions{Follow: true, Limit: 1})
		if len(got) != 1 || got[0].Path.Rel() != "in/f" {
			t.Errorf("through the link: %v", got)
		}
		b.wantKind(second(b.t.List(bg, who, b.at("out").Path, vfs.ListOptions{Follow: true})), names.Escaped)
		b.wantKind(second(b.t.List(bg, who, b.at("real/f").Path, vfs.ListOptions{})), names.NotDir)
		b.wantKind(second(b.t.List(bg, who, b.at("nothing").Path, vfs.ListOptions{})), names.NotExist)
	})
}

// A nested root is listed, and is entered if the caller may list it. The entry of a nested root
// that is closed to the caller, or revoked, has no inode number.
func TestListNestedRoots(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.put("open/f", "")
	b.put("closed/f", "")
	b.put("gone/f", "")
	b.put("z/f", "")
	b.grant("open", "open", guard.Policy{Rights: guard.ReadOnly})
	b.grant("closed", "closed", guard.Policy{Rights: guard.Read})
	b.grant("gone", "gone", guard.Policy{})
	b.revoke("gone")
	p := b.at("").Path
	for _, limit := range []int{1, 2, 100} {
		for _, glob := range []string{"", "**"} {
			list := b.list(p, vfs.ListOptions{Recursive: true, Limit: limit, Glob: glob})
			b.same("nested", rels(p, list), []string{"open", "open/f", "closed", "gone", "z", "z/f"})
			for _, e := range list {
				if shut := e.Name == "closed" || e.Name == "gone"; shut != (e.Info.Ino == 0) {
					t.Errorf("%s: %+v", e.Path, e.Info)
				}
			}
		}
		b.same("below closed roots", rels(p, b.list(p, vfs.ListOptions{Recursive: true, Limit: limit, Glob: "*/f"})), []string{"open/f", "z/f"})
	}
	b.wantKind(second(b.t.List(bg, who, b.at("closed").Path, vfs.ListOptions{})), names.Permission)
	b.wantKind(second(b.t.List(bg, who, b.at("gone").Path, vfs.ListOptions{})), names.Revoked)
}

// These options and cursors are refused.
func TestListRefuses(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	for i := range 5 {
		b.put(fmt.Sprintf("d/%d/x", i), "")
	}
	p := b.at("d").Path
	first := vfs.ListOptions{Recursive: true, Limit: 3}
	page, err := b.t.List(bg, who, p, first)
	b.must(err)
	raw, err := base64.RawURLEncoding.DecodeString(page.Next)
	b.must(err)
	flip := func(i int) string {
		c := slices.Clone(raw)
		c[i] ^= 1
		return base64.RawURLEncoding.EncodeToString(c)
	}
	with := func(f func(o *vfs.ListOptions)) vfs.ListOptions {
		o := first
		o.Cursor = page.Next
		f(&o)
		return o
	}
	for name, o := range map[string]vfs.ListOptions{
		"negative limit":    {Limit: -1},
		"negative depth":    {Recursive: true, Depth: -1},
		"bad pattern":       {Glob: "[a"},
		"long pattern":      {Glob: strings.Repeat("a", 1025)},
		"exploding pattern": {Glob: strings.Repeat("{a,b}", 9)},
		"no base64":         with(func(o *vfs.ListOptions) { o.Cursor = "no cursor" }),
		"short":             with(func(o *vfs.ListOptions) { o.Cursor = "AAAA" }),
		"huge":              with(func(o *vfs.ListOptions) { o.Cursor = strings.Repeat("A", 1<<20) }),
		"cut":               with(func(o *vfs.ListOptions) { o.Cursor = page.Next[:len(page.Next)-4] }),
		"altered MAC":       with(func(o *vfs.ListOptions) { o.Cursor = flip(0) }),
		"altered text":      with(func(o *vfs.ListOptions) { o.Cursor = flip(len(raw) - 1) }),
		"other recursion":   with(func(o *vfs.ListOptions) { o.Recursive = false }),
		"other hidden":      with(func(o *vfs.ListOptions) { o.Hidden = true }),
		"other depth":       with(func(o *vfs.ListOptions) { o.Depth = 2 }),
		"other pattern":     with(func(o *vfs.ListOptions) { o.Glob = "*" }),
		"other following":   with(func(o *vfs.ListOptions) { o.Follow = true }),
	} {
		if _, err := b.t.List(bg, who, p, o); !errors.Is(err, names.Invalid) {
			t.Errorf("%s: %v", name, err)
		} else if o.Cursor != "" && !strings.Contains(err.Error(), "start again without a cursor") {
			t.Errorf("%s: %v does not say what to do", name, err)
		}
	}
	o := with(func(*vfs.ListOptions) {})
	b.wantKind(second(b.t.List(bg, who, b.at("").Path, o)), names.Invalid)
	b.wantKind(second(b.t.List(bg, guard.Caller{Subject: "other", Via: guard.ViaFiles}, p, o)), names.Invalid)
	o.Limit = 100
	if page, err := b.t.List(bg, who, p, o); err != nil || len(page.Entries) != 7 {
		t.Errorf("a longer page: %v, %v", page, err)
	}
	// A cursor is invalid after the end of the root's lifetime, even if the root is granted again.
	b.revoke("code")
	b.wantKind(second(b.t.List(bg, who, p, o)), names.Revoked)
	b.grant("code", "", guard.Policy{})
	b.wantKind(second(b.t.List(bg, who, p, o)), names.Invalid)
	b.revoke("code")
	b.grant("code", "", guard.Policy{Rights: guard.Read})
	b.wantKind(second(b.t.List(bg, who, p, vfs.ListOptions{})), names.Permission)
	ctx, cancel := context.WithCancel(bg)
	cancel()
	b.revoke("code")
	b.grant("code", "", guard.Policy{})
	many(b, "many", 200)
	b.wantErrno(second(b.t.List(ctx, who, b.at("many").Path, vfs.ListOptions{})), unix.EINTR)
}

// many makes n empty files.
func many(b *bed, dir string, n int) {
	b.Helper()
	b.must(os.MkdirAll(b.host(dir), 0o755))
	for i := range n {
		b.must(unix.Mknod(b.host(fmt.Sprintf("%s/%06d", dir, i)), unix.S_IFREG|0o644, 0))
	}
}

// An entry that exists during the whole listing is returned exactly once, whatever is added and
// removed between the pages. If a directory that the cursor names has vanished, it is skipped.
func TestListCursorIsStable(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	rnd := rand.New(rand.NewPCG(1, 2))
	stay := map[string]bool{}
	var changing []string // directories to remove during the listing
	for d := range 8 {
		dir := fmt.Sprintf("t/%d", d)
		stay[fmt.Sprint(d)] = true
		for range 60 {
			name := fmt.Sprintf("stay%d-%d", d, rnd.Uint32())
			b.put(dir+"/"+name, "")
			stay[fmt.Sprintf("%d/%s", d, name)] = true
		}
		for i := range 40 {
			b.put(fmt.Sprintf("%s/go%d/x", dir, i), "")
			changing = append(changing, fmt.Sprintf("%s/go%d", dir, i))
		}
	}
	p := b.at("t").Path
	o := vfs.ListOptions{Recursive: true, Limit: 7}
	seen := map[string]int{}
	for {
		page, err := b.t.List(bg, who, p, o)
		b.must(err)
		for _, rel := range rels(p, page.Entries) {
			seen[rel]++
		}
		if o.Cursor = page.Next; o.Cursor == "" {
			break
		}
		for range 3 {
			i := rnd.IntN(len(changing))
			if last := page.Entries[len(page.Entries)-1].Path; rnd.IntN(3) == 0 && strings.Contains(last.Rel(), "/go") {
				// the directory that the cursor is in
				dir := strings.TrimSuffix(last.Rel(), "/x")
				i = slices.Index(changing, dir)
			}
			if i >= 0 && rnd.IntN(2) == 0 {
				b.must(os.RemoveAll(b.host(changing[i])))
			} else {
				b.put(fmt.Sprintf("t/%d/new%d", rnd.IntN(8), rnd.Uint32()), "")
			}
		}
	}
	for rel := range stay {
		if seen[rel] != 1 {
			t.Errorf("%s came %d times", rel, seen[rel])
		}
	}
	if len(seen) == len(stay) {
		t.Error("only the entries in stay were listed")
	}
}

// deep makes a chain of n directories below dir, each called name, with a file
// in the last.
func deep(b *bed, dir, name string, n int) {
	b.Helper()
	b.must(os.MkdirAll(b.host(dir), 0o755))
	fd, err := unix.Open(b.host(dir), unix.O_PATH|unix.O_DIRECTORY, 0)
	b.must(err)
	for range n {
		b.must(unix.Mkdirat(fd, name, 0o755))
		next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY, 0)
		b.must(err)
		b.must(unix.Close(fd))
		fd = next
	}
	b.must(unix.Mknodat(fd, "leaf", unix.S_IFREG|0o644, 0))
	b.must(unix.Close(fd))
	b.Cleanup(func() { removeDeep(b, b.host(dir), name) })
}

// removeDeep removes a chain that deep made. os.RemoveAll alone would need a descriptor per level.
func removeDeep(b *bed, top, name string) {
	for {
		// The part of the chain below level 200 is moved aside while the part above it is
		// removed, as often as needed.
		path, below := top, 0
		for below < 200 {
			if _, err := os.Lstat(filepath.Join(path, name)); err != nil {
				break
			}
			path, below = filepath.Join(path, name), below+1
		}
		if below < 200 {
			b.must(os.RemoveAll(filepath.Join(top, name)))
			return
		}
		tail := filepath.Join(top, "tail")
		b.must(os.Rename(path, tail))
		b.must(os.RemoveAll(filepath.Join(top, name)))
		b.must(os.Rename(tail, filepath.Join(top, name)))
	}
}

// A tree of thousands of levels (10,000 in make soak), many beyond PATH_MAX, is listed in
// pages. No descriptor stays open afterwards.
func TestListDeepTree(t *testing.T) {
	levels := shortOrSoak(2_200, 10_000) // longer than PATH_MAX
	b := newBed(t, false, guard.Policy{})
	deep(b, "chain", "d", levels)
	before := openFDs(t)
	p := b.at("chain").Path
	o := vfs.ListOptions{Recursive: true, Limit: 1200}
	n, last := 0, ""
	for {
		page, err := b.t.List(bg, who, p, o)
		b.must(err)
		for _, e := range page.Entries {
			n++
			if want := len("chain") + 2*n; e.Name == "d" && len(e.Path.Rel()) != want {
				t.Fatalf("entry %d has a path of %d bytes", n, len(e.Path.Rel()))
			}
			last = e.Name
		}
		if o.Cursor = page.Next; o.Cursor == "" {
			break
		}
		if len(o.Cursor) > 120_000 {
			t.Fatalf("a cursor of %d bytes", len(o.Cursor))
		}
	}
	if n != levels+1 || last != "leaf" {
		t.Errorf("%d entries, the last is %q", n, last)
	}
	noLeak(t, before, 0)
}

// The memory a listing takes depends on the page, not on the directory.
func TestListMemory(t *testing.T) {
	const limit = 1000
	entries := shortOrSoak(5_000, 100_000)
	b := newBed(t, false, guard.Policy{})
	many(b, "d", entries)
	p := b.at("d").Path
	o := vfs.ListOptions{Limit: limit}
	n := 0
	var before, after runtime.MemStats
	for {
		runtime.ReadMemStats(&before)
		page, err := b.t.List(bg, who, p, o)
		b.must(err)
		runtime.ReadMemStats(&after)
		// An entry takes about 500 bytes: its attributes, path and name, the growing of the
		// page, and the names read in advance. The bound is five times that.
		if got := after.TotalAlloc - before.TotalAlloc; got > limit*2500 {
			t.Fatalf("a page of %d entries allocated %d bytes", len(page.Entries), got)
		}
		n += len(page.Entries)
		if o.Cursor = page.Next; o.Cursor == "" {
			break
		}
	}
	if n != entries {
		t.Errorf("%d entries", n)
	}
	// A listing whose pattern matches no entry keeps at most 4 MiB of memory.
	runtime.ReadMemStats(&before)
	b.same("no match", rels(p, b.list(p, vfs.ListOptions{Glob: "*.go"})), nil)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if after.HeapAlloc > before.HeapAlloc+4<<20 {
		t.Errorf("the heap grew from %d to %d", before.HeapAlloc, after.HeapAlloc)
	}
}
