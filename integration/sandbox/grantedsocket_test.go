package sandbox

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// echoSocket is a listening socket of the host. It echoes each message together with a
// descriptor, and counts in passed the messages that arrive with descriptors.
type echoSocket struct {
	path   string
	passed atomic.Int32
}

func (o *outside) newEchoSocket(name string) *echoSocket {
	t := o.t
	a := &echoSocket{path: filepath.Join(o.Dir, name)}
	l, err := net.Listen("unix", a.path)
	testkit.Must(t, err)
	testkit.Must(t, os.Chmod(a.path, 0o777))
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go a.answer(c.(*net.UnixConn))
		}
	}()
	return a
}

func (a *echoSocket) answer(c *net.UnixConn) {
	defer c.Close()
	for {
		b, oob := make([]byte, 64), make([]byte, 64)
		n, oobn, _, _, err := c.ReadMsgUnix(b, oob)
		if err != nil || n == 0 {
			return
		}
		if oobn > 0 {
			a.passed.Add(1)
		}
		null, err := os.Open(os.DevNull)
		if err != nil {
			return
		}
		_, _, err = c.WriteMsgUnix(b[:n], unix.UnixRights(int(null.Fd())), nil)
		null.Close()
		if err != nil {
			return
		}
	}
}

// run --socket lets the command connect to one socket of the host, and the audit log names the
// socket. Bytes pass in both directions, and descriptors in neither. revoke with the socket's name
// cuts a live connection, and so does revoke --all. Later connections are refused.
func TestGrantedSocket(t *testing.T) {
	eachUser(t, func(t *testing.T, o *outside) {
		host := o.newEchoSocket("answering")
		if out, err := exec.Command(filepath.Join(programsDir(t), "hostile"), "-dial", host.path, "once").CombinedOutput(); err != nil || string(out) != "answered, with 1 descriptor\n" {
			t.Fatalf("outside: %v: %s", err, out)
		}
		if host.passed.Swap(0) != 1 {
			t.Fatal("outside no descriptor arrives: the test shows nothing")
		}
		for _, revoke := range [][]string{{"talker"}, {"--all"}} {
			o.resetRoot()
			s := o.startShell(sandbox.Namespaces, "--root", "root="+o.root+":rw", "--env", "AGENT="+host.path, "--socket", "talker="+host.path)
			s.want("", "cp hostile $HOME/") // revoke --all takes the root, but not HOME
			s.want("Connection refused or absent", "$HOME/hostile -dial "+host.path+" once >/dev/null 2>&1 || echo Connection refused or absent")
			s.want("", `$HOME/hostile -dial "$AGENT" >$HOME/log 2>&1 & until test -s $HOME/log; do sleep 0.05; done`)
			var st []struct{ Sockets []struct{ Name, Path string } }
			testkit.Must(t, json.Unmarshal([]byte(o.owner("status", "--json", "--session", sessionName)), &st))
			if len(st) != 1 || len(st[0].Sockets) != 1 || st[0].Sockets[0].Name != "talker" || st[0].Sockets[0].Path != host.path {
				t.Errorf("status --json lists %v", st)
			}
			if output := o.owner("status", "--session", sessionName); !strings.Contains(output, "socket talker: "+host.path) {
				t.Errorf("status: %s", output)
			}
			if output := o.owner(append([]string{"revoke", "--session", sessionName}, revoke...)...); !strings.Contains(output, "talker: revoked") {
				t.Errorf("revoke %v: %s", revoke, output)
			}
			s.want("answered, with 0 descriptors\ncut", "wait; cat $HOME/log")
			s.want("refused", `$HOME/hostile -dial "$AGENT" once >/dev/null 2>&1 || echo refused`)
			if output := o.owner("status", "--session", sessionName); strings.Contains(output, "socket talker") {
				t.Errorf("status after revoke: %s", output)
			}
			testkit.Must(t, s.in.Close())
			o.until("the end of the session", func() bool { _, err := os.Stat(o.Session); return os.IsNotExist(err) })
			records := o.owner("audit", "show", "--session", sessionName, "--json")
			for _, want := range []string{"socket talker: " + host.path, `"socket talker"`} {
				if !strings.Contains(records, want) {
					t.Errorf("no record says %q: %s", want, records)
				}
			}
		}
		if n := host.passed.Load(); n != 0 {
			t.Errorf("%d messages arrived outside with descriptors", n)
		}
	})
}

