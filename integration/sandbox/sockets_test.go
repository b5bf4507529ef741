package sandbox

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// At level Namespaces the command's own processes can talk to each other over Unix sockets,
// in HOME, TMPDIR and XDG_RUNTIME_DIR, in a writable root and by abstract names, as tmux,
// agents, language servers and git's fsmonitor do.
func TestOwnSockets(t *testing.T) {
	eachUser(t, func(t *testing.T, o *outside) {
		args := []string{"run", "--name", sessionName, "--level", "namespaces", "--root", "root=" + o.root + ":rw", "--", "./hostile", "-own"}
		if stdout, log, code := o.run(order{Args: o.rootsfs(args...)}); stdout != "" || code != 0 {
			t.Errorf("exit code %d: %s%s", code, stdout, log)
		}
	})
}

// A command cannot connect to a socket of the host in a HOME that --home keeps. If --socket grants
// another socket, the command may use Unix sockets, and can connect to the one in HOME, too.
// status reports this hole.
func TestSocketsInKeptHome(t *testing.T) {
	eachUser(t, func(t *testing.T, o *outside) {
		o.resetFiles()
		o.resetRoot()
		host, granted := o.newEchoSocket("host").path, o.newEchoSocket("granted").path
		at := filepath.Join(o.home, "socket")
		testkit.Must(t, os.Link(host, at))
		for _, tc := range []struct {
			name   string
			flags  []string
			output string
			hole   bool // whether status reports the hole
		}{
			{"no network", nil, "address family not supported by protocol", false},
			{"network", []string{"--net"}, "address family not supported by protocol", false},
			{"granted", []string{"--socket", granted}, "answered, with 1 descriptor", true},
		} {
			t.Run(tc.name, func(t *testing.T) {
				o.t = t
				s := o.startShell(sandbox.Namespaces, append(tc.flags, "--root", "root="+o.root, "--home", o.home)...)
				if output := s.do("./hostile -dial $HOME/socket once"); !strings.Contains(output, tc.output) {
					t.Errorf("the command said %q", output)
				}
				st := o.owner("status", "--json", "--session", sessionName)
				if strings.Contains(st, "a socket of the host's in the directory that is its HOME") != tc.hole {
					t.Errorf("the hole in the status: want %v; status: %s", tc.hole, st)
				}
			})
		}
	})
}

// If the standard streams of rootsfs are sockets, as Node gives them to its children, the streams
// of the command are not sockets, and no descriptor of the command arrives.
func TestSocketStreams(t *testing.T) {
	eachUser(t, func(t *testing.T, o *outside) {
		for _, r := range runs {
			log, passed := o.passDescriptors(r)
			if r.level == bare && !passed {
				t.Fatalf("without rootsfs no descriptor arrives: %s", log)
			}
			if r.level == bare {
				continue
			}
			if passed || strings.Count(log, "socket operation on non-socket") != 3 {
				t.Errorf("%s: a descriptor arrived: %v; the command said %s", r.name, passed, log)
			}
		}
	})
}

// passDescriptors runs the hostile program with one socket as all three standard streams. It
// returns the program's output and whether a descriptor arrived.
func (o *outside) passDescriptors(r run) (log string, passed bool) {
	t := o.t
	t.Helper()
	o.resetRoot()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	testkit.Must(t, err)
	defer unix.Close(pair[0])
	childEnd := os.NewFile(uintptr(pair[1]), "socket")
	cmd := o.driver(o.command(r, nil, "hostile", "-pass"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = childEnd, childEnd, childEnd
	inherited, err := os.Open(os.DevNull) // descriptor 3 of rootsfs, which the command must not get
	testkit.Must(t, err)
	defer inherited.Close()
	cmd.ExtraFiles = []*os.File{inherited}
	testkit.Must(t, cmd.Start())
	testkit.Must(t, childEnd.Close())
	timer := time.AfterFunc(giveUp, func() { _ = unix.Shutdown(pair[0], unix.SHUT_RDWR) })
	defer timer.Stop()
	var output bytes.Buffer
	for {
		b, oob := make([]byte, 4096), make([]byte, 256)
		n, oobn, _, _, err := unix.Recvmsg(pair[0], b, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			break
		}
		output.Write(b[:n])
		if oobn > 0 {
			passed = true
			closeRights(t, oob[:oobn]) // the descriptor is a copy of childEnd: while the copy is open, Recvmsg waits
		}
	}
	_ = cmd.Wait() // the output is checked
	return output.String(), passed
}

func closeRights(t *testing.T, oob []byte) {
	t.Helper()
	parts, err := unix.ParseSocketControlMessage(oob)
	testkit.Must(t, err)
	for _, p := range parts {
		fds, err := unix.ParseUnixRights(&p)
		testkit.Must(t, err)
		for _, fd := range fds {
			testkit.Must(t, unix.Close(fd))
		}
	}
}

// The command sees changes of the host's system directories after a while: a file that was
// missing at the first look-up, and a file that was replaced.
func TestSystemRefreshed(t *testing.T) {
	eachUser(t, func(t *testing.T, o *outside) {
		dir := o.makeSystemDir()
		old, late := filepath.Join(dir, "old"), filepath.Join(dir, "late")
		testkit.Must(t, os.WriteFile(old, []byte("old"), 0o644))
		s := o.startShell(sandbox.Namespaces)
		s.want("old", "cat "+old+"; cat "+late+" 2>/dev/null")
		testkit.Must(t, os.WriteFile(late, []byte("late"), 0o644))
		testkit.Must(t, os.WriteFile(old+".new", []byte("new"), 0o644))
		testkit.Must(t, os.Rename(old+".new", old))
		o.until("the new file in the old one's place", func() bool { return s.do("cat "+old+" "+late+" 2>/dev/null") == "newlate" })
	})
}
