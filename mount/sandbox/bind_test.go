package sandbox

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/landlock"
)

// inner is a shell inside that runs lines for the test.
type inner struct {
	t   *testing.T
	p   *Process
	out *bufio.Reader
}

func startShell(t *testing.T, o Options) *inner {
	t.Helper()
	o.Args = []string{"sh"}
	p, err := Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	s := &inner{t, p, bufio.NewReader(p.Stdout())}
	t.Cleanup(func() {
		p.Stdin().Close()
		if exit, err := p.Wait(); err != nil || exit.Signal != 0 {
			t.Errorf("the shell ended with %+v, %v", exit, err)
		}
		p.Stdout().Close()
		p.Stderr().Close()
	})
	return s
}

// do runs a line and returns its output.
func (s *inner) do(format string, args ...any) string {
	s.t.Helper()
	fmt.Fprintf(s.p.Stdin(), "{ %s; } 2>&1; echo; echo '<end>'\n", fmt.Sprintf(format, args...))
	var output strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			s.t.Fatalf("after %q: %v", output.String(), err)
		}
		if line == "<end>\n" {
			return strings.TrimSpace(output.String())
		}
		output.WriteString(line)
	}
}

func (s *inner) want(want, format string, args ...any) {
	s.t.Helper()
	if got := s.do(format, args...); got != want {
		s.t.Errorf("%s: %q, want %q", fmt.Sprintf(format, args...), got, want)
	}
}

// spareTree makes a tree with a file "note" and the directories spare/0 to spare/2. The modes of
// these directories let the command write to them, if Landlock permits it.
func spareTree(t *testing.T) string {
	t.Helper()
	point := tree(t, "spare/0", "spare/1", "spare/2", "home/u/code")
	for i := range 3 {
		dir := fmt.Sprintf("%s/spare/%d", point, i)
		put(t, dir+"/f", fmt.Sprint("of ", i))
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	put(t, point+"/note", "a note")
	return point
}

// R063: a root bound while the command runs appears at once, at its path and nowhere
// else, and can be written to. After Unbind it is gone, with the directories made for it.
// This holds at the top, in the system's directories, and in the command's own.
func TestBind(t *testing.T) {
	o := Options{Level: Namespaces, Tree: spareTree(t), Spare: []string{"spare/0", "spare/1"}, Roots: []string{"/home/u/code"}}
	s := startShell(t, o)
	// Names that begin with rootsfs- are not counted: other tests make such directories in the
	// host's /usr.
	listing := "ls -d /* /etc/* /var/* /var/lib/* /run/* /tmp/* /private/* 2>/dev/null; ls -A /usr/share /usr/local | grep -vc ^rootsfs-; cat /etc/hostname"
	before := s.do("%s", listing)
	for _, at := range []string{"/no-such-top", "/no-such-top/x/y", "/usr/share", "/usr/local/bin", "/etc/new", "/etc/new/x", "/etc", "/var/lib/x", "/run/x/y", "/tmp/x", "/tmp", "/private/tmp/x"} {
		for range 2 {
			was := s.do("cat %s/f", at)
			if err := s.p.Bind("spare/0", at); err != nil {
				t.Fatalf("%s: %v", at, err)
			}
			s.want("of 0", "cat %s/f", at)
			s.want("new", "cd %s && echo new >made && cat made && rm made", at)
			s.want("f", "ls -A %s", at)
			s.want("nodev,nosuid", "sed -n 's,.* %s \\(.*\\) - .*,\\1,p' /proc/self/mountinfo | tail -1 | tr , '\\n' | grep -E '^no(dev|suid)' | sort | paste -sd,", at)
			// Another root at the same path.
			if err := s.p.Bind("spare/1", at); err != nil {
				t.Fatalf("%s again: %v", at, err)
			}
			s.want("of 1", "cat %s/f", at)
			// A root that the command holds open is removed, too.
			s.do("cd %s", at)
			if err := s.p.Unbind(at); err != nil {
				t.Fatal(err)
			}
			s.do("cd /")
			s.want(was, "cat %s/f", at)
		}
		s.want(before, "%s", listing)
	}
}

// A file can be bound over a file and at a free path, in the minimal root and in a private
// directory. A file or directory cannot be bound at a wrong path or over one of another kind.
func TestBindFile(t *testing.T) {
	o := Options{Level: Namespaces, Tree: spareTree(t), Spare: []string{"spare/0"}}
	s := startShell(t, o)
	for _, at := range []string{"/etc/note", "/no-such-file", "/etc/passwd", "/tmp/note"} {
		was := s.do("cat %s", at)
		if err := s.p.Bind("note", at); err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		s.want("a note", "cat %s", at)
		if err := s.p.Unbind(at); err != nil {
			t.Fatal(err)
		}
		s.want(was, "cat %s", at)
	}
	for what, c := range map[string]struct{ from, at string }{
		"a directory over a file": {"spare/0", "/etc/passwd"}, "a file over a directory": {"note", "/usr"},
		"something that is not there": {"none", "/x"}, "something outside the tree": {"../x", "/x"}, "by an absolute path": {"/etc", "/x"},
		"at the root": {"spare/0", "/"}, "at a relative path": {"spare/0", "x"}, "behind a file": {"spare/0", "/etc/passwd/x"},
	} {
		if err := s.p.Bind(c.from, c.at); err == nil {
			t.Errorf("%s can be bound", what)
		}
	}
	s.want("none", "ls -d /x 2>/dev/null || echo none")
}

// Bind succeeds while the file in the tree is replaced again and again. In a real tree, the server
// may drop a name and provide it again when a root is granted or revoked.
func TestBindWhileNamesChange(t *testing.T) {
	point := spareTree(t)
	o := Options{Level: Namespaces, Tree: point, Spare: []string{"spare/0"}}
	s := startShell(t, o)
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			err := os.WriteFile(point+"/new", []byte("a note"), 0o644)
			if err == nil {
				err = os.Rename(point+"/new", point+"/note")
			}
			if err != nil {
				stopped <- err
				return
			}
		}
	}()
	for range 300 {
		if err := s.p.Bind("note", "/etc/note"); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	s.want("a note", "cat /etc/note")
}

