package guardtest

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// changes returns calls that change something, at least one of each kind. The root needs the
// file a and the empty directory called empty.
func changes() []Call {
	return []Call{
		write("code/a", "x"), write("code/new", "x"), appendTo("code/a", "x"), mkdir("code/newdir"),
		remove("code/a"), remove("code/empty"), rename("code/a", "code/a2"), link("code/a", "code/a3"),
		symlink("a", "code/l"), chmod("code/a", 0o600), truncate("code/a", 0), setxattr("code/a", "user.x"),
	}
}

// readOnlyCases: R050, R069: in a read-only root, each call that changes something fails with EROFS.
func readOnlyCases() []Case {
	tree := []string{"a=hello", "sub/b=x", "empty/"}
	ro := guard.Policy{Rights: guard.ReadOnly}
	all := []Case{
		{Name: "ro/read", Tree: tree, Policy: ro, Call: read("code/sub/b", "x")},
		{Name: "ro/list", Tree: tree, Policy: ro, Call: list("code", "a", "empty", "sub")},
		{Name: "ro/stat", Tree: tree, Policy: ro, Call: stat("code/a")},
	}
	for _, c := range changes() {
		all = append(all, Case{Name: "ro/" + c.Text, Req: "R050", Tree: tree, Policy: ro, Call: c, Want: names.ReadOnly, Unguarded: true,
			Check: func(e *Env) {
				e.Contents(e.Src+"/a", "hello")
				onlyThese(e, e.Src, "a", "empty", "sub")
			}})
	}
	return all
}

// appendOnlyCases: a root with the rights Create and Append, as for a program that writes logs.
// Reading, listing, overwriting, truncating, removing, renaming and setting extended attributes are
// refused.
func appendOnlyCases() []Case {
	tree := []string{"a=hello", "sub/b=x", "empty/"}
	p := guard.Policy{Rights: guard.Create | guard.Append}
	all := []Case{
		{Name: "append-only/append", Tree: tree, Policy: p, Call: appendTo("code/a", "!"),
			Check: func(e *Env) { e.Contents(e.Src+"/a", "hello!") }},
		{Name: "append-only/new", Tree: tree, Policy: p, Call: appendTo("code/log", "line"),
			Check: func(e *Env) { e.Contents(e.Src+"/log", "line") }},
	}
	for _, c := range []Call{write("code/a", "x"), truncate("code/a", 0), truncate("code/a", 100), remove("code/a"),
		rename("code/a", "code/b"), rename("code/a", "code/sub/b"), read("code/a", whatever), list("code"), setxattr("code/a", "user.x")} {
		all = append(all, Case{Name: "append-only/" + c.Text, Tree: tree, Policy: p, Call: c, Want: names.Permission, Unguarded: true,
			Check: func(e *Env) { e.Contents(e.Src+"/a", "hello") }})
	}
	// Two of the calls are truncations with the same text, but the names of cases must differ.
	all[4].Name += " (longer)"
	return all
}

// endedCases: R067, R070, R111: calls for a root that nobody approved, for a root that was revoked
// or has expired, and for a root whose directory was moved or replaced.
func endedCases() []Case {
	tree := []string{"a=hello", "sub/b=x", "empty/"}
	var all []Case
	for _, c := range append(changes(), read("code/a", whatever), list("code"), stat("code/a")) {
		all = append(all, Case{Name: "ended/revoked " + c.Text, Req: "R070", Tree: tree, Call: c, Want: names.Revoked, Gone: true,
			Unguarded: true, Disturb: func(e *Env) { e.Revoke("code") }})
	}
	unavailable := func(name string, do func(e *Env)) Case {
		return Case{Name: "ended/" + name, Req: "R111", Tree: tree, Call: read("code/a", whatever), Want: names.Unavailable,
			Disturb: func(e *Env) { do(e); e.Recheck("code") }}
	}
	return append(all,
		Case{Name: "ended/nobody-approved", Req: "R067", Call: read("other/a", whatever), Want: names.NoConsent, Gone: true},
		Case{Name: "ended/expired", Req: "R070", Tree: tree, Overlaps: true, Disturb: func(e *Env) { expire(e, "soon", e.Src+"/sub") },
			Call: read("soon/b", whatever), Want: names.Revoked, Gone: true},
		unavailable("root-moved", func(e *Env) { e.Must(os.Rename(e.Src, e.Src+".moved")) }),
		unavailable("root-replaced", func(e *Env) {
			e.Must(os.Rename(e.Src, e.Src+".moved"))
			e.Must(os.Mkdir(e.Src, 0o755))
			e.Must(os.WriteFile(e.Src+"/a", []byte("another"), 0o644))
		}),
		unavailable("root-removed-and-made-again", func(e *Env) {
			e.Must(os.RemoveAll(e.Src))
			e.Must(os.Mkdir(e.Src, 0o755))
			e.Must(os.WriteFile(e.Src+"/a", []byte("another"), 0o644))
		}),
		unavailable("root-is-a-link-now", func(e *Env) {
			e.Must(os.Rename(e.Src, e.Src+".moved"))
			e.Must(os.Symlink(e.Out, e.Src))
			e.Must(os.WriteFile(e.Out+"/a", []byte("outside"), 0o644))
		}),
		Case{Name: "ended/same-root-after-a-detour", Tree: tree, Call: read("code/a", "hello"), Disturb: func(e *Env) {
			e.Must(os.Rename(e.Src, e.Src+".moved"))
			e.Must(os.Rename(e.Src+".moved", e.Src))
			e.Recheck("code")
		}},
	)
}

