package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// The script that npm puts into PATH passes on signals, exit codes and the end of its input,
// whether or not Node can replace itself by the program.
func TestNPMSignals(t *testing.T) {
	_, address := newNPMRegistry(t)
	env, project := npmEnv(t, address), t.TempDir()
	install := exec.Command("npm", "install", "--no-save", "rootsfs")
	install.Env, install.Dir = env, project
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm install: %v\n%s", err, out)
	}
	older := filepath.Join(project, "older.js")
	if err := os.WriteFile(older, []byte("process.execve = undefined;\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(project, "node_modules", ".bin", "rootsfs")
	direct := filepath.Join(extractArchive(t), "bin", "rootsfs")
	for _, c := range []struct {
		name    string
		command []string
	}{
		{"installed Node", []string{script}},
		{"older Node", []string{"node", "--require", older, script}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, want := exitOf(t, env, c.command, "status", "one", "two", "three"), exitOf(t, env, []string{direct}, "status", "one", "two", "three"); got != want || want == "exit status 0" {
				t.Errorf("%s, and the program itself %s", got, want)
			}
			for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
				got := newServer(t, env, c.command).end(s)
				if want := newServer(t, env, []string{direct}).end(s); got != want {
					t.Errorf("after %v: %s, and the program itself %s", s, got, want)
				}
			}
			s := newServer(t, env, c.command)
			s.signal(syscall.SIGUSR1) // revokes every root
			s.untilRevoked()
			_ = s.stdin.Close()
			if got := s.wait(); got != "exit status 0" {
				t.Errorf("at the end of input: %s", got)
			}
			s = newServer(t, env, c.command)
			if err := syscall.Kill(s.program(), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if got := s.wait(); got != "signal: killed" {
				t.Errorf("when the program is killed: %s", got)
			}
		})
	}
}

// exitOf runs a command and describes how it ended.
func exitOf(t *testing.T, env, command []string, args ...string) string {
	t.Helper()
	cmd := exec.Command(command[0], append(command[1:], args...)...)
	cmd.Env = env
	return describeEnd(t, cmd.Run())
}

// describeEnd describes how a program ended.
func describeEnd(t *testing.T, err error) string {
	t.Helper()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if err != nil && !ok {
		t.Fatal(err)
	}
	if err == nil {
		return "exit status 0"
	}
	return exit.Error()
}

// server is an MCP server that has answered the request initialize.
type server struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
}

// newServer starts `COMMAND serve DIRECTORY` and waits until it answers.
func newServer(t *testing.T, env, command []string) *server {
	t.Helper()
	s := &server{t: t, cmd: exec.Command(command[0], append(command[1:], "serve", servedDir(t))...)}
	s.cmd.Env = env
	var err error
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.out = bufio.NewReader(out)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.stdin.Close() // ends the program, also where its parent is gone
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	})
	s.say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	s.answer(1)
	s.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return s
}

// say sends a line.
func (s *server) say(line string) {
	s.t.Helper()
	if _, err := io.WriteString(s.stdin, line+"\n"); err != nil {
		s.t.Fatal(err)
	}
}

// answer reads lines until the answer to the request with the given id, and returns this answer.
func (s *server) answer(id int) string {
	s.t.Helper()
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			s.t.Fatalf("no answer to request %d: %v", id, err)
		}
		if strings.Contains(line, fmt.Sprintf(`"id":%d,`, id)) || strings.Contains(line, fmt.Sprintf(`"id":%d}`, id)) {
			return line
		}
	}
}

// untilRevoked reads a file of the root until the read is refused, because a signal takes
// effect a little later.
func (s *server) untilRevoked() {
	s.t.Helper()
	id := 1
	testkit.Until(s.t, "SIGUSR1 revokes the root", func() bool {
		id++
		s.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"code/hello"}}}`, id))
		return !strings.Contains(s.answer(id), "from code")
	})
}

func (s *server) signal(which syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(which); err != nil {
		s.t.Fatal(err)
	}
}

// end sends a signal and describes how the server ended.
func (s *server) end(which syscall.Signal) string {
	s.t.Helper()
	s.signal(which)
	return s.wait()
}

func (s *server) wait() string {
	s.t.Helper()
	_, _ = io.Copy(io.Discard, s.out)
	return describeEnd(s.t, s.cmd.Wait())
}

// program returns the process ID of rootsfs itself. rootsfs is Node's child, or has replaced Node
// in its process.
func (s *server) program() int {
	s.t.Helper()
	pid := s.cmd.Process.Pid
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		s.t.Fatal(err)
	}
	var child int
	if _, err := fmt.Sscan(string(children), &child); err != nil {
		return pid
	}
	return child
}
