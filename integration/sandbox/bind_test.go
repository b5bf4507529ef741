package sandbox

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// pipedShell is a confined shell that runs lines from the test.
type pipedShell struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startShell starts a shell by `rootsfs run` with further flags.
func (o *outside) startShell(level sandbox.Level, flags ...string) *pipedShell {
	o.t.Helper()
	args := append([]string{"run", "--name", sessionName, "--level", level.String(), "--mcp", "off"}, flags...)
	cmd := o.driver(order{Args: o.rootsfs(append(args, "--", "sh")...)})
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	testkit.Must(o.t, err)
	out, err := cmd.StdoutPipe()
	testkit.Must(o.t, err)
	testkit.Must(o.t, cmd.Start())
	s := &pipedShell{o.t, cmd.Cmd, in, bufio.NewReader(out)}
	o.t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			o.t.Errorf("the run: %v", err)
		}
	})
	s.want("hello", "echo hello")
	return s
}

// do runs a line in the shell and returns its output.
func (s *pipedShell) do(line string) string {
	s.t.Helper()
	fmt.Fprintf(s.in, "{ %s; } 2>&1; echo; echo '<end>'\n", line)
	var output strings.Builder
	for {
		l, err := s.out.ReadString('\n')
		if err != nil {
			s.t.Fatalf("%s: %q, %v", line, output.String(), err)
		}
		if l == "<end>\n" {
			return strings.TrimSpace(output.String())
		}
		output.WriteString(l)
	}
}

// want checks the output of a line.
func (s *pipedShell) want(want, line string) {
	s.t.Helper()
	if got := s.do(line); got != want {
		s.t.Errorf("%s: %q, want %q", line, got, want)
	}
}

