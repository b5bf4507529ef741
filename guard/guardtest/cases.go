package guardtest

import (
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// allCases returns the suite's rows, without those of the rights matrix.
func allCases() []Case {
	all := slices.Concat(plainCases(), replacedCases(), nameCases(), parsedCases(), escapeCases(), linkCases(),
		specialCases(), readOnlyCases(), appendOnlyCases(), endedCases(), fileRootCases(), nestedCases(), mountCases(), policyCases(), limitCases())
	seen := map[string]bool{}
	for _, c := range all {
		if seen[c.Name] {
			panic("guardtest: two cases are named " + c.Name) // a mistake in one of the tables
		}
		seen[c.Name] = true
	}
	return all
}

// plainCases are operations that no rule refuses. They succeed, or fail with the error of the plain
// file system: a guard that refuses everything is useless.
func plainCases() []Case {
	tree := []string{"a=hello", "sub/b=there", "empty/"}
	ok := func(name string, c Call, check func(e *Env), steps ...Call) Case {
		return Case{Name: "plain/" + name, Tree: tree, Call: c, Check: check, Steps: steps}
	}
	return []Case{
		ok("read", read("code/a", "hello"), nil),
		ok("read-below", read("code/sub/b", "there"), nil),
		ok("list-root", list("code", "a", "empty", "sub"), nil),
		ok("list-empty", list("code/empty", []string{}...), nil),
		ok("write", write("code/a", "new"), func(e *Env) { e.Contents(e.Src+"/a", "new") }),
		ok("create", write("code/sub/c", "new"), func(e *Env) { e.Contents(e.Src+"/sub/c", "new") }),
		ok("append", appendTo("code/a", "!"), func(e *Env) { e.Contents(e.Src+"/a", "hello!") }),
		ok("mkdir", stat("code/x/y"), nil, mkdir("code/x"), mkdir("code/x/y")),
		ok("remove", list("code", "empty", "sub"), nil, remove("code/a")),
		ok("rmdir", list("code", "a", "sub"), nil, remove("code/empty")),
		ok("rename", read("code/sub/a2", "hello"), nil, rename("code/a", "code/sub/a2")),
		ok("link", read("code/sub/a2", "hello"), nil, link("code/a", "code/sub/a2")),
		ok("symlink", read("code/l", "there"), nil, symlink("sub/b", "code/l")),
		ok("truncate", read("code/a", "he"), nil, truncate("code/a", 2)),
		ok("chmod", mode("code/a", 0o600), nil, chmod("code/a", 0o600)),
		ok("xattr", getxattr("code/a", "user.x"), nil, setxattr("code/a", "user.x")),
		{Name: "plain/absent", Tree: tree, Call: read("code/nothing", whatever), Want: names.NotExist},
		{Name: "plain/below-a-file", Tree: tree, Call: read("code/a/b", whatever), Want: names.NotDir},
		{Name: "plain/mkdir-exists", Tree: tree, Call: mkdir("code/sub"), Want: names.Exist},
		{Name: "plain/rmdir-full", Tree: tree, Call: remove("code/sub"), Want: names.NotEmpty},
		{Name: "plain/write-directory", Tree: tree, Call: write("code/sub", "x"), Want: names.IsDir},
	}
}

// replacedCases: when the host has replaced a file that the front end knows, a call by name gets
// the new file.
func replacedCases() []Case {
	c := func(name string, call Call, check func(e *Env)) Case {
		call = call.needing(func(k Can) bool { return !k.LearnsLater })
		return Case{Name: "replaced/" + name, Tree: []string{"a=old"}, Call: call, Check: check, Disturb: func(e *Env) {
			e.Must(errorOf(e.Front.ReadFile("code/a")))
			e.Must(os.WriteFile(e.Src+"/tmp", []byte("new"), 0o644))
			e.Must(os.Rename(e.Src+"/tmp", e.Src+"/a"))
		}}
	}
	return []Case{
		c("read", read("code/a", "new"), nil),
		c("append", appendTo("code/a", "+"), func(e *Env) { e.Contents(e.Src+"/a", "new+") }),
		c("write", write("code/a", "text"), func(e *Env) { e.Contents(e.Src+"/a", "text") }),
		c("truncate", truncate("code/a", 1), func(e *Env) { e.Contents(e.Src+"/a", "n") }),
	}
}

// errorOf returns the error of a function that also returns something else.
func errorOf[T any](_ T, err error) error { return err }

// nameCases: R130, and names that are hard on parsers. No system call takes the
// long paths of the path-max cases, so Bare shortens them.
func nameCases() []Case {
	long, tooLong := strings.Repeat("n", 255), strings.Repeat("n", 256)
	deep := strings.Repeat(strings.Repeat("d", 200)+"/", 30) + "leaf"
	return []Case{
		{Name: "names/255-bytes", Steps: []Call{write("code/"+long, "x")}, Call: read("code/"+long, "x")},
		{Name: "names/256-bytes", Call: write("code/"+tooLong, "x"), Want: names.TooLong},
		{Name: "names/256-bytes-mkdir", Call: mkdir("code/" + tooLong), Want: names.TooLong},
		{Name: "names/path-max-read", Prepare: func(e *Env) { Deep(e, e.Src, strings.Repeat("d", 200), 30, "deep") },
			Call: read("code/"+deep, "deep")},
		{Name: "names/path-max-write", Prepare: func(e *Env) { Deep(e, e.Src, strings.Repeat("d", 200), 30, "deep") },
			Steps: []Call{write("code/"+deep+"2", "new")}, Call: read("code/"+deep+"2", "new")},
		{Name: "names/nul", Req: "R130", Tree: []string{"a="}, Call: read("code/a\x00b", whatever), Want: names.Invalid},
		{Name: "names/not-utf8", Raw: true, Steps: []Call{write("code/\xff\xfe", "x")}, Call: read("code/\xff\xfe", "x")},
		{Name: "names/newline", Steps: []Call{write("code/a\nb", "x")}, Call: list("code", "a\nb")},
		{Name: "names/three-dots", Tree: []string{".../x=dots"}, Call: read("code/.../x", "dots")},
		{Name: "names/case-differs", Tree: []string{"a="}, Call: stat("code/A"), Want: names.NotExist},
	}
}

// parsedCases: R064, R066, R188 for front ends that parse paths themselves.
func parsedCases() []Case {
	tree, out := []string{"a=hello", "sub/b=x", "front/f=ok", "front-evil/f=evil"}, []string{"secret=s"}
	refused := func(name string, c Call, unguarded bool) Case {
		return Case{Name: "parsed/" + name, Parsed: true, Tree: tree, Outside: out, Call: c, Want: names.Invalid, Unguarded: unguarded}
	}
	fine := func(name string, c Call) Case {
		return Case{Name: "parsed/" + name, Parsed: true, Tree: tree, Call: c}
	}
	sibling := refused("sibling-prefix", read("p/../front-evil/f", whatever), true)
	sibling.Req, sibling.More = "R158", map[string]string{"p": "front"}
	return []Case{
		refused("climb", read("code/../002/secret", whatever), true),
		refused("climb-write", write("code/../002/new", "x"), true),
		refused("climb-from-below", read("code/sub/../../002/secret", whatever), true),
		refused("climb-and-return", read("code/sub/../a", whatever), true),
		refused("climb-mkdir", mkdir("code/../002/dir"), true),
		refused("climb-remove", remove("code/../002/secret"), true),
		refused("climb-rename-to", rename("code/a", "code/../002/stolen"), true),
		refused("climb-list", list("code/.."), true),
		refused("climb-to-passwd", read("code/../../../../../../etc/passwd", whatever), true),
		refused("only-dots", list(".."), false),
		refused("empty", read("", whatever), false),
		sibling,
		fine("dot", read("code/./a", "hello")),
		fine("doubled-slash", read("code//sub///b", "x")),
		fine("trailing-slash", list("code/sub/", "b")),
	}
}

// escapeCases: R063, R064, R175, R189: operations through links that
// lead out of the root.
func escapeCases() []Case {
	var all []Case
	kinds := []struct{ name, link, target string }{
		{"absolute", "d => $OUT", "$OUT/secret"},
		{"climbing", "d => ../002", "../002/secret"},
		{"chained", "d => e", ""},
		{"magic-root", "d => /proc/self/root$OUT", "/proc/self/root$OUT/secret"},
	}
	for _, k := range kinds {
		tree := []string{"a=mine", k.link, "e => $OUT", "sub/x="}
		if k.target != "" {
			tree = append(tree, "l => "+k.target)
		} else {
			tree = append(tree, "l => m", "m => $OUT/secret")
		}
		add := func(op string, c Call, check func(e *Env)) {
			all = append(all, Case{Name: "escape/" + k.name + "/" + op, Req: "R064", Tree: tree, Outside: []string{"secret=s", "dir/"},
				Call: c, Want: names.Escaped, Unguarded: true, Check: func(e *Env) {
					e.Contents(e.Out+"/secret", "s")
					onlyThese(e, e.Out, "dir", "secret")
					if check != nil {
						check(e)
					}
				}})
		}
		add("read", read("code/l", whatever), nil)
		add("read-below", read("code/d/secret", whatever), nil)
		add("write", write("code/l", "x"), nil)
		add("append", appendTo("code/l", "x"), nil)
		add("truncate", truncate("code/l", 0), nil)
		add("chmod", chmod("code/l", 0o600), nil)
		add("create", write("code/d/new", "x"), nil)
		add("mkdir", mkdir("code/d/new"), nil)
		add("list", list("code/d"), nil)
		add("stat", stat("code/d/secret"), nil)
		add("remove", remove("code/d/secret"), nil)
		add("rmdir", remove("code/d/dir"), nil)
		add("rename-out", rename("code/a", "code/d/stolen"), func(e *Env) { e.Contents(e.Src+"/a", "mine") })
		add("rename-in", rename("code/d/secret", "code/taken"), nil)
		add("link-in", link("code/d/secret", "code/taken"), nil)
		add("link-out", link("code/a", "code/d/stolen"), nil)
		add("symlink-out", symlink("x", "code/d/new"), nil)
		if k.name != "chained" {
			add("readlink", readlink("code/l", whatever), nil)
		}
	}
	return all
}

// onlyThese checks that a directory of the host has exactly these names in it.
func onlyThese(e *Env, dir string, want ...string) {
	e.Helper()
	entries, err := os.ReadDir(dir)
	e.Must(err)
	var got []string
	for _, x := range entries {
		got = append(got, x.Name())
	}
	if !slices.Equal(got, want) {
		e.Errorf("the directory of the host holds %q, want %q", got, want)
	}
}

// linkCases: links that stay inside the root, links that lead out of the root, loops of links,
// and operations on a link itself.
func linkCases() []Case {
	chain := []string{"a=end", "l0 => a"}
	for i := range 20 {
		chain = append(chain, "l"+itoa(i+1)+" => l"+itoa(i))
	}
	return []Case{
		{Name: "links/inside", Tree: []string{"a=hello", "l => a"}, Call: read("code/l", "hello")},
		{Name: "links/inside-target", Tree: []string{"a=hello", "l => a"}, Call: readlink("code/l", "a")},
		{Name: "links/directory", Tree: []string{"sub/b=x", "d => sub"}, Call: read("code/d/b", "x")},
		{Name: "links/climb-inside", Tree: []string{"a=hello", "sub/l => ../a"}, Call: read("code/sub/l", "hello")},
		{Name: "links/dotfile-inside", Tree: []string{".ssh/key=k", "pub => .ssh"}, Policy: patterns(guard.Patterns{NoDefaults: true}), Call: read("code/pub/key", "k")},
		{Name: "links/chain", Tree: chain, Call: read("code/l20", "end")},
		{Name: "links/write-through", Tree: []string{"a=", "l => a"}, Call: write("code/l", "x"),
			Check: func(e *Env) { e.Contents(e.Src+"/a", "x") }},
		{Name: "links/dangling", Tree: []string{"l => nothing"}, Call: read("code/l", whatever), Want: names.NotExist},
		{Name: "links/dangling-outside", Tree: []string{"l => $OUT/new"}, Call: write("code/l", "x"), Want: names.Escaped,
			Unguarded: true, Check: func(e *Env) { onlyThese(e, e.Out) }},
		{Name: "links/loop", Tree: []string{"l => m", "m => l"}, Call: read("code/l", whatever), Errno: unix.ELOOP},
		{Name: "links/loop-mid-path", Tree: []string{"l => l"}, Call: read("code/l/x", whatever), Errno: unix.ELOOP},
		{Name: "links/to-own-root-absolutely", Tree: []string{"a=hello", "l => $ROOT/a"}, Call: read("code/l", whatever),
			Want: names.Escaped, Unguarded: true},
		{Name: "links/climb-behind-a-link", Tree: []string{"sub/deep/", "x => sub/deep", "l => x/../../../002/secret"},
			Outside: []string{"secret=s"}, Call: read("code/l", whatever), Want: names.Escaped, Unguarded: true},
		{Name: "links/climb-behind-a-link-inside", Tree: []string{"d/e/", "d/x=hello", "l => d/e", "good => l/../x"}, Call: read("code/good", "hello")},
		{Name: "links/climb-twice-behind-a-link-inside", Tree: []string{"d/e/f/", "d/x=hello", "l => d/e/f", "good => l/../../x"}, Call: read("code/good", "hello")},
		{Name: "links/climb-behind-links-of-links", Tree: []string{"d/e/", "d/x=hello", "m => d/e", "l => m", "good => l/../x"}, Call: readlink("code/good", "l/../x")},
		{Name: "links/climb-behind-itself", Tree: []string{"z => z/../z"}, Call: readlink("code/z", "z/../z")},
		{Name: "links/climb-behind-a-loop", Tree: []string{"z => z", "l => z/../../002/secret"}, Outside: []string{"secret=s"},
			Call: readlink("code/l", whatever), Want: names.Escaped},
		{Name: "links/climb-behind-nothing", Tree: []string{"l => none/../../002/secret"}, Outside: []string{"secret=s"},
			Call: readlink("code/l", whatever), Want: names.Escaped},
		{Name: "links/hard-linked", Tree: []string{"p/tool=hello", "p/bin/t => ../tool", "q/bin/t -> p/bin/t", "q/tool=x"},
			Steps: []Call{read("code/q/bin/t", "x")}, Call: read("code/p/bin/t", "hello")},
		{Name: "links/hard-linked-target", Tree: []string{"p/tool=hello", "p/bin/t => ../tool", "q/bin/t -> p/bin/t"}, Call: readlink("code/q/bin/t", "../tool")},
		{Name: "links/hard-linked-less-deep", Tree: []string{"sub/dir/l => ../../002/secret", "l -> sub/dir/l"}, Outside: []string{"secret=s"},
			Call: readlink("code/l", whatever), Want: names.Escaped},
		{Name: "links/absolute-full-posix", Tree: []string{"l => $OUT/secret"}, Outside: []string{"secret=s"},
			Policy: guard.Policy{Rights: guard.ReadWrite, PosixFull: true}, Call: read("code/l", whatever), Want: names.Escaped, Unguarded: true},
		{Name: "links/magic-fd", Tree: []string{"a=", "l => /proc/self/fd/0"}, Call: read("code/l", whatever), Want: names.Escaped},
		{Name: "links/magic-cwd", Tree: []string{"l => /proc/self/cwd"}, Call: list("code/l"), Want: names.Escaped, Unguarded: true},
		{Name: "links/stat-itself", Tree: []string{"l => $OUT"}, Call: stat("code/l")},
		{Name: "links/remove-itself", Tree: []string{"l => $OUT/secret"}, Outside: []string{"secret=s"}, Call: remove("code/l"),
			Check: func(e *Env) { e.Contents(e.Out+"/secret", "s") }},
		{Name: "links/rename-itself", Tree: []string{"l => $OUT/secret"}, Outside: []string{"secret=s"}, Call: rename("code/l", "code/m"),
			Check: func(e *Env) { e.Contents(e.Out+"/secret", "s") }},
		{Name: "links/made-then-followed", Outside: []string{"secret=s"}, Steps: []Call{symlink("../002/secret", "code/l")},
			Call: read("code/l", whatever), Want: names.Escaped, Unguarded: true},
		// A hard link to an outside file is a file in the root. This is documented, and not refused.
		{Name: "links/hard-link-from-the-host", Outside: []string{"secret=s"},
			Prepare: func(e *Env) { e.Must(os.Link(e.Out+"/secret", e.Src+"/h")) }, Call: read("code/h", "s")},
	}
}

// specialCases: unless the policy has PosixFull, FIFOs, devices and the host's sockets seem to be
// absent, while sockets that were made in the root are visible. Without PosixFull, programs cannot
// set the set-id bits of files, nor attributes that the kernel obeys outside the mount.
func specialCases() []Case {
	tree := []string{"a=hello", "f|", "s@", "d%", "dir/"}
	own := []string{"a=hello", "f|", "s@", "1600 own@", "1600 p|"} // the sticky bit marks a socket that was made in a root
	stillOwn := func(name string, perm uint32) func(e *Env) {
		return func(e *Env) {
			var st unix.Stat_t
			e.Must(unix.Lstat(e.Src+"/"+name, &st))
			if want := unix.S_IFSOCK | unix.S_ISVTX | perm; st.Mode != want {
				e.Errorf("the mode of %s at the source is %#o, want %#o", name, st.Mode, want)
			}
		}
	}
	all := []Case{
		{Name: "special/list", Tree: tree, Call: list("code", "a", "dir")},
		{Name: "special/mkdir-over", Tree: tree, Call: mkdir("code/f"), Want: names.Exist},
		{Name: "special/set-id-file", Tree: tree, Steps: []Call{chmod("code/a", 0o6755)}, Call: mode("code/a", 0o755)},
		{Name: "special/set-gid-directory", Tree: tree, Steps: []Call{chmod("code/dir", 0o2755)}, Call: mode("code/dir", 0o2755)},
		{Name: "special/set-id-file-full-posix", Tree: tree, Policy: guard.Policy{Rights: guard.ReadWrite, PosixFull: true},
			Steps: []Call{chmod("code/a", 0o4755)}, Call: mode("code/a", 0o4755)},
		{Name: "special/list-full-posix", Tree: tree, Policy: guard.Policy{Rights: guard.ReadWrite, PosixFull: true},
			Call: list("code", "a", "d", "dir", "f", "s")},
		{Name: "special/own-socket-list", Tree: own, Call: list("code", "a", "own")},
		{Name: "special/own-socket-stat", Tree: own, Call: stat("code/own")},
		{Name: "special/own-socket-mode", Tree: own, Call: mode("code/own", 0o600)},
		{Name: "special/own-socket-chmod", Tree: own, Special: true, Call: chmod("code/own", 0o640), Check: stillOwn("own", 0o640)},
		{Name: "special/own-socket-rename", Tree: own, Special: true, Call: rename("code/own", "code/moved"), Check: stillOwn("moved", 0o600)},
		{Name: "special/own-socket-remove", Tree: own, Call: remove("code/own")},
		{Name: "special/own-socket-read-only", Tree: own, Policy: guard.Policy{Rights: guard.ReadOnly}, Call: remove("code/own"), Want: names.ReadOnly, Unguarded: true},
		{Name: "special/own-socket-hidden-by-name", Tree: []string{"a=", "1600 secret@"}, Policy: patterns(guard.Patterns{Hide: guard.Texts("secret")}),
			Call: stat("code/secret"), Want: names.Hidden, Unguarded: true},
		{Name: "special/security-attribute", Root: true, Tree: tree, Call: setxattr("code/a", "security.x"), Want: names.Permission,
			Errno: unix.EPERM, Unguarded: true},
		{Name: "special/trusted-attribute", Root: true, Tree: tree, Call: setxattr("code/a", "trusted.x"), Want: names.Permission,
			Errno: unix.EPERM, Unguarded: true},
		{Name: "special/trusted-attribute-read", Root: true, Tree: tree, Prepare: func(e *Env) {
			e.Must(unix.Setxattr(e.Src+"/a", "trusted.x", []byte("v"), 0))
		}, Call: getxattr("code/a", "trusted.x"), Errno: unix.ENODATA, Unguarded: true},
	}
	for _, s := range []string{"f", "s", "d"} {
		p := "code/" + s
		for _, c := range []Call{stat(p), chmod(p, 0o600), remove(p), rename(p, "code/x"), rename("code/a", p), link(p, "code/x")} {
			all = append(all, Case{Name: "special/" + c.Text, Tree: tree, Call: c, Want: names.Hidden, Unguarded: true})
		}
		all = append(all, Case{Name: "special/read " + s, Tree: tree, Call: read(p, whatever), Want: names.Hidden, Unguarded: s != "s"})
	}
	return all
}
