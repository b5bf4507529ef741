package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/proxy"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// stdinVar makes the test binary copy its standard input, read as the proxy reads it, to its
// standard output. The binary fails if its standard output is non-blocking afterwards, because
// other holders of the same open file would notice.
const stdinVar = "ROOTSFS_PROXY_STDIN"

func copyStdin() error {
	in := proxy.Stdin()
	if _, err := io.Copy(os.Stdout, in); err != nil {
		return err
	}
	flags, err := unix.FcntlInt(1, unix.F_GETFL, 0)
	if err == nil && flags&unix.O_NONBLOCK != 0 {
		err = errors.New("standard output was made non-blocking")
	}
	return err
}

// A pipe, a file, /dev/null and a socket as standard input are read to the end, a file from its
// current position. Standard output stays blocking.
func TestStdin(t *testing.T) {
	self, err := os.Executable()
	testkit.Must(t, err)
	const text = "first\nsecond\n"
	file := filepath.Join(t.TempDir(), "in")
	testkit.Must(t, os.WriteFile(file, []byte("skipped\n"+text), 0o644))
	opened, err := os.Open(file)
	testkit.Must(t, err)
	defer opened.Close()
	_, err = opened.Seek(int64(len("skipped\n")), io.SeekStart)
	testkit.Must(t, err)
	for name, in := range map[string]io.Reader{"pipe": strings.NewReader(text), "file": opened, "nothing": nil} {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), stdinVar+"=1")
		cmd.Stdin = in
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		want := text
		if in == nil {
			want = ""
		}
		if err := cmd.Run(); err != nil || out.String() != want {
			t.Errorf("%s: %q, %v\n%s", name, &out, err, &errs)
		}
	}
	for name, both := range map[string]bool{"socket": false, "one socket for input and output": true} {
		mine, theirs := socketpair(t)
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), stdinVar+"=1")
		cmd.Stdin = theirs
		var out bytes.Buffer
		if cmd.Stdout = &out; both {
			cmd.Stdout = theirs
		}
		testkit.Must(t, cmd.Start())
		testkit.Must(t, theirs.Close())
		_, err := io.WriteString(mine, text)
		testkit.Must(t, err)
		testkit.Must(t, mine.(*net.UnixConn).CloseWrite())
		var back []byte
		if both {
			back, err = io.ReadAll(mine)
			testkit.Must(t, err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := out.String() + string(back); got != text {
			t.Errorf("%s: %q", name, got)
		}
		testkit.Must(t, mine.Close())
	}
}

func socketpair(t *testing.T) (mine net.Conn, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	testkit.Must(t, err)
	f := os.NewFile(uintptr(fds[0]), "mine")
	mine, err = net.FileConn(f)
	testkit.Must(t, err)
	testkit.Must(t, f.Close())
	return mine, os.NewFile(uintptr(fds[1]), "theirs")
}
