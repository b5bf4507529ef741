package vfs_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

// A dry run of any operation by path has the same verdict as the operation itself, in trees
// with links, nested roots and repositories, with any rights and under any rules. R110.
func TestExplainRandom(t *testing.T) {
	const callsPerTree = 80
	trees := uint64(shortOrSoak(80, 200))
	ran := map[guard.Op]int{}
	refused := 0
	for n := range trees {
		rnd := rand.New(rand.NewPCG(n, 11))
		b := randomBed(t, rnd)
		for range callsPerTree {
			c := randomCall(rnd)
			req := guard.Request{Caller: peer, Op: c.op, Path: b.at(c.path).Path, Need: c.need, Names: c.names}
			if c.path2 != "" {
				req.Path2 = b.at(c.path2).Path
			}
			if !b.walk(&req, c.walk) {
				continue
			}
			dry := b.t.Explain(bg, req)
			err := c.run(b, req.Path, req.Path2)
			if text := disagreement(dry, err); text != "" {
				t.Errorf("tree %d: %v %v %v with %v (%v): %s", n, c.op, req.Path, req.Path2, c.need, err, text)
			}
			ran[c.op]++
			if !dry.Allowed {
				refused++
			}
		}
		b.must(second(b.reg.RevokeAll(bg)))
	}
	all := 0
	for _, n := range ran {
		all += n
	}
	if all < 50*int(trees) || refused < 10*int(trees) || len(ran) < 20 {
		t.Errorf("%d calls of %d operations, %d of them refused: too few to show anything", all, len(ran), refused)
	}
}

// randomBed returns a tree with random policies. The tree has links, a git repository, hidden
// names and other files that rules treat in different ways.
func randomBed(t *testing.T, rnd *rand.Rand) *bed {
	b := &bed{TB: t, rec: &guardtest.Recorder{}, src: t.TempDir()}
	guardtest.Tree(t, b.src, t.TempDir(), "a=x", "b.sql=x", ".env=x", "dir/a=x", "dir/.env=x", "dir/sub/b=x", "empty/", "p|",
		".git/HEAD=ref: refs/heads/main", ".git/objects/", ".git/refs/", ".git/hooks/x=x", ".git/config=x", "inner/a=x", "inner/.env=x",
		"out => $OUT", "in => dir", "in2 => in/sub/../a", "up => dir/../../x", "loop => loop", "env => .env", "none => nothing/x")
	b.reg = guard.NewRegistry(guard.Config{Opener: vfs.Opener(), Auditor: b.rec, Deadline: patience})
	b.t = vfs.New(b.reg)
	policy := func() guard.Policy {
		some := func() []rules.Pattern {
			if rnd.IntN(2) == 0 {
				return nil
			}
			return guard.Texts(anyOf(rnd, "*.sql", "/dir/", "b*", "!a", "sub", "/dir/.env", "**/hooks", "new*", "in"))
		}
		p := guard.Policy{Rights: guard.ReadWrite}
		if rnd.IntN(2) == 0 {
			p.Rights = 1 + guard.Rights(rnd.IntN(int(guard.ReadWrite)))
		}
		p.Patterns = guard.Patterns{Deny: some(), Hide: some(), Protect: some(), Allow: some(), NoDefaults: rnd.IntN(3) == 0}
		p.PosixFull = rnd.IntN(5) == 0
		if rnd.IntN(4) == 0 {
			p.Limits.MaxCreated = 5
		}
		return p
	}
	b.grant("code", "", policy())
	switch rnd.IntN(3) {
	case 0:
		b.grant("inner", "inner", policy())
	case 1:
		b.grant("file", "dir/a", policy())
	}
	return b
}

func anyOf[T any](rnd *rand.Rand, of ...T) T { return of[rnd.IntN(len(of))] }

// linkFollower says who follows the links of an operation's path.
type linkFollower uint8

const (
	opFollows         linkFollower = iota // the operation itself
	callerFollows                         // the caller before the operation, as the kernel does
	callerFollowsDirs                     // the caller, except a link at the end
)

// pathCall is one operation by path.
type pathCall struct {
	op          guard.Op
	walk        linkFollower
	path, path2 string
	need        guard.Rights
	names       int64
	run         func(b *bed, p, p2 guard.Path) error
}

