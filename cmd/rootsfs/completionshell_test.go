package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
)

// hostile has names with commands that a shell would run, unless the names are quoted. Each name
// begins with a different letter.
var hostile = []string{"p$(id>PWNED)", "q`id>PWNED`", "r;id>PWNED;", "s\";id>PWNED;\"", "t(id>PWNED)", "u\nid>PWNED\n", "v>PWNED", "w|tee PWNED;", "x\\$(id>PWNED)"}

// Completion in bash, zsh and fish does not run text that a server or a repository has chosen. Such
// texts are the names of roots, of files and of servers in a host's configuration, and quoted words
// that are already on the line.
func TestTabRunsNothing(t *testing.T) {
	dir := t.TempDir()
	env, repo := shellHome(t, dir)
	serveHostile(t, env, repo)

	// Each Tab starts up to four processes. bash-completion tries all names as roots, because bash
	// evaluates what is on the line; each other shell tries each name with one command, and together
	// they try most pairs. make soak tries all pairs in every shell.
	linesOf := func(shell int) []string {
		evaluates := shell == 1
		// There are two names of each kind: the shell inserts their common beginning.
		lines := []string{"rootsfs wrap .mcp.json --server ", "rootsfs wrap twice.json --server twi"}
		for i, name := range hostile {
			for j, line := range []string{"wrap .mcp.json --server ", "mount --root sub/", "wrap sub/", "revoke "} {
				if evaluates && (j == 3 || i%3 == j) || !evaluates && (i+shell)%4 == j || lab.Soak() {
					lines = append(lines, "rootsfs "+line+name[:1])
				}
			}
			if !strings.ContainsAny(name, "'\n") {
				lines = append(lines, "rootsfs revoke '"+name+"1' ")
			}
		}
		return lines
	}
	for i, sh := range []struct{ name, start, bind, load string }{
		{"bash", "bash --norc --noprofile -i", `bind -x '"\C-g": echo D""ONE'`, "source <(rootsfs completion bash)"},
		{"bash-completion", "bash --norc --noprofile -i", `bind -x '"\C-g": echo D""ONE'`, "source /usr/share/bash-completion/bash_completion; source <(rootsfs completion bash)"},
		{"zsh", "zsh -f -i", `d() { print D""ONE }; zle -N d; bindkey -e; bindkey '^G' d`, "autoload -U compinit; compinit -u -D; source <(rootsfs completion zsh)"},
		{"fish", "fish --no-config -i", `bind \cg 'echo D""ONE'`, "rootsfs completion fish | source"},
	} {
		t.Run(sh.name, func(t *testing.T) {
			if strings.Contains(sh.load, "/usr/share") {
				if _, err := os.Stat("/usr/share/bash-completion/bash_completion"); err != nil && os.Getenv("CI") == "" {
					t.Skip(err)
				}
			}
			words := strings.Fields(sh.start)
			if _, err := exec.LookPath(words[0]); err != nil && os.Getenv("CI") == "" {
				t.Skip(err)
			}
			p := startPty(t, repo, env, words)
			p.send(sh.bind + "; " + sh.load + "; echo D\"\"ONE\r")
			p.await("DONE")
			for _, line := range linesOf(i) {
				p.send(line)
				for range 2 {
					p.send("\t\x07")
					p.await("DONE")
				}
				if strings.Contains(line, " twi") { // c makes the word complete: the next Tab evaluates the line
					p.send("c\t\t\x07")
					p.await("DONE")
				}
				if strings.Contains(p.seen.String(), "twice.json --server twice  (") {
					t.Errorf("a description is on the line: %q", p.seen.String())
				}
				if _, err := os.Lstat(filepath.Join(repo, "PWNED")); err == nil {
					t.Errorf("%q and Tab ran a command:\n%s", line, p.seen.String())
					_ = os.Remove(filepath.Join(repo, "PWNED"))
				}
				p.seen.Reset()
				p.send("\x15\x15")
			}
			// The shell does complete a harmless name.
			p.send("rootsfs revoke beni\t\x07")
			p.await("DONE")
			if good := strings.Contains(p.seen.String(), "benign"); good == (sh.name == "bash") { // without bash-completion, bash completes nothing
				t.Errorf("benign was completed: %v; seen:\n%s", good, p.seen.String())
			}
		})
	}
}

