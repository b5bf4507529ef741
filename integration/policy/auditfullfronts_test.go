package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// While the audit disk is full, changes through files/* and through the tools of rootsfs serve are
// refused, too, and do not happen.
func TestFullAuditDiskRefusesChangesOverTheBroker(t *testing.T) {
	f := newFullAudit(t, "192k")
	if out, err := f.sh(`mkdir d e && echo x >e/x && echo old >file && echo old >other`); err != nil {
		t.Fatal(err, out)
	}
	files := connect(t, f.reg, f.tree, "server")
	_, tool := toolHost(t, f.reg, f.tree)
	type args = map[string]any
	changes := map[string]func() error{
		"files/write over": func() error { return second(files.WriteFile(bg, "r/file", []byte("new"), client.WriteOptions{})) },
		"files/write new": func() error {
			return second(files.WriteFile(bg, "r/new", []byte("new"), client.WriteOptions{Create: true}))
		},
		"files/write at":     func() error { return second(files.WriteAt(bg, "r/file", []byte("new"), 1)) },
		"files/write append": func() error { return second(files.Append(bg, "r/file", []byte("new"), false)) },
		"files/create":       func() error { return second(files.Create(bg, "r/new", false)) },
		"files/create deep":  func() error { return second(files.Mkdir(bg, "r/new/er", true)) },
		"files/delete":       func() error { return files.Delete(bg, "r/file", client.DeleteOptions{}) },
		"files/delete tree":  func() error { return files.Delete(bg, "r/e", client.DeleteOptions{Recursive: true}) },
		"files/rename":       func() error { return second(files.Rename(bg, "r/file", "r/d/file", client.MoveOptions{})) },
		"files/rename over": func() error {
			return second(files.Rename(bg, "r/file", "r/other", client.MoveOptions{Overwrite: true}))
		},
		"files/copy":      func() error { return second(files.Copy(bg, "r/file", "r/new", client.MoveOptions{})) },
		"files/copy over": func() error { return second(files.Copy(bg, "r/file", "r/other", client.MoveOptions{Overwrite: true})) },
		"write_file over": func() error { return tool("write_file", args{"path": "r/file", "content": "new"}) },
		"write_file new":  func() error { return tool("write_file", args{"path": "r/new", "content": "new"}) },
		"append_file":     func() error { return tool("append_file", args{"path": "r/file", "content": "new"}) },
		"edit_file": func() error {
			return tool("edit_file", args{"path": "r/file", "edits": []map[string]string{{"oldText": "old", "newText": "new"}}})
		},
		"create_directory": func() error { return tool("create_directory", args{"path": "r/new/er"}) },
		"move_file":        func() error { return tool("move_file", args{"source": "r/file", "destination": "r/d/file"}) },
		"copy_file":        func() error { return tool("copy_file", args{"source": "r/file", "destination": "r/new"}) },
		"delete_file":      func() error { return tool("delete_file", args{"path": "r/file"}) },
		"delete_file tree": func() error { return tool("delete_file", args{"path": "r/e", "recursive": true}) },
	}
	filled := f.fill()
	before := f.picture()
	for name, change := range changes {
		if err := change(); err == nil {
			t.Errorf("%s: succeeded", name)
		}
		if after := f.picture(); after != before {
			t.Fatalf("%s: changed something", name)
		}
	}
	f.grow()
	for _, name := range []string{"files/write append", "files/write over", "append_file", "files/rename over", "create_directory"} {
		if err := changes[name](); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == "files/rename over" {
			if err := os.WriteFile(filepath.Join(f.src, "file"), []byte("old"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	creates := 0
	f.visitRecords(func(e audit.Entry) {
		if e.Op == "create" && e.Verdict == "allowed" && strings.HasPrefix(e.Path.Raw(), "fill/") {
			creates++
		}
	})
	if creates != filled {
		t.Errorf("the log has %d of %d records of create", creates, filled)
	}
}

// second returns the second of two results, an error.
func second[T any](_ T, err error) error { return err }

// Writes to a file that was opened before the audit disk was full are recorded, because the open
// reserved the room for the record of the close. So many files are open that their records would
// not fit into the room that the log leaves for records without a reservation.
func TestOpenFilesAreRecordedOnAFullAuditDisk(t *testing.T) {
	f := newFullAudit(t, "512k")
	const shells, filesPerShell = 30, 7
	signal := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(signal, "go"), 0o600); err != nil { // the shells wait for a writer
		t.Fatal(err)
	}
	holders := `for i in $(seq ` + fmt.Sprint(shells) + `); do (
		exec 3>h$i.3 4>h$i.4 5>h$i.5 6>h$i.6 7>h$i.7 8>h$i.8 9>h$i.9
		: >` + signal + `/open$i
		: <` + signal + `/go
		echo three >&3 && echo three >&4 && echo three >&5 && echo three >&6 && echo three >&7 && echo three >&8 && echo three >&9 && : >` + signal + `/wrote$i
	) & done; wait`
	type result struct {
		out string
		err error
	}
	ended := make(chan result, 1)
	go func() {
		out, err := f.sh(holders)
		ended <- result{out, err}
	}()
	count := func(pattern string) int {
		list, err := filepath.Glob(filepath.Join(signal, pattern))
		if err != nil {
			t.Error(err)
		}
		return len(list)
	}
	for count("open*") < shells {
		select {
		case r := <-ended:
			t.Fatalf("the files cannot be opened: %v, %s", r.err, r.out)
		case <-time.After(10 * time.Millisecond):
		}
	}
	f.fill()
	if out, err := f.sh(`mkdir late`); err == nil {
		t.Error("the disk is not full: ", out)
	}
	writer, err := os.OpenFile(filepath.Join(signal, "go"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if r := <-ended; r.err != nil || count("wrote*") != shells {
		t.Errorf("%d of %d wrote, %v: %s", count("wrote*"), shells, r.err, r.out)
	}
	f.grow()
	f.waitForReleases()
	written := map[string]int64{}
	f.visitRecords(func(e audit.Entry) {
		if strings.HasPrefix(e.Path.Raw(), "h") {
			written[e.Path.Raw()] += e.Written
		}
	})
	for i := 1; i <= shells; i++ {
		for fd := 3; fd < 3+filesPerShell; fd++ {
			if name := fmt.Sprintf("h%d.%d", i, fd); written[name] != int64(len("three\n")) {
				t.Errorf("%s: %d bytes are on record", name, written[name])
			}
		}
	}
}

// waitForReleases waits until the mount has closed the files of programs that have ended. The
// kernel lets a program end before the mount has handled the RELEASE of its files.
func (f *fullAudit) waitForReleases() {
	f.Helper()
	var open []string
	if !testkit.Eventually(func() bool {
		fds, err := filepath.Glob("/proc/self/fd/*")
		if err != nil {
			f.Fatal(err)
		}
		open = nil
		for _, fd := range fds {
			if to, _ := os.Readlink(fd); strings.HasPrefix(to, f.src+"/h") { // "": closed meanwhile
				open = append(open, to)
			}
		}
		return len(open) == 0
	}) {
		f.Fatalf("still open: %q", open)
	}
	time.Sleep(100 * time.Millisecond) // File.Close writes the audit record last
}