// walk follows the links of the request's paths before the operation, as how says. It reports
// false if a path cannot be followed, or leads to the root although the operation needs a name.
func (b *bed) walk(req *guard.Request, how linkFollower) bool {
	if how == opFollows {
		return true
	}
	for _, p := range []*guard.Path{&req.Path, &req.Path2} {
		if p.Root == "" {
			continue
		}
		q, err := b.t.Follow(bg, peer, *p, how == callerFollows)
		if err != nil || how == callerFollowsDirs && q.IsRoot() {
			return false
		}
		*p = q
	}
	return true
}

func randomCall(rnd *rand.Rand) pathCall {
	place := func() string {
		return anyOf(rnd, "", "a", "b.sql", ".env", "new", "dir", "dir/a", "dir/.env", "dir/sub", "dir/sub/b", "dir/new", "empty", "p",
			".git", ".git/config", ".git/hooks", ".git/hooks/x", ".git/hooks/new", "inner", "inner/a", "inner/.env", "inner/new", "missing/.env",
			"out", "out/x", "in", "in/a", "in/.env", "in/new", "in2", "up", "loop", "env", "none", fmt.Sprint("new", rnd.IntN(9)))
	}
	c := anyOf(rnd, pathCalls...)
	c.path = place()
	for c.op == names.OpSetxattr && c.path == "p" {
		c.path = place() // the source takes no attribute there
	}
	if c.op == names.OpRename || c.op == names.OpLink {
		c.path2 = filepath.Join(filepath.Dir(place()), anyOf(rnd, "new", "a", ".env", fmt.Sprint("new", rnd.IntN(9))))
	}
	return c
}

// closeOpened closes the file or directory that an operation has opened.
func closeOpened(f interface{ Close() }, err error) error {
	if err == nil {
		f.Close()
	}
	return err
}

func openWith(flags int) func(b *bed, p, _ guard.Path) error {
	return func(b *bed, p, _ guard.Path) error {
		f, _, err := b.t.Open(bg, peer, vfs.At{Path: p}, flags)
		return closeOpened(f, err)
	}
}

func (b *bed) readPath(p guard.Path) error {
	_, _, err := b.t.ReadChunk(bg, peer, p, 0, 10, "", func(n int64) ([]byte, error) { return make([]byte, n), nil })
	return err
}

func inDir(p guard.Path) (vfs.At, string) {
	dir, name := p.Split()
	return vfs.At{Path: dir}, name
}

func (b *bed) setattr(p guard.Path, a vfs.Attrs) error {
	return second(b.t.Setattr(bg, peer, vfs.At{Path: p}, nil, a))
}