// expire grants a root that expires after a moment, and waits until the root has ended.
func expire(e *Env, root, dir string) {
	e.Helper()
	name := e.RootName(root)
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		_, err := e.Reg.Grant(context.Background(), guard.Grant{Root: name, Dir: names.Foreign(dir), Origin: "test",
			Policy: guard.Policy{Rights: guard.ReadWrite}, Expires: time.Now().Add(wait)})
		if err == nil {
			break
		}
		if wait > time.Minute { // even a slow machine grants a root within a minute
			e.Fatal(err)
		}
	}
	for {
		if _, ok := e.Reg.Lookup(name); !ok {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// fileRootCases: R005, R030: a root that is one file.
func fileRootCases() []Case {
	c := func(name string, call Call, want guard.Kind) Case {
		return Case{Name: "file-root/" + name, Req: "R030", Tree: []string{"config.json={}", "other=secret", "sub/x="}, File: "config.json", Call: call, Want: want}
	}
	replaced := c("replaced-by-rename", read("code", "new"), 0)
	replaced.Disturb = func(e *Env) {
		e.Must(os.WriteFile(e.Src+"/tmp", []byte("new"), 0o644))
		e.Must(os.Rename(e.Src+"/tmp", e.Src+"/config.json"))
		e.Recheck("code")
	}
	written := c("write", write("code", "new"), 0)
	written.Check = func(e *Env) { e.Contents(e.Src+"/config.json", "new"); e.Contents(e.Src+"/other", "secret") }
	linked := c("became-a-link", read("code", whatever), names.Escaped)
	linked.Disturb = func(e *Env) {
		e.Must(os.Remove(e.Src + "/config.json"))
		e.Must(os.Symlink(e.Src+"/other", e.Src+"/config.json"))
	}
	linked.Unguarded, linked.Replaced, replaced.Replaced = true, true, true
	revoked := c("revoked", read("code", whatever), names.Revoked)
	revoked.Disturb, revoked.Gone, revoked.Unguarded = func(e *Env) { e.Revoke("code") }, true, true
	return []Case{
		c("read", read("code", "{}"), 0), c("stat", stat("code"), 0), written, replaced, linked, revoked,
		c("append", appendTo("code", "x"), 0), c("truncate", truncate("code", 0), 0),
		c("sibling", read("code/other", whatever), names.NotDir), c("below", mkdir("code/x"), names.NotDir),
	}
}

// nestedCases: operations on a root inside another root. Through the outer root, both grants have
// to permit an operation. After the inner root was revoked, its directory stays closed in the
// outer root (tombstone). Moving and linking files from one root to the other is refused.
func nestedCases() []Case {
	tree := []string{"a=outer", "sub/f=inner", "empty/", "front/f=ok", "front/l => ../front-evil/f", "front-evil/f=evil"}
	nested := func(name string, more map[string]string, call Call, want guard.Kind, errno unix.Errno) Case {
		return Case{Name: "nested/" + name, Tree: tree, More: more, Call: call, Want: want, Errno: errno}
	}
	succeedsUnguarded := func(c Case) Case { c.Unguarded = true; return c }
	in, ro := map[string]string{"in": "sub"}, map[string]string{"ro": "sub"}
	then := func(c Case, f func(e *Env)) Case { c.Disturb = f; return c }
	revokeIn := func(e *Env) { e.Revoke("in") }
	return []Case{
		nested("through-outer", in, read("code/sub/f", "inner"), 0, 0),
		nested("through-inner", in, read("in/f", "inner"), 0, 0),
		succeedsUnguarded(nested("inner-is-stricter", ro, write("code/sub/f", "x"), names.ReadOnly, 0)),
		succeedsUnguarded(nested("inner-is-stricter-create", ro, mkdir("code/sub/d"), names.ReadOnly, 0)),
		succeedsUnguarded(nested("inner-is-stricter-remove", ro, remove("code/sub/f"), names.ReadOnly, 0)),
		nested("outer-is-not-affected", ro, write("code/a", "x"), 0, 0),
		succeedsUnguarded(then(nested("tombstone-read", in, read("code/sub/f", whatever), names.Revoked, 0), revokeIn)),
		succeedsUnguarded(then(nested("tombstone-list", in, list("code/sub"), names.Revoked, 0), revokeIn)),
		succeedsUnguarded(then(nested("tombstone-create", in, write("code/sub/new", "x"), names.Revoked, 0), revokeIn)),
		then(nested("tombstone-outer-lives", in, read("code/a", "outer"), 0, 0), revokeIn),
		succeedsUnguarded(then(nested("tombstone-moved-by-the-host", in, read("code/moved/f", whatever), names.Revoked, 0), func(e *Env) {
			e.Revoke("in")
			e.Must(os.Rename(e.Src+"/sub", e.Src+"/moved"))
		})),
		succeedsUnguarded(then(nested("inner-moved-by-the-host", ro, write("code/moved/f", "x"), names.ReadOnly, 0), func(e *Env) {
			e.Must(os.Rename(e.Src+"/sub", e.Src+"/moved"))
		})),
		then(nested("granted-again", in, read("code/sub/f", "inner"), 0, 0), func(e *Env) {
			e.Revoke("in")
			_, err := e.Reg.Grant(context.Background(), guard.Grant{Root: e.RootName("in"), Dir: names.Foreign(filepath.Join(e.Src, "sub")),
				Policy: guard.Policy{Rights: guard.ReadWrite}, Origin: "test"})
			e.Must(err)
		}),
		then(nested("outer-revoked", in, read("in/f", "inner"), 0, 0), func(e *Env) { e.Revoke("code") }),
		succeedsUnguarded(nested("rename-into", in, rename("code/a", "code/sub/a"), names.Invalid, unix.EXDEV)),
		succeedsUnguarded(nested("rename-out-of", in, rename("code/sub/f", "code/f"), names.Invalid, unix.EXDEV)),
		succeedsUnguarded(nested("link-into", in, link("code/a", "code/sub/a"), names.Invalid, unix.EXDEV)),
		succeedsUnguarded(nested("link-out-of", in, link("code/sub/f", "code/f"), names.Invalid, unix.EXDEV)),
		succeedsUnguarded(nested("rmdir", map[string]string{"in": "empty"}, remove("code/empty"), names.IO, unix.EBUSY)),
		succeedsUnguarded(nested("move", in, rename("code/sub", "code/sub2"), names.IO, unix.EBUSY)),
		succeedsUnguarded(nested("sibling-prefix", map[string]string{"p": "front"}, read("p/l", whatever), names.Escaped, 0)),
	}
}

// mountCases: another file system mounted inside a root is outside of the root, unless the policy
// has OtherFileSystems.
func mountCases() []Case {
	prepare := func(e *Env) {
		e.Must(unix.Mount("none", e.Src+"/mnt", "tmpfs", 0, "size=64k"))
		e.Cleanup(func() { _ = unix.Unmount(e.Src+"/mnt", unix.MNT_DETACH) })
		e.Must(os.WriteFile(e.Src+"/mnt/f", []byte("mounted"), 0o644))
	}
	c := func(name string, call Call, others bool) Case {
		k := Case{Name: "mount/" + name, Root: true, Tree: []string{"mnt/", "a="}, Prepare: prepare, Call: call,
			Policy: guard.Policy{Rights: guard.ReadWrite, OtherFileSystems: others}}
		if !others {
			k.Want, k.Unguarded = names.Escaped, true
		}
		return k
	}
	return []Case{
		c("read", read("code/mnt/f", whatever), false), c("list", list("code/mnt"), false),
		c("create", write("code/mnt/new", "x"), false), c("remove", remove("code/mnt/f"), false),
		c("read-allowed", read("code/mnt/f", "mounted"), true), c("list-allowed", list("code/mnt", "f"), true),
	}
}
