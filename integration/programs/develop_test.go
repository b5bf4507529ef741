package programs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// git: init, commit, status, gc, a local clone, a worktree, a merge.
func TestGit(t *testing.T) {
	inside(t, cached, func(t *testing.T, b *box) {
		need(t, "git", "sh")
		b.sh(gitWork)
		if s := b.run("repo", "git", "status", "--porcelain"); s != "" {
			t.Errorf("status after a commit: %q", s)
		}
		for _, dir := range []string{"repo", "clone", "bare.git", "tree"} {
			b.run(dir, "git", "fsck", "--strict")
		}
		testkit.Must(t, os.WriteFile(filepath.Join(b.dir, "repo/f3"), []byte("changed\n"), 0o644))
		if s := b.run("repo", "git", "status", "--porcelain"); s != " M f3\n" {
			t.Errorf("status after a change: %q", s)
		}
		// On the source the repositories are whole, too.
		host := *b
		host.dir = b.result
		if s := host.run("repo", "git", "fsck", "--strict"); strings.Contains(s, "missing") {
			t.Error(s)
		}
		if n := host.run("clone", "git", "rev-list", "--count", "HEAD"); n != "24\n" {
			t.Errorf("the source has %q commits", n)
		}
	})
}

const gitWork = `git init -q -b main repo; cd repo
for i in 1 2 3 4 5 6 7 8 9 10; do mkdir -p d$i; seq 1 $((i*50)) > f$i; cp f$i d$i/g; done
git add .; git commit -q -m first
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do echo $i >> f1; git commit -q -a -m "c$i"; done
git checkout -q -b side HEAD~5; echo side > side; git add side; git commit -q -m side
git checkout -q main; git merge -q -m merge side
git mv f2 moved; ln -s f4 link; git add link; git commit -q -m move
git gc -q --aggressive --prune=now; git stash list
git worktree add -q ../tree side; (cd ../tree; echo x >> side; git commit -q -a -m tree)
git clone -q . ../clone; git clone -q --bare . ../bare.git
cd ../clone; git reset -q --hard HEAD; git log --oneline | wc -l; git push -q ../bare.git HEAD:new
`

// Go builds, vets and tests a package of this project, offline, and with the compiler's
// temporary files in the root too.
func TestGo(t *testing.T) {
	inside(t, byDefault, func(t *testing.T, b *box) {
		need(t, "go")
		// testkit.Build has the same CGO_ENABLED and -trimpath, so that shared packages are compiled once.
		env := map[string]string{"GOFLAGS": "-mod=mod -trimpath", "CGO_ENABLED": "0", "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOTMPDIR": b.dir + "/tmp"}
		for _, k := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} {
			env[k] = strings.TrimSpace((&box{t: t, dir: ".", home: os.Getenv("HOME")}).run("", "go", "env", k))
		}
		for k, v := range env {
			t.Setenv(k, v)
		}
		testkit.Must(t, os.Mkdir(filepath.Join(b.dir, "tmp"), 0o755))
		b.run("", "cp", "-r", "--parents", "-t", filepath.Join(b.dir), absolute(t, "../../go.mod"), absolute(t, "../../go.sum"), absolute(t, "../../guard/names"))
		root, err := filepath.Abs("../..")
		testkit.Must(t, err)
		mod := strings.TrimPrefix(root, "/")
		testkit.Must(t, os.MkdirAll(filepath.Join(b.dir, mod, "hello"), 0o755))
		testkit.Must(t, os.WriteFile(filepath.Join(b.dir, mod, "hello/main.go"), []byte(helloGo), 0o644))
		b.run(mod, "go", "build", "-o", "bin/", "./...")
		if out := b.run(mod, "./bin/hello"); out != "/etc/hosts\n" {
			t.Errorf("the program that was built says %q", out)
		}
		b.run(mod, "go", "vet", "./guard/names")
		out := b.run(mod, "go", "test", "-count=1", "./guard/names")
		if !strings.HasPrefix(out, "ok") {
			t.Error(out)
		}
		b.run(mod, "gofmt", "-w", "hello/main.go")
	})
}

const helloGo = `package main

import (
"fmt"

"github.com/rootsfs/rootsfs/guard/names"
)

func main() {
	p, err := names.ParseURI("file:///etc/hosts")
	if err != nil { panic(err) }
	fmt.Println(p)
}
`

func absolute(t *testing.T, rel string) string {
	t.Helper()
	p, err := filepath.Abs(rel)
	testkit.Must(t, err)
	return p
}