var pathCalls = []pathCall{
	{op: names.OpLookup, walk: callerFollowsDirs, run: func(b *bed, p, _ guard.Path) error {
		dir, name := inDir(p)
		return second(b.t.Lookup(bg, peer, dir, name))
	}},
	{op: names.OpGetattr, run: func(b *bed, p, _ guard.Path) error { _, _, err := b.t.Stat(bg, peer, p); return err }},
	{op: names.OpOpen, need: guard.Read, run: func(b *bed, p, _ guard.Path) error { return b.readPath(p) }},
	{op: names.OpOpen, walk: callerFollows, need: guard.Write, run: openWith(unix.O_WRONLY)},
	{op: names.OpOpen, walk: callerFollows, need: guard.Append, run: openWith(unix.O_WRONLY | unix.O_APPEND)},
	{op: names.OpReadlink, walk: callerFollowsDirs, run: func(b *bed, p, _ guard.Path) error {
		return second(b.t.Readlink(bg, peer, vfs.At{Path: p}, nil))
	}},
	{op: names.OpOpendir, walk: callerFollows, run: func(b *bed, p, _ guard.Path) error {
		d, err := b.t.Opendir(bg, peer, vfs.At{Path: p})
		return closeOpened(d, err)
	}},
	{op: names.OpOpendir, run: func(b *bed, p, _ guard.Path) error {
		return second(b.t.List(bg, peer, p, vfs.ListOptions{Follow: true}))
	}},
	{op: names.OpCreate, walk: callerFollowsDirs, run: func(b *bed, p, _ guard.Path) error {
		dir, name := inDir(p)
		f, _, _, err := b.t.Create(bg, peer, dir, name, unix.O_RDWR|unix.O_EXCL, 0o644)
		return closeOpened(f, err)
	}},
	{op: names.OpTmpfile, walk: callerFollows, run: func(b *bed, p, _ guard.Path) error {
		f, _, err := b.t.Tmpfile(bg, peer, vfs.At{Path: p}, unix.O_RDWR, 0o644)
		return closeOpened(f, err)
	}},
	{op: names.OpMkdir, run: func(b *bed, p, _ guard.Path) error { return second(b.t.MkdirPath(bg, peer, p, 0o755)) }},
	{op: names.OpMknod, walk: callerFollowsDirs, run: func(b *bed, p, _ guard.Path) error {
		dir, name := inDir(p)
		return second(b.t.Mknod(bg, peer, dir, name, unix.S_IFREG|0o644, 0))
	}},
	{op: names.OpSymlink, walk: callerFollowsDirs, run: func(b *bed, p, _ guard.Path) error {
		dir, name := inDir(p)
		return second(b.t.Symlink(bg, peer, "a", dir, name))
	}},
	{op: names.OpLink, walk: callerFollowsDirs, run: func(b *bed, p, old guard.Path) error {
		dir, name := inDir(p)
		return second(b.t.Link(bg, peer, vfs.At{Path: old}, nil, dir, name))
	}},
	{op: names.OpUnlink, run: func(b *bed, p, _ guard.Path) error { return b.t.RemovePath(bg, peer, p, vfs.RemoveOptions{}) }},
	{op: names.OpRmdir, walk: callerFollowsDirs, run: func(b *bed, p, _ guard.Path) error {
		dir, name := inDir(p)
		return b.t.Rmdir(bg, peer, dir, name)
	}},
	{op: names.OpRename, run: func(b *bed, p, to guard.Path) error { return b.t.RenamePath(bg, peer, p, to, true, "") }},
	{op: names.OpSetattr, walk: callerFollows, run: func(b *bed, p, _ guard.Path) error { return b.setattr(p, vfs.Attrs{MtimeNow: true}) }},
	{op: names.OpTruncate, walk: callerFollows, run: func(b *bed, p, _ guard.Path) error { return b.setattr(p, vfs.Attrs{Size: new(int64)}) }},
	{op: names.OpListxattr, walk: callerFollows, run: func(b *bed, p, _ guard.Path) error {
		return second(b.t.Listxattr(bg, peer, vfs.At{Path: p}, nil))
	}},
	{op: names.OpSetxattr, walk: callerFollows, run: func(b *bed, p, _ guard.Path) error {
		return b.t.Setxattr(bg, peer, vfs.At{Path: p}, nil, "user.x", []byte("v"), 0)
	}},
	{op: names.OpReplace, names: 1, run: func(b *bed, p, _ guard.Path) error {
		return second(b.t.Replace(bg, peer, vfs.At{Path: p}, bytes.NewReader(nil), vfs.IfMatch{Follow: true, Mode: 0o644, NoDurable: true}))
	}},
	{op: names.OpWrite, need: guard.Append, names: 1, run: func(b *bed, p, _ guard.Path) error {
		_, _, err := b.t.WriteRange(bg, peer, p, nil, vfs.WriteOptions{Create: true, Append: true, Mode: 0o644})
		return err
	}},
}

// A dry run makes and changes no file, keeps no descriptor and leaves no record, also on a source
// that can hang.
func TestExplainKeepsNothing(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("dir/a", "text")
		b.must(os.Symlink("dir", b.host("in")))
		var before unix.Stat_t
		b.must(unix.Stat(b.host("dir/a"), &before))
		fds, records := openFDs(t), len(b.rec.All())
		for op := range names.Ops {
			for _, rel := range []string{"dir/a", "in/a", "dir", "in", "new", "dir/new"} {
				b.t.Explain(bg, guard.Request{Caller: peer, Op: guard.Op(op), Path: b.at(rel).Path, Need: guard.Write})
			}
		}
		var after unix.Stat_t
		b.must(unix.Stat(b.host("dir/a"), &after))
		if before != after {
			t.Errorf("the file has changed: %+v, before %+v", after, before)
		}
		if n := openFDs(t); n > fds {
			t.Errorf("%d descriptors, %d before", n, fds)
		}
		if n := len(b.rec.All()); n != records {
			t.Errorf("%d records, %d before", n, records)
		}
		if _, err := os.Lstat(b.host("new")); err == nil {
			t.Error("a dry run has made a file")
		}
		b.revoke("code") // waits until no operation is in the root
	})
}
