package serve

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// rootServer is a server with one writable root "w", and a directory outside.
type rootServer struct {
	*stdioServer
	home     *home
	dir, out string
}

func newRootServer(t *testing.T, tree ...string) *rootServer {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	testkit.Must(t, err)
	o := &rootServer{home: newHome(t), dir: filepath.Join(base, "w"), out: filepath.Join(base, "outside")}
	guardtest.Tree(t, base, "", "w/", "w-sibling/f=sibling", "outside/f=secret")
	guardtest.Tree(t, o.dir, o.out, tree...)
	o.stdioServer = o.home.serve("--root", "w="+o.dir+":rw")
	return o
}

func (o *rootServer) file(name string) string {
	o.t.Helper()
	b, err := os.ReadFile(filepath.Join(o.dir, name))
	testkit.Must(o.t, err)
	return string(b)
}

// checkOutside checks that the directory outside is unchanged.
func (o *rootServer) checkOutside() {
	o.t.Helper()
	if got := state(o.t, o.out); got != "f -rw-r--r-- \"secret\"\n" {
		o.t.Errorf("the outside is now %s", got)
	}
}

// Each TestDefect shows that rootsfs does not have a defect of other servers (servers#3253, #2815
// and others of modelcontextprotocol/servers). TestDefect_SwapRace is in swap_test.go.
// same_test.go shows that server-filesystem has such defects.

func TestDefect_DanglingLink(t *testing.T) {
	o := newRootServer(t, "a=1", "in => new", "out => $OUT/new", "up => ../new", "deep => none/new", "loop => loop")
	for _, link := range []string{"in", "out", "up", "deep", "loop"} {
		path := "w/" + link
		for tool, args := range map[string]m{
			"write_file":       {"path": path, "content": "x"},
			"append_file":      {"path": path, "content": "x", "create": true},
			"edit_file":        {"path": path, "edits": edits("a", "b")},
			"copy_file":        {"source": "w/a", "destination": path},
			"create_directory": {"path": path},
		} {
			if a := o.tool(tool, args); !a.failed() {
				t.Errorf("%s through %s: %s", tool, link, a)
			}
		}
	}
	o.checkOutside()
	if got := state(t, o.dir); strings.Contains(got, "new -") || !strings.Contains(got, "in L") {
		t.Errorf("a file was made, or a link lost: %s", got)
	}
}

// No tool waits for a FIFO or a socket: each call gets its answer, and so does the next call.
func TestDefect_FIFO(t *testing.T) {
	o := newRootServer(t, "pipe|", "sock@", "link => pipe", "d/pipe|", "d/x=text", "a=1")
	for _, path := range []string{"w/pipe", "w/sock", "w/link", "w/d/pipe", o.dir + "/pipe"} {
		for tool, args := range map[string]m{
			"read_text_file": {"path": path}, "read_media_file": {"path": path}, "read_file_range": {"path": path},
			"write_file": {"path": path, "content": "x"}, "append_file": {"path": path, "content": "x"},
			"edit_file": {"path": path, "edits": edits("a", "b")}, "copy_file": {"source": path, "destination": "w/copy"},
			"search_within_files": {"path": path, "substring": "x"}, "get_file_info": {"path": path},
		} {
			if a := o.tool(tool, args); !a.failed() {
				t.Errorf("%s %s: %s", tool, path, a)
			}
		}
	}
	if got := o.ok("read_multiple_files", m{"paths": []string{"w/pipe", "w/a"}}); !strings.Contains(got, "w/pipe: Error - ") || !strings.Contains(got, "w/a:\n1\n") {
		t.Errorf("%q", got)
	}
	if got := o.ok("search_within_files", m{"path": "w", "substring": "text"}); got != "w/d/x:1: text" {
		t.Errorf("%q", got)
	}
	if got := state(t, o.dir); !strings.Contains(got, "pipe p") {
		t.Errorf("the FIFO is gone: %s", got)
	}
}

func TestDefect_CRLF(t *testing.T) {
	o := newRootServer(t, "crlf=one\r\ntwo\r\nthree\r\n", "mixed=one\r\ntwo\nthree\r\nfour")
	o.ok("edit_file", m{"path": "w/crlf", "edits": edits("two\nthree", "2\n2.5\n3")})
	o.ok("edit_file", m{"path": "w/mixed", "edits": edits("two", "2")})
	if got := o.file("crlf"); got != "one\r\n2\r\n2.5\r\n3\r\n" {
		t.Errorf("%q", got)
	}
	if got := o.file("mixed"); got != "one\r\n2\nthree\r\nfour" {
		t.Errorf("%q", got)
	}
}

func TestDefect_NotUTF8(t *testing.T) {
	o := newRootServer(t, "latin=caf\xe9\n", "bin=\x00\xff\xfe")
	for _, name := range []string{"latin", "bin"} {
		before := o.file(name)
		o.mustFail("edit_file", m{"path": "w/" + name, "edits": edits("caf", "tea")}, "not UTF-8")
		o.mustFail("edit_file", m{"path": "w/" + name, "edits": edits("caf", "tea"), "dryRun": true}, "not UTF-8")
		if got := o.file(name); got != before {
			t.Errorf("%s became %q", name, got)
		}
	}
}

