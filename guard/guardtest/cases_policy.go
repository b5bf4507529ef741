package guardtest

import (
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// policyCases are about patterns: which names they hide, deny and protect, also if a call uses
// links or renames. The call of an Unguarded case succeeds on the bare file system. For each
// such case, policyCases adds another one, in which the same call succeeds through the front end
// without patterns. The added case shows that nothing but the rule refuses the call.
func policyCases() []Case {
	var all []Case
	for _, group := range [][]Case{hideCases(), denyCases(), protectCases(), moveCases(), builtinCases(), repositoryCases()} {
		for _, c := range group {
			c.Name, c.Req = "policy/"+c.Name, "R110"
			all = append(all, c)
			if c.Unguarded {
				all = append(all, c.withoutRule())
			}
		}
	}
	return all
}

// withoutRule returns a refused case as one that succeeds, with no patterns in force.
func (c Case) withoutRule() Case {
	c.Name += "/without-the-rule"
	c.Policy.Patterns = guard.Patterns{NoDefaults: true}
	c.Want, c.Errno, c.Unguarded, c.Check = 0, 0, false, nil
	return c
}

func patterns(p guard.Patterns) guard.Policy { return guard.Policy{Patterns: p} }

func hideCases() []Case {
	p := patterns(guard.Patterns{Hide: guard.Texts("secret", "*.hid", "!ok.hid", "/top", "build/")})
	tree := []string{"secret=s", "sub/secret=s", "ok.hid=o", "x.hid/in=i", "plain=p", "sub/top=t", "top=t", "build=file", "sub/build/x=x", "empty/"}
	in := func(name string, c Case) Case {
		c.Name, c.Policy, c.Tree = "hide/"+name, p, append(tree, c.Tree...)
		return c
	}
	no := func(name string, call Call, want guard.Kind) Case {
		return in(name, Case{Call: call, Want: want, Unguarded: true})
	}
	return []Case{
		no("read", read("code/secret", whatever), names.Hidden),
		no("stat", stat("code/sub/secret"), names.Hidden),
		no("stat-below", stat("code/x.hid/in"), names.Hidden),
		no("list-it", list("code/x.hid"), names.Hidden),
		no("directories-only", stat("code/sub/build"), names.Hidden),
		no("remove", remove("code/secret"), names.Hidden),
		no("rename-away", rename("code/secret", "code/found"), names.Hidden),
		no("link-to-it", link("code/secret", "code/found"), names.Hidden),
		no("chmod", chmod("code/secret", 0o644), names.Hidden),
		no("truncate", truncate("code/secret", 0).needingAttributes(), names.Hidden),
		no("mkdir", mkdir("code/empty/secret"), names.Permission),
		no("make", write("code/empty/secret", "x"), names.Permission),
		no("make-below", write("code/x.hid/new", "x"), names.Hidden),
		no("symlink-as", symlink("plain", "code/empty/secret"), names.Permission),
		no("link-as", link("code/plain", "code/empty/secret"), names.Permission),
		no("rename-as", rename("code/plain", "code/empty/secret"), names.Permission),
		no("rename-over", rename("code/plain", "code/secret"), names.Permission),
		in("through-a-link", Case{Tree: []string{"l => secret"}, Call: read("code/l", whatever), Want: names.Hidden, Unguarded: true}),
		in("through-a-linked-directory", Case{Tree: []string{"l => x.hid"}, Call: read("code/l/in", whatever), Want: names.Hidden, Unguarded: true}),
		in("a-second-name-is-another-name", Case{Tree: []string{"second -> secret"}, Call: read("code/second", "s")}),
		in("taken-back", Case{Call: read("code/ok.hid", "o")}),
		in("anchored-elsewhere", Case{Call: read("code/sub/top", "t")}),
		in("a-file-of-a-directory's-name", Case{Call: read("code/build", "file")}),
		in("list", Case{Call: list("code", "build", "empty", "ok.hid", "plain", "sub")}),
		in("list-below", Case{Call: list("code/sub", "top")}),
	}
}

func denyCases() []Case {
	p := patterns(guard.Patterns{Deny: guard.Texts("closed", "shut/")})
	tree := []string{"closed=c", "shut/in=i", "sub/closed=c", "plain=p", "empty/"}
	in := func(name string, c Case) Case {
		c.Name, c.Policy, c.Tree = "deny/"+name, p, append(tree, c.Tree...)
		return c
	}
	no := func(name string, call Call) Case {
		return in(name, Case{Call: call, Want: names.Permission, Unguarded: true})
	}
	return []Case{
		in("stat", Case{Call: stat("code/closed")}),
		in("stat-directory", Case{Call: stat("code/shut")}),
		in("list", Case{Call: list("code", "closed", "empty", "plain", "shut", "sub")}),
		no("read", read("code/closed", whatever)),
		no("write", write("code/closed", "x")),
		no("append", appendTo("code/closed", "x")),
		no("list-it", list("code/shut")),
		no("stat-below", stat("code/shut/in")),
		no("read-below", read("code/shut/in", whatever)),
		no("make-below", write("code/shut/new", "x")),
		no("remove", remove("code/closed")),
		no("rename-away", rename("code/closed", "code/open")),
		no("rename-directory", rename("code/shut", "code/open")),
		no("rename-as", rename("code/plain", "code/empty/closed")),
		no("rename-over", rename("code/plain", "code/closed")),
		no("link-to-it", link("code/closed", "code/open")),
		no("mkdir", mkdir("code/empty/closed")),
		no("chmod", chmod("code/closed", 0o644)),
		no("truncate", truncate("code/closed", 0)),
		no("setxattr", setxattr("code/closed", "user.x")),
		in("through-a-link", Case{Tree: []string{"l => sub/closed"}, Call: read("code/l", whatever), Want: names.Permission, Unguarded: true}),
	}
}

func protectCases() []Case {
	p := patterns(guard.Patterns{Protect: guard.Texts("kept", "hold/", "!hold/free", "deep/a/b")})
	tree := []string{"kept=k", "hold/in=i", "hold/free=f", "sub/kept=k", "plain=p", "empty/", "kl => kept"}
	in := func(name string, c Case) Case {
		c.Name, c.Policy, c.Tree = "protect/"+name, p, append(tree, c.Tree...)
		return c
	}
	no := func(name string, call Call) Case {
		return in(name, Case{Call: call, Want: names.Permission, Unguarded: true})
	}
	return []Case{
		in("read", Case{Call: read("code/kept", "k")}),
		in("read-below", Case{Call: read("code/hold/in", "i")}),
		in("list", Case{Call: list("code/hold", "free", "in")}),
		in("taken-back-below", Case{Call: write("code/hold/free", "x"), Check: func(e *Env) { e.Contents(e.Src+"/hold/free", "x") }}),
		in("read-through-a-link", Case{Call: read("code/kl", "k")}),
		no("write", write("code/kept", "x")),
		no("write-through-a-link", write("code/kl", "x")),
		no("append", appendTo("code/sub/kept", "x")),
		no("truncate", truncate("code/kept", 0)),
		no("chmod", chmod("code/kept", 0o755)),
		no("setxattr", setxattr("code/kept", "user.x")),
		no("remove", remove("code/kept")),
		no("rename-away", rename("code/kept", "code/free")),
		no("rename-over", rename("code/plain", "code/kept")),
		no("rename-as", rename("code/plain", "code/empty/kept")),
		no("link-to-it", link("code/kept", "code/alias")),
		no("link-as", link("code/plain", "code/empty/kept")),
		no("symlink-as", symlink("plain", "code/empty/kept")),
		no("mkdir", mkdir("code/empty/kept")),
		no("make", write("code/empty/kept", "x")),
		no("make-below", write("code/hold/new", "x")),
		no("mkdir-below", mkdir("code/hold/new")),
		no("rename-into", rename("code/plain", "code/hold/plain")),
		no("remove-below", remove("code/hold/in")),
		// A link deep/a would bring another file to the protected path deep/a/b.
		in("symlink-above", Case{Tree: []string{"deep/", "evil/b=x"}, Call: symlink("../evil", "code/deep/a"), Want: names.Permission, Unguarded: true}),
		in("symlink-moved-above", Case{Tree: []string{"deep/", "evil/b=x", "l => evil"}, Call: rename("code/l", "code/deep/a"), Want: names.Permission, Unguarded: true}),
	}
}

// moveCases: moving a directory also moves everything in the directory. The move is refused if a
// pattern hides, denies or protects one of the moved names at its old or its new path.
func moveCases() []Case {
	p := patterns(guard.Patterns{Hide: guard.Texts("secret", "/vault/*"), Protect: guard.Texts("kept", "**/conf/run"), Deny: guard.Texts("**/shut/closed")})
	no := func(name string, tree []string, call Call) Case {
		return Case{Name: "move/" + name, Policy: p, Tree: tree, Call: call, Want: names.Permission, Unguarded: true}
	}
	yes := func(name string, tree []string, call Call) Case {
		return Case{Name: "move/" + name, Policy: p, Tree: tree, Call: call}
	}
	return []Case{
		no("a-hidden-child", []string{"d/e/secret=s"}, rename("code/d", "code/f")),
		no("a-protected-child", []string{"d/e/kept=k"}, rename("code/d", "code/f")),
		no("an-empty-protected-directory", []string{"d/kept/"}, rename("code/d", "code/f")),
		no("a-denied-child", []string{"d/shut/closed=c"}, rename("code/d", "code/f")),
		no("out-of-a-hidden-place", []string{"vault/x=s"}, rename("code/vault", "code/open")),
		no("into-a-hidden-place", []string{"d/x=s"}, rename("code/d", "code/vault")),
		no("into-a-protected-place", []string{"d/run=x", "e/"}, rename("code/d", "code/e/conf")),
		no("a-file-into-a-protected-place", []string{"x=x", "conf/"}, rename("code/x", "code/conf/run")),
		no("deep-into-a-protected-place", []string{"d/a/conf.d/run=x", "d/a/conf/run/x="}, rename("code/d", "code/e")),
		yes("nothing-matched", []string{"d/e/x=1", "d/run=2"}, rename("code/d", "code/f")),
		yes("a-file", []string{"d/x=1", "e/"}, rename("code/d/x", "code/e/y")),
	}
}

// builtinCases: the built-in rules, which hold in every root that is a directory and does not
// turn them off.
func builtinCases() []Case {
	no := func(name string, tree []string, call Call, want guard.Kind) Case {
		return Case{Name: "builtin/" + name, Tree: tree, Call: call, Want: want, Unguarded: true}
	}
	yes := func(name string, tree []string, call Call) Case {
		return Case{Name: "builtin/" + name, Tree: tree, Call: call}
	}
	allow := func(c Case, texts ...string) Case {
		c.Policy.Allow = guard.Texts(texts...)
		return c
	}
	off := func(c Case) Case {
		c.Policy.NoDefaults = true
		return c
	}
	return []Case{
		no("env", []string{".env=k"}, read("code/.env", whatever), names.Hidden),
		no("env-below", []string{"a/.env.local=k"}, read("code/a/.env.local", whatever), names.Hidden),
		yes("env-example", []string{".env.example=k"}, read("code/.env.example", "k")),
		no("key", []string{"a/id_ed25519=k"}, read("code/a/id_ed25519", whatever), names.Hidden),
		no("pem", []string{"a/b.pem=k"}, stat("code/a/b.pem"), names.Hidden),
		no("ssh", []string{".ssh/config=k"}, list("code/.ssh"), names.Hidden),
		no("docker", []string{".docker/config.json=k"}, read("code/.docker/config.json", whatever), names.Hidden),
		no("npmrc-with-token", []string{".npmrc=//r/:_authToken=abc"}, read("code/.npmrc", whatever), names.Hidden),
		yes("npmrc-without", []string{".npmrc=registry=https://r/"}, read("code/.npmrc", "registry=https://r/")),
		yes("npmrc-of-the-environment", []string{".npmrc=//r/:_authToken=${T}"}, read("code/.npmrc", "//r/:_authToken=${T}")),
		yes("in-node_modules", []string{"node_modules/a/.env=k"}, read("code/node_modules/a/.env", "k")),
		yes("in-vendor", []string{"vendor/a/x.pem=k"}, read("code/vendor/a/x.pem", "k")),
		no("moved-to-vendor", []string{"d/.env=k", "vendor/"}, rename("code/d", "code/vendor/d"), names.Permission),
		no("mcp", []string{".mcp.json={}"}, write("code/.mcp.json", "x"), names.Permission),
		yes("mcp-is-readable", []string{".mcp.json={}"}, read("code/.mcp.json", "{}")),
		no("vscode", []string{"a="}, mkdir("code/.vscode"), names.Permission),
		no("workflow", []string{".github/x="}, mkdir("code/.github/workflows"), names.Permission),
		no("workflow-by-link", []string{"evil/workflows/x="}, symlink("evil", "code/.github"), names.Permission),
		no("workflow-by-rename", []string{"evil/workflows/x="}, rename("code/evil", "code/.github"), names.Permission),
		no("at-a-repository's-top", []string{"r/.git/HEAD=x", "r/.vscode/tasks.json={}"}, write("code/r/.vscode/tasks.json", "x"), names.Permission),
		yes("not-below", []string{"r/.git/HEAD=x", "r/testdata/.vscode/tasks.json={}"}, write("code/r/testdata/.vscode/tasks.json", "x")),
		no("bashrc", []string{"a="}, write("code/.bashrc", "x"), names.Permission),
		allow(yes("lifted", []string{".env=k"}, read("code/.env", "k")), ".env"),
		allow(yes("lifted-below", []string{"fixtures/.env=k"}, read("code/fixtures/.env", "k")), "fixtures/"),
		allow(no("lifted-elsewhere", []string{"a/.env=k"}, read("code/a/.env", whatever), names.Hidden), "fixtures/"),
		off(yes("off", []string{".env=k"}, read("code/.env", "k"))),
		{Name: "builtin/a-file-that-is-the-root", Tree: []string{".env=k"}, File: ".env", Call: read("code", "k")},
		{Name: "builtin/list", Tree: []string{".env=k", ".envrc=e", "a=", ".npmrc=_auth=x"}, Call: list("code", ".envrc", "a")},
	}
}

// repositoryCases: the root's users cannot write the files from which tools take commands in the
// owner's repositories. The users can write such files in repositories that they made themselves.
func repositoryCases() []Case {
	own := []string{".git/HEAD=ref: x", ".git/config=c", ".git/hooks/", "src="}
	no := func(name string, tree []string, call Call) Case {
		return Case{Name: "git/" + name, Tree: tree, Call: call, Want: names.Permission, Unguarded: true}
	}
	steps := func(call Call, steps ...Call) Case { return Case{Call: call, Steps: steps} }
	named := func(name string, tree []string, c Case) Case {
		c.Name, c.Tree = "git/"+name, tree
		return c
	}
	refused := func(c Case) Case {
		c.Want = names.Permission
		return c
	}
	return []Case{
		no("hook", own, write("code/.git/hooks/pre-commit", "#!/bin/sh")),
		no("no-hooks-yet", []string{".git/HEAD="}, mkdir("code/.git/hooks")),
		no("config", own, write("code/.git/config", "[core]")),
		no("config-by-rename", append(own, ".git/next=x"), rename("code/.git/next", "code/.git/config")),
		no("config-being-written", append(own, ".git/config.lock=x"), write("code/.git/config.lock", "[core]")),
		no("config-to-be-written", own, write("code/.git/config.lock", "[core]")),
		no("config.worktree", own, write("code/.git/config.worktree", "[core]")),
		no("commondir", own, write("code/.git/commondir", "../evil")),
		no("modules", append(own, ".git/modules/a/b/config=c"), write("code/.git/modules/a/b/config", "[core]")),
		no("modules-by-link", append(own, "evil/a/config=c"), symlink("../evil", "code/.git/modules")),
		no("gitmodules", own, write("code/.gitmodules", "[submodule]")),
		no("gitmodules-being-written", append(own, ".gitmodules.lock=x"), write("code/.gitmodules.lock", "[submodule]")),
		no("gitdir-file", []string{"sub/.git=gitdir: ../x"}, write("code/sub/.git", "gitdir: ../evil")),
		no("gitdir-link", []string{"sub/.git => ../x", "evil/HEAD="}, remove("code/sub/.git")),
		no("gitdir-by-rename", []string{"sub/a=", "f=gitdir: ../evil"}, rename("code/f", "code/sub/.git")),
		no("gitdir-by-link", []string{"sub/a=", "evil/HEAD="}, symlink("../evil", "code/sub/.git")),
		no("repository-moved-away", own, rename("code/.git", "code/old")),
		no("a-moved-repository", []string{"r/.git/config=c"}, rename("code/r", "code/s")),
		no("hooks-by-rename", []string{"d/hooks/pre-commit=x"}, rename("code/d", "code/.git")),
		no("in-vendor-too", []string{"vendor/r/.git/config=c"}, write("code/vendor/r/.git/config", "[core]")),
		named("objects", own, steps(write("code/.git/index", "x"), mkdir("code/.git/objects"), write("code/.git/objects/ab", "x"))),
		named("one's-own", []string{"src="}, steps(write("code/r/.git/hooks/pre-commit", "x"),
			mkdir("code/r"), mkdir("code/r/.git"), mkdir("code/r/.git/hooks"), write("code/r/.git/config", "[core]"))),
		named("one's-own-gitdir", []string{"src="}, steps(write("code/w/.git", "gitdir: b"), mkdir("code/w"), write("code/w/.git", "gitdir: a"))),
		named("one's-own-moved", []string{"src="}, steps(write("code/s/.git/config", "x"),
			mkdir("code/r"), mkdir("code/r/.git"), write("code/r/.git/config", "[core]"), rename("code/r", "code/s"))),
		named("one's-own-away-and-back", []string{"src="}, steps(write("code/r/.git/config", "x"), mkdir("code/r"), mkdir("code/r/.git"),
			write("code/r/.git/config", "[core]"), rename("code/r/.git", "code/r/x"), rename("code/r/x", "code/r/.git"))),
		named("one's-own-submodule-moved-out", []string{"src="}, steps(write("code/r/s/.git/config", "x"), mkdir("code/r"), mkdir("code/r/.git"),
			mkdir("code/r/.git/modules"), mkdir("code/r/.git/modules/s"), write("code/r/.git/modules/s/config", "[core]"), mkdir("code/r/s"),
			rename("code/r/.git/modules/s", "code/r/s/.git"))),
		named("one's-own-directory-that-is-no-repository", []string{"src="}, refused(steps(rename("code/r/.git/x", "code/s/.git"), mkdir("code/r"), mkdir("code/r/.git"),
			mkdir("code/r/.git/x"), mkdir("code/s")))),
		named("owner's-submodule-moved-out", []string{"o/.git/modules/s/HEAD="}, refused(steps(rename("code/o/.git/modules/s", "code/s/.git"), mkdir("code/s")))),
		named("one's-own-gitdir-by-rename", []string{"src="}, steps(write("code/w/.git", "gitdir: c"), mkdir("code/w"),
			write("code/w/.git", "gitdir: a"), write("code/w/n", "gitdir: b"), rename("code/w/n", "code/w/.git"))),
		named("one's-own-gitdir-moved", []string{"src="}, steps(write("code/v/.git", "gitdir: c"), mkdir("code/w"),
			write("code/w/.git", "gitdir: a"), rename("code/w", "code/v"), rename("code/v/.git", "code/v/x"), rename("code/v/x", "code/v/.git"))),
		named("one's-own-to-owner's-hooks", []string{"o/.git/HEAD="}, refused(steps(rename("code/r/.git", "code/o/.git/hooks"),
			mkdir("code/r"), mkdir("code/r/.git")))),
		named("one's-own-to-owner's-config", []string{"o/.git/HEAD="}, refused(steps(rename("code/r/.git", "code/o/.git/config"),
			mkdir("code/r"), write("code/r/.git", "[core]")))),
		named("a-bare-repository-to-.git", []string{"r/hooks/post-checkout=x"}, refused(steps(rename("code/r", "code/.git"),
			write("code/r/HEAD", "ref: x"), mkdir("code/r/objects"), mkdir("code/r/refs")))),
		named("one's-own-over-owner's", []string{"o/.git=gitdir: x"}, refused(steps(rename("code/r/.git", "code/o/.git"),
			mkdir("code/r"), write("code/r/.git", "gitdir: evil")))),
		named("one's-own-top", []string{"src="}, steps(write("code/r/.vscode", "x"), mkdir("code/r"), mkdir("code/r/.git"))),
		named("a-worktree", own, steps(write("code/.git/worktrees/w/commondir", "../.."),
			mkdir("code/.git/worktrees"), mkdir("code/.git/worktrees/w"), mkdir("code/w"), write("code/w/.git", "gitdir: x"))),
	}
}