// With --socket, ssh-add inside reaches the agent outside, although SSH_AUTH_SOCK holds a path of
// the host. Without --socket, ssh-add does not reach the agent.
func TestGrantedAgent(t *testing.T) {
	eachUser(t, func(t *testing.T, o *outside) {
		at := filepath.Join(o.base, "tmp", "agent.17")
		testkit.Must(t, os.Mkdir(filepath.Dir(at), 0o700))
		o.give(filepath.Dir(at), 0o700)
		script := "ssh-keygen -q -t ed25519 -N '' -C key -f " + filepath.Dir(at) + "/key && exec ssh-agent -a " + at + " sh -c 'ssh-add -q " + filepath.Dir(at) + "/key && echo ready && exec cat'"
		agent := o.driver(order{Bare: true, Args: []string{"/bin/sh", "-c", script}, Env: o.env})
		in, err := agent.StdinPipe()
		testkit.Must(t, err)
		out, err := agent.StdoutPipe()
		testkit.Must(t, err)
		agent.Stderr = os.Stderr
		testkit.Must(t, agent.Start())
		t.Cleanup(func() {
			in.Close()
			_ = agent.Wait() // the agent ends with its command
		})
		if _, err := out.Read(make([]byte, 16)); err != nil {
			t.Fatal("the agent is not ready: ", err)
		}
		o.env = append(o.env, "SSH_AUTH_SOCK="+at)
		for _, c := range []struct {
			flags []string
			want  string
		}{{[]string{"--socket", at}, "256 key (ED25519)\n"}, {[]string{"--net", "--socket", at}, "256 key (ED25519)\n"}, {[]string{"--env", "SSH_AUTH_SOCK"}, ""}} {
			args := append([]string{"run", "--name", sessionName, "--level", "namespaces", "--root", "root=" + o.root + ":ro"}, c.flags...)
			stdout, log, _ := o.run(order{Args: o.rootsfs(append(args, "--", "sh", "-c", "ssh-add -l | cut -d' ' -f1,3,4")...)})
			if stdout != c.want {
				t.Errorf("%v: %q, want %q: %s", c.flags, stdout, c.want, log)
			}
		}
	})
}

// --socket is refused at levels that cannot distinguish sockets of the host, and with the name of a
// root. It is also refused for a file that is not a socket, for a socket of rootsfs itself, for an
// empty path, and for a path that leads through another user's symbolic link.
func TestSocketRefused(t *testing.T) {
	eachUser(t, func(t *testing.T, o *outside) {
		o.addTargets()
		host := o.newEchoSocket("answering")
		theirs := filepath.Join(o.Dir, "link")
		testkit.Must(t, os.Symlink(host.path, theirs))
		testkit.Must(t, os.Lchown(theirs, 4711, 4711))
		for _, c := range []struct {
			flags []string
			want  string
		}{
			{[]string{"--level", "landlock", "--socket", host.path}, "level namespaces only"},
			{[]string{"--level", "bubblewrap", "--socket", host.path}, "level namespaces only"},
			{[]string{"--unconfined", "--socket", host.path}, "level namespaces only"},
			{[]string{"--socket", o.Secret}, "is not a Unix socket"},
			{[]string{"--socket", o.Control}, "no command may reach"},
			{[]string{"--socket", ""}, "--socket is empty"},
			{[]string{"--socket", theirs}, "can change"},
			{[]string{"--socket", "root=" + host.path}, "a root is called"},
		} {
			args := append([]string{"run", "--root", "root=" + o.root + ":ro"}, c.flags...)
			stdout, log, code := o.run(order{Args: o.rootsfs(append(args, "--", "echo", "started")...)})
			if code == 0 || stdout != "" || !strings.Contains(log, c.want) {
				t.Errorf("%v: exit code %d, %q: %s", c.flags, code, stdout, log)
			}
		}
	})
}