// An existing file, link, directory or FIFO is never overwritten unless the call says so.
func TestDefect_Overwrite(t *testing.T) {
	o := newRootServer(t, "a=new", "file=old", "link => file", "gone => nowhere", "dir/", "full/x=1", "pipe|")
	for _, to := range []string{"file", "link", "gone", "dir", "full", "pipe", "a"} {
		for _, tool := range []string{"move_file", "copy_file"} {
			if a := o.tool(tool, m{"source": "w/a", "destination": "w/" + to}); !a.failed() {
				t.Errorf("%s onto %s: %s", tool, to, a)
			}
		}
	}
	if o.file("a") != "new" || o.file("file") != "old" {
		t.Error("something was overwritten")
	}
	o.ok("copy_file", m{"source": "w/a", "destination": "w/file", "overwrite": true})
	if o.file("file") != "new" {
		t.Error("not copied although asked to")
	}
	o.ok("move_file", m{"source": "w/full", "destination": "w/dir", "overwrite": true})
	o.mustFail("move_file", m{"source": "w/a", "destination": "w/dir", "overwrite": true}, "directory")
	if o.file("dir/x") != "1" {
		t.Error("not moved although asked to")
	}
}

func TestDefect_MoveOfALink(t *testing.T) {
	o := newRootServer(t, "file=x", "link => file", "out => $OUT/f", "d/x=1", "way => d")
	for from, target := range map[string]string{"link": "file", "out": o.out + "/f", "way": "d"} {
		o.ok("move_file", m{"source": "w/" + from, "destination": "w/moved-" + from})
		if got, err := os.Readlink(filepath.Join(o.dir, "moved-"+from)); err != nil || got != target {
			t.Errorf("%s became %q, %v", from, got, err)
		}
	}
	if o.file("file") != "x" || o.file("d/x") != "1" {
		t.Error("the target of a link was moved")
	}
	o.checkOutside()
}

// No tool reaches a sibling of the root whose name begins with the root's name, or follows a link
// that leads out: CVE-2025-53110 and CVE-2025-53109.
func TestDefect_SiblingAndLinkOut(t *testing.T) {
	o := newRootServer(t, "a=1", "out => $OUT/f", "away => $OUT", "sib => ../w-sibling")
	for _, path := range []string{
		o.dir + "-sibling/f", o.dir + "-sibling", o.dir + "/../w-sibling/f", "file://" + o.dir + "-sibling/f", "w-sibling/f", "w/../w-sibling/f",
		"w/out", "w/away/f", "w/sib/f", o.dir + "/out", o.out + "/f", "/etc/passwd", "/proc/self/environ", "w/./../../etc/passwd", "file:///etc/passwd",
	} {
		for tool, args := range map[string]m{
			"read_text_file": {"path": path}, "get_file_info": {"path": path}, "write_file": {"path": path, "content": "x"},
			"list_directory": {"path": path}, "move_file": {"source": "w/a", "destination": path}, "copy_file": {"source": path, "destination": "w/stolen"},
			"search_within_files": {"path": path, "substring": "s"}, "directory_tree": {"path": path},
		} {
			a := o.tool(tool, args)
			if !a.failed() {
				t.Errorf("%s %s: %s", tool, path, a)
			}
			// An answer contains no path of the host except the requested path.
			if text := strings.ReplaceAll(a.text(), path, ""); strings.Contains(text, filepath.Dir(o.dir)) || strings.Contains(text, "secret") {
				t.Errorf("%s %s reveals %s", tool, path, a.text())
			}
		}
	}
	o.checkOutside()
	if got, err := os.ReadFile(o.dir + "-sibling/f"); err != nil || string(got) != "sibling" {
		t.Errorf("the sibling: %q, %v", got, err)
	}
}

// A hard link to a file outside counts as a file inside. It can be read. A write
// replaces the name, so that the file outside keeps its content.
func TestDefect_HardLink(t *testing.T) {
	o := newRootServer(t)
	testkit.Must(t, os.Link(filepath.Join(o.out, "f"), filepath.Join(o.dir, "hard")))
	if got := o.ok("read_text_file", m{"path": "w/hard"}); got != "secret" {
		t.Errorf("%q", got)
	}
	o.ok("write_file", m{"path": "w/hard", "content": "mine"})
	if got := o.file("hard"); got != "mine" {
		t.Errorf("%q", got)
	}
	o.checkOutside()
}

// After all roots are revoked, nothing is accessible: R070.
func TestDefect_Revoked(t *testing.T) {
	o := newRootServer(t, "a=1")
	o.ok("read_text_file", m{"path": "w/a"})
	o.home.mustRun("revoke", "--all")
	for _, path := range []string{"w/a", o.dir + "/a", "a"} {
		if a := o.tool("read_text_file", m{"path": path}); !a.failed() || strings.Contains(a.text(), "1") {
			t.Errorf("%s after the revocation: %s", path, a)
		}
		if a := o.tool("write_file", m{"path": path, "content": "2"}); !a.failed() {
			t.Errorf("written after the revocation: %s", a)
		}
	}
	if got := o.ok("list_allowed_directories", m{}); got != "Allowed directories:\n" {
		t.Errorf("%q", got)
	}
	if o.file("a") != "1" {
		t.Error("the file was written after the revocation")
	}
}
