package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// programs are scripts with programs that people run. Each script begins in an empty,
// writable directory, and prints the same in a run as without rootsfs.
var programs = []struct {
	name   string
	needs  []string
	script string
	want   string
}{
	{"tmux", []string{"tmux"}, `
		export TMUX_TMPDIR=$TMPDIR TERM=xterm
		tmux -f /dev/null new-session -d -s one 'echo from the session >out; exec sleep 60'
		await test -s out
		cat out; tmux list-sessions -F '#S'; tmux kill-server`, "from the session\none\n"},
	{"ssh-agent", []string{"ssh-agent", "ssh-add", "ssh-keygen"}, `
		eval "$(ssh-agent)" >/dev/null
		ssh-keygen -q -t ed25519 -N '' -C key -f ./key
		ssh-add -q ./key && ssh-add -l | cut -d' ' -f1,3,4
		ssh-agent -k >/dev/null`, "256 key (ED25519)\n"},
	{"node --watch", []string{"node"}, `
		echo 'console.log("one"); setInterval(() => {}, 1000)' >w.js
		node --watch w.js >log 2>&1 & pid=$!
		await grep -q one log
		echo 'console.log("two"); setInterval(() => {}, 1000)' >w.js
		await grep -q two log
		kill $pid; wait $pid 2>/dev/null
		grep -ox 'one\|two' log`, "one\ntwo\n"},
	{"npm", []string{"node", "npm"}, `
		mkdir dep
		echo '{"name":"dep","version":"1.0.0","main":"i.js"}' >dep/package.json
		echo 'module.exports = (m) => m + 1' >dep/i.js
		echo '{"name":"p","version":"1.0.0","dependencies":{"dep":"file:dep"},"scripts":{"test":"node t.js"}}' >package.json
		cat >t.js <<-'END'
			const dep = require("dep"), { fork } = require("child_process"), net = require("net"), path = require("path");
			if (process.argv[2]) { process.on("message", (m) => { process.send(dep(m)); process.disconnect(); }); return; }
			const at = path.join(process.env.TMPDIR, "npm-test.sock");
			const server = net.createServer((c) => c.end("by a socket\n")).listen(at, () => {
				net.connect(at).on("data", (d) => process.stdout.write(d)).on("close", () => {
					server.close();
					fork(__filename, ["child"]).on("message", (m) => console.log("from the child", m)).send(41);
				});
			});
		END
		npm install --silent --offline --no-audit --no-fund && npm test --silent`, "by a socket\nfrom the child 42\n"},
	// This is a published project with its own tests and their dependencies. Inside there is no
	// network: the dependencies come from the cache that npm has filled outside.
	{"npm project", []string{"node", "npm", "tar"}, `
		export npm_config_cache=$PWD/../npm-cache npm_config_prefer_offline=true npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false
		npm pack --silent minimist@1.2.8 >/dev/null && tar xf minimist-1.2.8.tgz && cd package
		node -e '
			const fs = require("fs"), p = JSON.parse(fs.readFileSync("package.json"));
			p.devDependencies = { tape: "3.6.1" };
			p.scripts = { test: "tape test/*.js" };
			fs.writeFileSync("package.json", JSON.stringify(p))'
		npm install --silent && npm test --silent | grep '^# \(tests\|pass\|fail\)'`, "# tests 153\n# pass  153\n"},
	{"go build", []string{"/usr/local/go/bin/go"}, `
		export PATH=$PATH:/usr/local/go/bin GOFLAGS=-buildvcs=false GOTOOLCHAIN=local GOCACHE=$PWD/../` + goCache + `
		echo 'module hello' >go.mod
		` + goProgram, "built\n"},
}

// goProgram is a script that builds a library. In the soak (lab.Soak) the script builds a program,
// for which Go must also compile its own runtime: half a minute.
var goProgram = map[bool]string{
	false: `printf 'package hello\nfunc One() int { return 1 }\n' >one.go; go build -o one.a . && grep -qa One one.a && echo built`,
	true:  `printf 'package main\nfunc main() { println("built") }\n' >main.go; go build -o hello . && ./hello 2>&1`,
}[lab.Soak()]

// await waits, at most for a minute, until a command succeeds.
const await = `await() { for i in $(seq 600); do "$@" 2>/dev/null && return; sleep 0.1; done; echo "given up: $*"; }
`

// goCache is the name of a build cache in the root, beside the directory of the scripts.
const goCache = "go-cache"

// compileRuntime returns a directory for a build cache of Go. In the soak the cache has Go's own
// runtime, which goProgram then needs. Otherwise the directory is empty.
func compileRuntime(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if !lab.Soak() {
		return dir
	}
	cmd := exec.Command("go", "build", "runtime")
	cmd.Env = append(os.Environ(), "GOCACHE="+dir, "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// Programs that people use work inside as they do outside.
func TestPrograms(t *testing.T) {
	cache := compileRuntime(t)
	eachUser(t, func(t *testing.T, o *outside) {
		o.resetRoot()
		testkit.Must(t, os.CopyFS(filepath.Join(o.root, goCache), os.DirFS(cache)))
		testkit.Must(t, filepath.WalkDir(filepath.Join(o.root, goCache), func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, o.caller.commandUID(), o.caller.commandUID()))
		}))
		for _, p := range programs {
			t.Run(p.name, func(t *testing.T) {
				for _, tool := range p.needs {
					if _, err := exec.LookPath(tool); err != nil && os.Getenv("CI") == "" {
						t.Skip(err)
					}
				}
				o.t = t
				if outside, log, _ := o.program(p.script, false); outside != p.want {
					t.Fatalf("outside: %q, want %q: %s", outside, p.want, log)
				}
				if inside, log, code := o.program(p.script, true); inside != p.want || code != 0 {
					t.Errorf("inside: exit code %d, %q, want %q: %s", code, inside, p.want, log)
				}
			})
		}
	})
}

// program runs a script in an empty directory of the root, in a run if confined is set, and
// otherwise without rootsfs. Files that the script leaves beside this directory are there for the
// next script.
func (o *outside) program(script string, confined bool) (stdout, log string, code int) {
	dir, tmp := filepath.Join(o.root, "work"), filepath.Join(o.base, "tmp")
	for _, d := range []string{dir, tmp} {
		testkit.Must(o.t, os.RemoveAll(d))
		testkit.Must(o.t, os.Mkdir(d, 0o700))
		o.give(d, 0o700)
		if !confined {
			o.own(d)
		}
	}
	script = "cd " + dir + "\n" + await + strings.TrimSpace(script)
	ord := order{Bare: true, Args: []string{"/bin/sh", "-c", script}, Env: append(o.env, "HOME="+tmp, "TMPDIR="+tmp)}
	if confined {
		ord = order{Args: o.rootsfs("run", "--name", sessionName, "--level", "namespaces", "--root", "root="+o.root+":rw", "--", "sh", "-c", script)}
	}
	cmd := o.driver(ord)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	null, err := os.Open(os.DevNull)
	testkit.Must(o.t, err)
	defer null.Close()
	cmd.ExtraFiles = []*os.File{null}
	_ = cmd.Run() // its exit code is returned
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