// owner runs rootsfs with args as the owner, and returns its output.
func (o *outside) owner(args ...string) string {
	o.t.Helper()
	out, err := o.ownerCommand(args...).CombinedOutput()
	if err != nil {
		o.t.Fatalf("rootsfs %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// hostDirs makes directories on the host, each with a file f. Tests grant the directories as roots.
// early has a directory at the top of the file system. late has directories at the top and in many
// directories of the host. TestLater calls hostDirs twice: for early before the command starts, and
// for late afterwards.
func (o *outside) hostDirs() (early, late []string) {
	t := o.t
	makeIn := func(parent string) string {
		dir, err := os.MkdirTemp(parent, "rootsfs-later-")
		testkit.Must(t, err)
		t.Cleanup(func() { testkit.Must(t, os.RemoveAll(dir)) })
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("of the host"), 0o644))
		testkit.Must(t, os.Chmod(dir, 0o755))
		testkit.Must(t, os.Chmod(filepath.Join(dir, "f"), 0o644))
		o.own(dir)
		o.own(filepath.Join(dir, "f"))
		return dir
	}
	early = []string{makeIn("/")}
	for _, parent := range []string{"/", "/srv", "/opt", "/usr/local", "/usr/share", "/etc", "/var/lib", "/var/tmp", "/run", "/tmp"} {
		if _, err := os.Stat(parent); err == nil {
			late = append(late, makeIn(parent))
		}
	}
	return early, late
}

// R063: a root that is granted while the command runs is visible to the command, at the root's own
// path, when the grant is answered. The root's directory may lie at the top of the file system, in
// the system's directories, or in a directory that the command has its own version of, such as
// /tmp. A directory at the top may be older or newer than the command. The root can be written to if
// it is granted rw. Once the root is revoked, the root and everything that a program holds of it are
// dead at once. Nothing else appears with the root.
func TestLater(t *testing.T) {
	for _, w := range callers {
		t.Run(w.name, func(t *testing.T) {
			o := newOutside(t, w)
			early, _ := o.hostDirs()
			s := o.startShell(sandbox.Namespaces)
			_, late := o.hostDirs()
			// /usr/share and /usr/local are the host's, so the directories that other tests make
			// there are left out. The other directories are the command's own.
			all := "ls -A / /etc /run /tmp /var /var/tmp /srv /opt; ls /usr/share /usr/local | grep -v 'rootsfs-later\\|rootsfs-hostile'"
			found := s.do(all)
			for _, dir := range append(early, late...) {
				for _, mode := range []string{"ro", "rw"} {
					if output := o.owner("roots", "add", "--session", sessionName, "--allow-system", "late="+dir+":"+mode); strings.Contains(output, "running command") {
						t.Errorf("%s: %s", dir, output)
					}
					s.want("of the host", "cat "+dir+"/f")
					s.want(dir+"\nf", "cd "+dir+" && pwd && ls -A")
					if got := s.do("echo made >" + dir + "/made && cat " + dir + "/made && rm " + dir + "/made"); (got == "made") != (mode == "rw") {
						t.Errorf("writing to %s, %s: %q", dir, mode, got)
					}
					s.do("cd " + dir + "; exec 5<f")
					o.owner("revoke", "--session", sessionName, "late")
					if got := s.do("cat <&5; cat ./f"); strings.Contains(got, "of the host") {
						t.Errorf("%s after it was revoked: %s", dir, got)
					}
					s.do("exec 5<&-; cd /")
					if !strings.HasPrefix(dir, "/usr") { // every user may read /usr without a root
						if got := s.do("cat " + dir + "/f"); strings.Contains(got, "of the host") {
							t.Errorf("%s after it was revoked: %s", dir, got)
						}
					}
				}
			}
			o.until("the directories list only what they did before the grants", func() bool { return s.do(all) == found })
			status := o.owner("status", "--session", sessionName)
			if strings.Contains(status, "note:") {
				t.Errorf("status: %s", status)
			}
		})
	}
}

// Roots that are granted from the start are visible again after they were revoked and granted
// again, as in TestLater. So are the roots that are granted inside these roots' directories; all
// of them are live at the same time.
func TestLaterAgain(t *testing.T) {
	for n, w := range callers {
		t.Run(w.name, func(t *testing.T) {
			o := newOutside(t, w)
			early, late := o.hostDirs()
			all := append(early, late...)
			var flags []string
			for i, dir := range all {
				testkit.Must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
				o.own(filepath.Join(dir, "sub"))
				testkit.Must(t, os.WriteFile(filepath.Join(dir, "sub/g"), []byte("deep"), 0o644))
				flags = append(flags, "--root", fmt.Sprintf("r%d=%s:rw", i, dir))
			}
			s := o.startShell(sandbox.Namespaces, append(flags, "--allow-system")...)
			// In one round root revokes and grants each root with an order of its own. The other
			// orders name several roots, because each order starts a program.
			for _, size := range [][]int{{1, len(all)}, {4, len(all)}}[n] {
				for group := range slices.Chunk(all, size) {
					laterAgainInside(o, s, all, group)
				}
				for group := range slices.Chunk(all, size) {
					laterAgainAround(o, s, all, group)
				}
				// When r0 ends, the registry forgets that s0 was revoked inside r0, and so on.
				revoke := []string{"revoke", "--session", sessionName}
				for i := range all {
					revoke = append(revoke, fmt.Sprint("r", i))
				}
				o.owner(revoke...)
				o.grantAround(all, all)
			}
		})
	}
}

// laterAgainInside revokes the roots of the directories in group, and grants roots inside these
// directories.
func laterAgainInside(o *outside, s *pipedShell, all, group []string) {
	o.t.Helper()
	revoke, add := []string{"revoke", "--session", sessionName}, []string{"roots", "add", "--session", sessionName}
	for _, dir := range group {
		i := slices.Index(all, dir)
		s.want("of the host", "cat "+dir+"/f")
		revoke, add = append(revoke, fmt.Sprint("r", i)), append(add, fmt.Sprintf("s%d=%s/sub", i, dir))
	}
	o.owner(revoke...)
	for _, dir := range group {
		if got := s.do("ls " + dir + "/sub/.."); strings.Contains(got, "f\n") && !strings.HasPrefix(dir, "/usr") {
			o.t.Errorf("%s after it was revoked: %q", dir, got)
		}
	}
	o.owner(add...)
	for _, dir := range group {
		s.want("deep", "cat "+dir+"/sub/g")
	}
}

// laterAgainAround grants the roots that laterAgainInside has revoked, and then revokes the roots
// inside them.
func laterAgainAround(o *outside, s *pipedShell, all, group []string) {
	o.t.Helper()
	o.grantAround(all, group)
	revoke := []string{"revoke", "--session", sessionName}
	for _, dir := range group {
		revoke = append(revoke, fmt.Sprint("s", slices.Index(all, dir)))
		s.want("of the host", "cat "+dir+"/f")
		s.want("deep", "cat "+dir+"/sub/g")
		s.want("refused", "echo x 2>/dev/null >"+dir+"/sub/g || echo refused")
		s.want("made", "echo made >"+dir+"/made && cat "+dir+"/made && rm "+dir+"/made")
	}
	o.owner(revoke...)
	for _, dir := range group {
		if got := s.do("cat " + dir + "/sub/g"); strings.Contains(got, "deep") {
			o.t.Errorf("%s/sub after it was revoked, through the root around it: %q", dir, got)
		}
	}
}

// grantAround grants the directories in group as roots that can be written to. The running command
// sees them.
func (o *outside) grantAround(all, group []string) {
	o.t.Helper()
	add := []string{"roots", "add", "--session", sessionName, "--allow-system"}
	for _, dir := range group {
		add = append(add, fmt.Sprintf("r%d=%s:rw", slices.Index(all, dir), dir))
	}
	if output := o.owner(add...); strings.Contains(output, "running command") {
		o.t.Errorf("%s: %s", group, output)
	}
}

// If the host replaces a file that is a root, as editors do, the root shows the new file of that
// name. It does so although the mount for the command is a bind mount of the file, not of its
// directory. This holds for roots from the start and for roots that are granted later.
func TestLaterReplaced(t *testing.T) {
	eachUser(t, func(t *testing.T, o *outside) {
		dir, err := os.MkdirTemp("/etc", "rootsfs-later-")
		testkit.Must(t, err)
		t.Cleanup(func() { testkit.Must(t, os.RemoveAll(dir)) })
		testkit.Must(t, os.Chmod(dir, 0o755))
		replaceFile := func(name, text string) string {
			path := filepath.Join(dir, "new")
			testkit.Must(t, os.WriteFile(path, []byte(text), 0o644))
			o.own(path)
			testkit.Must(t, os.Rename(path, filepath.Join(dir, name)))
			return filepath.Join(dir, name)
		}
		first, second := replaceFile("first", "one"), replaceFile("second", "one")
		s := o.startShell(sandbox.Namespaces, "--root", "first="+first)
		o.owner("roots", "add", "--session", sessionName, "second="+second)
		for _, text := range []string{"one", "two", "three"} {
			replaceFile("first", text)
			replaceFile("second", text)
			for _, at := range []string{first, second} {
				o.until(at+" shows "+text, func() bool { return s.do("cat "+at) == text })
			}
		}
		o.owner("revoke", "--session", sessionName, "first", "second")
		for _, at := range []string{first, second} {
			if got := s.do("cat " + at); strings.Contains(got, "three") {
				t.Errorf("%s after it was revoked: %q", at, got)
			}
		}
	})
}

// If a root cannot be shown at a weaker level, the grant reports this, and the root is granted
// nevertheless.
func TestLaterNotShown(t *testing.T) {
	o := newOutside(t, callers[0])
	s := o.startShell(sandbox.Bubblewrap)
	early, late := o.hostDirs()
	for i, dir := range append(early, late...) {
		output := o.owner("roots", "add", "--session", sessionName, "--allow-system", fmt.Sprintf("r%d=%s", i, dir))
		visible := strings.HasPrefix(dir, "/srv/") || strings.HasPrefix(dir, "/opt/")
		if seen := s.do("cat "+dir+"/f") == "of the host"; seen != visible && !strings.HasPrefix(dir, "/usr") {
			t.Errorf("%s is seen: %v", dir, seen)
		}
		if reported := strings.Contains(output, "the running command does not see"); reported == visible {
			t.Errorf("%s: %s", dir, output)
		}
	}
}

// A running command sees a limited number of roots that are granted later. The grant of a further
// root reports that the command does not see it.
func TestLaterBounds(t *testing.T) {
	o := newOutside(t, callers[0])
	s := o.startShell(sandbox.Namespaces)
	var dirs []string
	seenOf := func(dirs []string) (n int) {
		for _, dir := range dirs {
			if s.do("cat "+dir+"/f") == "of the host" {
				n++
			}
		}
		return n
	}
	unseen := 0
	for i := range 12 {
		dir, err := os.MkdirTemp("/etc", "rootsfs-later-")
		testkit.Must(t, err)
		t.Cleanup(func() { testkit.Must(t, os.RemoveAll(dir)) })
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("of the host"), 0o644))
		dirs = append(dirs, dir)
		output := o.owner("roots", "add", "--session", sessionName, fmt.Sprintf("r%d=%s", i, dir))
		seen := s.do("cat "+dir+"/f") == "of the host"
		if not := strings.Contains(output, "the running command does not see"); not == seen {
			t.Errorf("root %d is seen: %v; its grant said: %s", i, seen, output)
		} else if not {
			unseen++
		}
	}
	if unseen == 0 || unseen == len(dirs) {
		t.Errorf("%d of %d grants reported an unseen root, want some, but not all", unseen, len(dirs))
	}
	// When a root ends, the command sees another root instead.
	o.owner("revoke", "--session", sessionName, "r0")
	o.until("another root is seen instead", func() bool { return seenOf(dirs[1:]) == len(dirs)-unseen })
	// A root that is a single file is visible. If the rules that were set when the command started
	// do not permit writing to the file, the grant says so.
	file := filepath.Join("/etc", filepath.Base(dirs[0])+".conf")
	testkit.Must(t, os.WriteFile(file, []byte("of a file"), 0o644))
	t.Cleanup(func() { testkit.Must(t, os.Remove(file)) })
	output := o.owner("roots", "add", "--session", sessionName, "--allow-system", "file="+file+":rw")
	s.want("of a file", "cat "+file)
	if got := s.do("echo x >" + file); !strings.Contains(got, "Permission denied") || !strings.Contains(output, "can only read") {
		t.Errorf("writing to a single file: %q; its grant said: %s", got, output)
	}
}