// shellHome makes a home directory with a program rootsfs, and an empty directory to work in.
func shellHome(t *testing.T, dir string) (env []string, work string) {
	t.Helper()
	for _, name := range []string{"run", "config", "state", "bin", "repo"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if dir, err := releasedDir(); err != nil {
		t.Fatal(err)
	} else if dir != "" { // each Tab starts the program, and the released one starts faster
		self = filepath.Join(dir, "rootsfs")
	}
	if other := os.Getenv("ROOTSFS_TEST_PROGRAM"); other != "" { // to try another build by hand
		self = other
	}
	if err := os.Symlink(self, filepath.Join(dir, "bin", "rootsfs")); err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":/usr/bin:/bin", "HOME="+dir, "XDG_RUNTIME_DIR="+filepath.Join(dir, "run"),
		"XDG_CONFIG_HOME="+filepath.Join(dir, "config"), "XDG_STATE_HOME="+filepath.Join(dir, "state"), "TERM=xterm", "GORACE=atexit_sleep_ms=0",
		"XDG_DATA_HOME="+filepath.Join(dir, "state"), "HISTFILE=", "LC_ALL=C.UTF-8"), filepath.Join(dir, "repo")
}

// serveHostile starts a session and fills a repository. The roots of the session, and the servers
// and directories of the repository, have the names in hostile.
func serveHostile(t *testing.T, env []string, repo string) {
	t.Helper()
	args, servers := []string{"serve", "--root", "benign=" + repo + ":ro"}, []string{}
	for _, name := range hostile {
		for _, n := range []string{"1", "2"} {
			sub := filepath.Join(repo, "sub", name+n)
			if err := os.MkdirAll(sub, 0o700); err != nil {
				t.Fatal(err)
			}
			servers = append(servers, strconv.Quote(name+n)+`: {"command": "true"}`)
			if !strings.ContainsAny(name, "\n") { // no root's name has a newline
				args = append(args, "--root", name+n+"="+sub)
			}
		}
	}
	conf := `{"mcpServers": {` + strings.Join(servers, ", ") + `}}`
	if err := os.WriteFile(filepath.Join(repo, ".mcp.json"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	// Each server is in the file twice. If two candidates are the same word, a shell may insert the
	// whole text that it shows for one, with the description.
	twice := `{"twice": {"command": "$(id>PWNED)"}, "twisted": {"command": "%B%{$(id>PWNED)%}"}}`
	if err := os.WriteFile(filepath.Join(repo, "twice.json"), []byte(`{"mcpServers": `+twice+`, "servers": `+twice+`}`), 0o600); err != nil {
		t.Fatal(err)
	}
	startServe(t, env, repo, args)
}

// startServe starts a session without a mount, and waits until the session has begun.
func startServe(t *testing.T, env []string, work string, args []string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(work, "../bin/rootsfs"), args...)
	cmd.Env, cmd.Dir, cmd.Stderr = env, work, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	// The server answers when its session has begun.
	if _, err := io.WriteString(in, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
}

// terminal is a program on a terminal of its own.
type terminal struct {
	t    *testing.T
	f    *os.File
	seen bytes.Buffer
}

func startPty(t *testing.T, dir string, env, words []string) *terminal {
	t.Helper()
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(f.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err := errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0), unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 200})); err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, env, tty, tty, tty
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = tty.Close()
	t.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		_ = cmd.Wait() // it was killed
		_ = f.Close()
	})
	return &terminal{t: t, f: f}
}

func (p *terminal) send(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.f, text); err != nil {
		p.t.Fatal(err)
	}
}

// await reads the program's output until the part that this call has read contains text.
func (p *terminal) await(text string) {
	p.t.Helper()
	from := p.seen.Len()
	buf := make([]byte, 4096)
	for !bytes.Contains(p.seen.Bytes()[from:], []byte(text)) {
		n, err := p.f.Read(buf)
		if err != nil {
			p.t.Fatalf("%v; seen:\n%s", err, p.seen.String())
		}
		p.seen.Write(buf[:n])
	}
}