// npm installs a local package and a package from the registry, and makes the links in
// node_modules/.bin.
func TestNpm(t *testing.T) {
	inside(t, byDefault, func(t *testing.T, b *box) {
		need(t, "npm", "node")
		file := func(name, text string) {
			testkit.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(b.dir, name)), 0o755))
			testkit.Must(t, os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o644))
		}
		file("tool/package.json", `{"name":"tool","version":"1.0.0","bin":{"tool":"cli.js"}}`)
		file("tool/cli.js", "#!/usr/bin/env node\nconsole.log('tool says', require('./lib'))\n")
		file("tool/lib.js", "module.exports = 42\n")
		file("app/package.json", `{"name":"app","version":"1.0.0","private":true,"scripts":{"go":"tool"}}`)
		const quiet = "--no-audit --no-fund --loglevel=error --no-update-notifier "
		b.sh(`cd app; npm install ` + quiet + `--install-links=true ../tool`)
		if out := b.sh(`cd app; npm run -s go`); out != "tool says 42\n" {
			t.Errorf("the bin link: %q", out)
		}
		if l, err := os.Readlink(filepath.Join(b.result, "app/node_modules/.bin/tool")); err != nil || l != "../tool/cli.js" {
			t.Errorf("on the source: %q, %v", l, err)
		}
		// A link to the directory instead of a copy.
		b.sh(`cd app; npm install ` + quiet + `--install-links=false ../tool; node node_modules/tool/cli.js`)
		b.sh(`cd app; npm install ` + quiet + `--fetch-retries=1 is-number@7.0.0`)
		if out := b.sh(`cd app; node -p "require('is-number')('7')"; npm ls --json | grep -c '"is-number"'`); out != "true\n1\n" {
			t.Errorf("the registry's package: %q", out)
		}
		b.sh(`cd app; rm -rf node_modules; npm ci ` + quiet + `; test -e node_modules/is-number/index.js`)
	})
}

// A virtual environment of Python works if it is made with --copies. Without --copies, bin/python
// would be a link that leads out of the root, and the root refuses such links.
func TestPythonVenv(t *testing.T) {
	inside(t, byDefault, func(t *testing.T, b *box) {
		need(t, "python3")
		b.run("", "python3", "-m", "venv", "--without-pip", "--copies", "v")
		testkit.Must(t, os.WriteFile(filepath.Join(b.dir, "mod.py"), []byte("x = 40 + 2\n"), 0o644))
		if out := b.run("", "v/bin/python", "-c", "import mod, sys; print(mod.x, sys.prefix)"); out != "42 "+b.dir+"/v\n" {
			t.Errorf("python says %q", out)
		}
		if cached, _ := filepath.Glob(filepath.Join(b.result, "__pycache__/mod.*.pyc")); len(cached) != 1 {
			t.Errorf("compiled: %q", cached)
		}
	})
}

// make builds once, then finds nothing to do. It builds a target again if a file is
// newer, whether the file was written in the mount or on the source.
func TestMake(t *testing.T) {
	inside(t, everywhere, func(t *testing.T, b *box) {
		need(t, "make", "gcc")
		for name, text := range map[string]string{
			"Makefile": "prog: a.o b.o\n\tcc -o $@ $^\n%.o: %.c h.h\n\tcc -c -o $@ $<\n",
			"a.c":      "#include \"h.h\"\n#include <stdio.h>\nint f(void); int main(void) { printf(\"%d %d\\n\", f(), N); return 0; }\n",
			"b.c":      "int f(void) { return 1; }\n", "h.h": "#define N 1\n",
		} {
			testkit.Must(t, os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o644))
		}
		step := func(what, commands, output string) {
			t.Helper()
			if n := strings.Count(b.run("", "make"), "cc -"); strconv.Itoa(n) != commands {
				t.Errorf("%s: %d commands, want %s", what, n, commands)
			}
			if out := b.run("", "./prog"); out != output {
				t.Errorf("%s: the program says %q", what, out)
			}
		}
		step("at first", "3", "1 1\n")
		step("again", "0", "1 1\n")
		testkit.Must(t, os.WriteFile(filepath.Join(b.dir, "b.c"), []byte("int f(void) { return 2; }\n"), 0o644))
		step("changed in the mount", "2", "2 1\n")
		testkit.Must(t, os.WriteFile(filepath.Join(b.result, "h.h"), []byte("#define N 2\n"), 0o644))
		testkit.Until(t, "the header's change on the source", func() bool {
			got, err := os.ReadFile(filepath.Join(b.dir, "h.h"))
			return err == nil && string(got) == "#define N 2\n"
		})
		step("changed on the source", "3", "2 2\n")
	})
}

// tmux: server and client talk over a socket in the root, and a new server takes the place of
// one that was killed.
func TestTmux(t *testing.T) {
	// The script waits until the killed server is a zombie. Only then has the kernel closed the
	// server's socket.
	inside(t, byDefault, func(t *testing.T, b *box) {
		need(t, "tmux", "sh")
		if s := b.sh(`tmux -S sock new-session -d -s one 'sleep 100'; tmux -S sock ls -F '#S'
pid=$(tmux -S sock display -p '#{pid}'); kill -9 $pid; while grep -qs '^State:.[^Z]' /proc/$pid/status; do sleep 0.01; done; test -S sock
tmux -S sock new-session -d -s two 'sleep 100'; tmux -S sock ls -F '#S'; tmux -S sock kill-server; test -S sock && echo socket; true`); s != "one\ntwo\nsocket\n" {
			t.Errorf("tmux said %q", s)
		}
	})
}