// Below a directory that the command could not write to at the start, it can write only to binds
// of spare directories, because Landlock's rules do not change after the start. The command cannot
// reach the whole tree, which the init keeps in /.rootsfs.
func TestBindNonSpareDirectory(t *testing.T) {
	if abi, _, err := landlock.ABI(); err != nil || abi == 0 {
		t.Skip("the kernel has no Landlock")
	}
	o := Options{Level: Namespaces, Tree: spareTree(t), Spare: []string{"spare/0"}}
	s := startShell(t, o)
	if err := s.p.Bind("spare/2", "/no-such-top"); err != nil {
		t.Fatal(err)
	}
	s.want("of 2", "cat /no-such-top/f")
	if got := s.do("echo x >/no-such-top/made"); !strings.Contains(got, "Permission denied") {
		t.Errorf("writing to a directory that is not spare: %q", got)
	}
	s.want("none", "cat /.rootsfs/tree/note 2>/dev/null; ls /.rootsfs 2>/dev/null; chmod 755 /.rootsfs 2>/dev/null || echo none")
}

// A root that Start has bound can be unbound, and bound again.
func TestUnbindSingle(t *testing.T) {
	point := spareTree(t)
	put(t, filepath.Join(point, "usr/share/doc/f"), "of the start")
	o := Options{Level: Namespaces, Tree: point, Spare: []string{"spare/0"}, Roots: []string{"/usr/share/doc"}}
	s := startShell(t, o)
	s.want("of the start", "cat /usr/share/doc/f")
	if got := s.p.BoundRoots(); len(got) != 1 || got[0] != "/usr/share/doc" || s.p.Follows(got[0]) || !s.p.Follows("/home/x") {
		t.Errorf("BoundRoots = %q, want only /usr/share/doc; or Follows is wrong", got)
	}
	if err := s.p.Unbind("/usr/share/doc"); err != nil {
		t.Fatal(err)
	}
	s.want("gone", "cat /usr/share/doc/f 2>/dev/null || echo gone")
	if err := s.p.Bind("spare/0", "/usr/share/doc"); err != nil {
		t.Fatal(err)
	}
	s.want("of 0", "cat /usr/share/doc/f")
}

// A command cannot redirect a bind by files in its own directories, and cannot prevent an
// unbind.
func TestBindHostile(t *testing.T) {
	o := Options{Level: Namespaces, Tree: spareTree(t), Spare: []string{"spare/0"}}
	s := startShell(t, o)
	s.do("ln -s /etc /tmp/link; ln -s /proc/self/root /tmp/magic; echo >/tmp/file; mkdir /tmp/dir; mkfifo /tmp/fifo")
	for _, at := range []string{"/tmp/link", "/tmp/link/x", "/tmp/magic/etc", "/tmp/file", "/tmp/file/x", "/tmp/fifo"} {
		if err := s.p.Bind("spare/0", at); err == nil {
			t.Errorf("bound at %s", at)
		}
	}
	if err := s.p.Bind("spare/0", "/tmp/dir/x"); err != nil {
		t.Fatal(err)
	}
	s.want("of 0", "mv /tmp/dir /tmp/moved; ln -s /usr /tmp/dir; cat /tmp/moved/x/f")
	if err := s.p.Unbind("/tmp/dir/x"); err != nil {
		t.Fatal(err)
	}
	s.want("gone", "cat /tmp/moved/x/f 2>/dev/null || echo gone")
	// A root can still be bound in a sandbox that has reached its limit of processes.
	s.do("ulimit -u 3 2>/dev/null; for i in 1 2 3 4 5 6 7 8; do sleep 100 & done 2>/dev/null")
	if err := s.p.Bind("spare/0", "/late"); err != nil {
		t.Fatal(err)
	}
	s.want("of 0", "while read -r l; do echo \"$l\"; done </late/f; read -r l </late/f || echo \"$l\"")
}
