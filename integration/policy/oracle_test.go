package policy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/vfs"
)

// A hidden name looks like a missing one: errors, their texts and counts do not tell whether the
// name exists. These tests do not test timing, nor the times of a directory, which do show that a
// name in the directory has changed.

// systemCalls returns system calls about a name, by their labels. dir is a directory of the
// mount that contains the file x and the directory y.
func systemCalls() map[string]func(dir, name string) error {
	open := func(flags int) func(dir, name string) error {
		return func(dir, name string) error {
			fd, err := unix.Open(dir+"/"+name, flags, 0o600)
			if err == nil {
				unix.Close(fd)
			}
			return err
		}
	}
	at := unix.AT_FDCWD
	return map[string]func(dir, name string) error{
		"lstat":     func(d, n string) error { return unix.Lstat(d+"/"+n, &unix.Stat_t{}) },
		"stat":      func(d, n string) error { return unix.Stat(d+"/"+n, &unix.Stat_t{}) },
		"stat in":   func(d, n string) error { return unix.Stat(d+"/"+n+"/in", &unix.Stat_t{}) },
		"stat n/":   func(d, n string) error { return unix.Stat(d+"/"+n+"/", &unix.Stat_t{}) },
		"access":    func(d, n string) error { return unix.Access(d+"/"+n, unix.W_OK) },
		"open":      open(unix.O_RDONLY),
		"open rw":   open(unix.O_RDWR),
		"opath":     open(unix.O_PATH),
		"opendir":   open(unix.O_DIRECTORY),
		"creat":     open(unix.O_CREAT | unix.O_WRONLY),
		"creat ex":  open(unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY),
		"tmpfile":   open(unix.O_TMPFILE | unix.O_WRONLY),
		"creat in":  func(d, n string) error { return open(unix.O_CREAT|unix.O_WRONLY)(d, n+"/new") },
		"mkdir":     func(d, n string) error { return unix.Mkdir(d+"/"+n, 0o755) },
		"mkdir in":  func(d, n string) error { return unix.Mkdir(d+"/"+n+"/new", 0o755) },
		"mknod":     func(d, n string) error { return unix.Mknod(d+"/"+n, unix.S_IFREG|0o644, 0) },
		"symlink":   func(d, n string) error { return unix.Symlink("x", d+"/"+n) },
		"readlink":  func(d, n string) error { _, err := unix.Readlink(d+"/"+n, make([]byte, 9)); return err },
		"link to":   func(d, n string) error { return unix.Link(d+"/x", d+"/"+n) },
		"link from": func(d, n string) error { return unix.Link(d+"/"+n, d+"/new-link") },
		"unlink":    func(d, n string) error { return unix.Unlink(d + "/" + n) },
		"rmdir":     func(d, n string) error { return unix.Rmdir(d + "/" + n) },
		"mv from":   func(d, n string) error { return unix.Rename(d+"/"+n, d+"/new-name") },
		"mv to":     func(d, n string) error { return unix.Rename(d+"/x", d+"/"+n) },
		"mv y to":   func(d, n string) error { return unix.Rename(d+"/y", d+"/"+n) },
		"mv new": func(d, n string) error {
			return unix.Renameat2(at, d+"/x", at, d+"/"+n, unix.RENAME_NOREPLACE)
		},
		"exchange":  func(d, n string) error { return unix.Renameat2(at, d+"/x", at, d+"/"+n, unix.RENAME_EXCHANGE) },
		"exchanged": func(d, n string) error { return unix.Renameat2(at, d+"/"+n, at, d+"/x", unix.RENAME_EXCHANGE) },
		"chmod":     func(d, n string) error { return unix.Chmod(d+"/"+n, 0o600) },
		"chown":     func(d, n string) error { return unix.Lchown(d+"/"+n, 1, 1) },
		"utimes":    func(d, n string) error { return unix.Utimes(d+"/"+n, make([]unix.Timeval, 2)) },
		"truncate":  func(d, n string) error { return unix.Truncate(d+"/"+n, 1) },
		"getxattr":  func(d, n string) error { _, err := unix.Lgetxattr(d+"/"+n, "user.x", nil); return err },
		"setxattr":  func(d, n string) error { return unix.Lsetxattr(d+"/"+n, "user.x", []byte("v"), 0) },
		"listxattr": func(d, n string) error { _, err := unix.Llistxattr(d+"/"+n, nil); return err },
		"rmxattr":   func(d, n string) error { return unix.Lremovexattr(d+"/"+n, "user.x") },
		"statfs":    func(d, n string) error { return unix.Statfs(d+"/"+n, &unix.Statfs_t{}) },
		"handle":    func(d, n string) error { _, _, err := unix.NameToHandleAt(at, d+"/"+n, 0); return err },
		"inotify": func(d, n string) error {
			fd, err := unix.InotifyInit1(0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			_, err = unix.InotifyAddWatch(fd, d+"/"+n, unix.IN_ALL_EVENTS)
			return err
		},
		"openat2": func(d, n string) error {
			fd, err := unix.Openat2(at, d+"/"+n, &unix.OpenHow{Flags: unix.O_RDONLY, Resolve: unix.RESOLVE_NO_SYMLINKS})
			if err == nil {
				unix.Close(fd)
			}
			return err
		},
	}
}

// mountCalls returns the calls of systemCalls. A child process makes them, because this process
// serves the mount.
func mountCalls() map[string]func(dir, name string) error {
	all := map[string]func(dir, name string) error{}
	for call := range systemCalls() {
		all[call] = func(dir, name string) error { return systemCall(call, dir, name) }
	}
	return all
}

var systemCall = childfs.In("systemCall", func(call, dir, name string) error { return systemCalls()[call](dir, name) })

// requests returns the requests of files/* about a name, by their labels.
func requests(f *client.Files) map[string]func(dir, name string) error {
	second := func(_ any, err error) error { return err }
	move := client.MoveOptions{Overwrite: true}
	return map[string]func(d, n string) error{
		"read":    func(d, n string) error { return second(f.ReadFile(bg, d+"/"+n)) },
		"stat":    func(d, n string) error { return second(f.Stat(bg, d+"/"+n)) },
		"stat in": func(d, n string) error { return second(f.Stat(bg, d+"/"+n+"/in")) },
		"write":   func(d, n string) error { return second(f.WriteFile(bg, d+"/"+n, nil, client.WriteOptions{})) },
		"write new": func(d, n string) error {
			return second(f.WriteFile(bg, d+"/"+n, nil, client.WriteOptions{Create: true}))
		},
		"write at": func(d, n string) error { return second(f.WriteAt(bg, d+"/"+n, []byte("x"), 1)) },
		"write if": func(d, n string) error {
			return second(f.WriteFile(bg, d+"/"+n, nil, client.WriteOptions{IfMatch: "x"}))
		},
		"write in": func(d, n string) error {
			return second(f.WriteFile(bg, d+"/"+n+"/new", nil, client.WriteOptions{Create: true}))
		},
		"append":     func(d, n string) error { return second(f.Append(bg, d+"/"+n, []byte("x"), false)) },
		"append new": func(d, n string) error { return second(f.Append(bg, d+"/"+n, []byte("x"), true)) },
		"create":     func(d, n string) error { return second(f.Create(bg, d+"/"+n, false)) },
		"create all": func(d, n string) error { return second(f.Create(bg, d+"/"+n+"/new", true)) },
		"mkdir":      func(d, n string) error { return second(f.Mkdir(bg, d+"/"+n, false)) },
		"mkdir all":  func(d, n string) error { return second(f.Mkdir(bg, d+"/"+n, true)) },
		"delete":     func(d, n string) error { return f.Delete(bg, d+"/"+n, client.DeleteOptions{}) },
		"delete all": func(d, n string) error { return f.Delete(bg, d+"/"+n, client.DeleteOptions{Recursive: true}) },
		"delete if":  func(d, n string) error { return f.Delete(bg, d+"/"+n, client.DeleteOptions{IfMatch: "x"}) },
		"mv from":    func(d, n string) error { return second(f.Rename(bg, d+"/"+n, d+"/new", move)) },
		"mv to":      func(d, n string) error { return second(f.Rename(bg, d+"/x", d+"/"+n, move)) },
		"mv y to":    func(d, n string) error { return second(f.Rename(bg, d+"/y", d+"/"+n, client.MoveOptions{})) },
		"cp from":    func(d, n string) error { return second(f.Copy(bg, d+"/"+n, d+"/new", move)) },
		"cp to":      func(d, n string) error { return second(f.Copy(bg, d+"/x", d+"/"+n, move)) },
		"cp new":     func(d, n string) error { return second(f.Copy(bg, d+"/x", d+"/"+n, client.MoveOptions{})) },
		"list": func(d, n string) error {
			for _, err := range f.List(bg, d+"/"+n, client.ListOptions{}) {
				return err
			}
			return nil
		},
		"watch": func(d, n string) error {
			ctx, cancel := context.WithCancel(bg)
			defer cancel()
			return second(f.Watch(ctx, d+"/"+n, client.WatchOptions{}))
		},
	}
}

// toolHost connects a host to the tools of rootsfs serve. It returns the host's session and a
// function that calls a tool.
func toolHost(t *testing.T, reg *guard.Registry, tree *vfs.Tree) (host *mcp.ClientSession, call func(tool string, args map[string]any) error) {
	t.Helper()
	srv := tools.New(tools.Config{Registry: reg, Tree: tree, Subject: "host"})
	ours, theirs := mcp.NewInMemoryTransports()
	ss, err := srv.MCP().Connect(bg, theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	host, err = mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(bg, ours, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close(); _ = ss.Wait(); srv.Close() })
	return host, func(tool string, args map[string]any) error {
		res, err := host.CallTool(bg, &mcp.CallToolParams{Name: tool, Arguments: args})
		if err != nil || !res.IsError {
			return err
		}
		return errors.New(res.Content[0].(*mcp.TextContent).Text)
	}
}

// toolCalls returns the requests to rootsfs serve about a name, by their labels: calls of tools,
// and requests about resources.
func toolCalls(w *twin) map[string]func(dir, name string) error {
	host, call := toolHost(w.T, w.reg, w.tree)
	all := map[string]func(d, n string) error{}
	for _, tool := range []string{"read_text_file", "read_media_file", "list_directory", "list_directory_with_sizes", "directory_tree", "get_file_info", "create_directory", "delete_file"} {
		all[tool] = func(d, n string) error { return call(tool, map[string]any{"path": d + "/" + n}) }
	}
	all["write_file"] = func(d, n string) error { return call("write_file", map[string]any{"path": d + "/" + n, "content": ""}) }
	all["write_file in"] = func(d, n string) error {
		return call("write_file", map[string]any{"path": d + "/" + n + "/new", "content": ""})
	}
	all["append_file"] = func(d, n string) error {
		return call("append_file", map[string]any{"path": d + "/" + n, "content": "x"})
	}
	all["search_files"] = func(d, n string) error {
		return call("search_files", map[string]any{"path": d + "/" + n, "pattern": "*"})
	}
	all["edit_file"] = func(d, n string) error {
		return call("edit_file", map[string]any{"path": d + "/" + n, "edits": []map[string]string{{"oldText": "s", "newText": "t"}}})
	}
	for _, tool := range []string{"move_file", "copy_file"} {
		all[tool+" from"] = func(d, n string) error {
			return call(tool, map[string]any{"source": d + "/" + n, "destination": d + "/new"})
		}
		all[tool+" to"] = func(d, n string) error {
			return call(tool, map[string]any{"source": d + "/x", "destination": d + "/" + n})
		}
	}
	uri := func(d, n string) string { return "file://" + w.src[d[:strings.Index(d+"/", "/")]] + "/d/" + n }
	all["resources/read"] = func(d, n string) error {
		_, err := host.ReadResource(bg, &mcp.ReadResourceParams{URI: uri(d, n)})
		return err
	}
	all["resources/subscribe"] = func(d, n string) error {
		err := host.Subscribe(bg, &mcp.SubscribeParams{URI: uri(d, n)})
		return errors.Join(err, host.Unsubscribe(bg, &mcp.UnsubscribeParams{URI: uri(d, n)}))
	}
	all["completion/complete"] = func(d, n string) error {
		var text string
		for _, typed := range []string{n[:len(n)-1], n, n + "/"} {
			arg := mcp.CompleteParamsArgument{Name: "path", Value: strings.TrimPrefix(uri(d, typed), "file:///")}
			res, err := host.Complete(bg, &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/resource", URI: "file:///{+path}"}, Argument: arg})
			if err != nil {
				return err
			}
			text += fmt.Sprintln(res.Completion.Values, res.Completion.Total, res.Completion.HasMore)
		}
		return errors.New(text)
	}
	return all
}

// On every front, each call fails in the same way for a hidden file or directory and for a missing
// name that the pattern would hide, too. Without the rule, at least half of the calls have
// different results for a file and for a missing name. Otherwise the test would show nothing.
func TestHiddenFailsLikeAbsent(t *testing.T) {
	w := newTwin(t, guard.Patterns{NoDefaults: true, Hide: guard.Texts("secret-*")},
		"d/x=x", "d/y/", "d/secret-f=s", "d/secret-d/in=s", "d/secret-e/")
	// Some users keep secrets in a pipe; pipes are not shown in any case.
	if err := unix.Mkfifo(filepath.Join(w.src["on"], "d/secret-p"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, front := range map[string]struct {
		calls map[string]func(dir, name string) error
		dir   func(root string) string
	}{
		"mount":   {mountCalls(), func(root string) string { return w.at(root, "d") }},
		"files/*": {requests(w.files), func(root string) string { return root + "/d" }},
		"tools":   {toolCalls(w), func(root string) string { return root + "/d" }},
	} {
		t.Run(name, func(t *testing.T) {
			different := 0
			for _, what := range slices.Sorted(maps.Keys(front.calls)) {
				f := front.calls[what]
				answer := func(root, name string) string {
					return neutral(f(front.dir(root), name), name)
				}
				absent := answer("on", "secret-none")
				for _, hidden := range []string{"secret-f", "secret-d", "secret-e", "secret-p"} {
					if got := answer("on", hidden); got != absent {
						t.Errorf("%s of the hidden %s: %s; of a missing name: %s", what, hidden, got, absent)
					}
				}
				if absent == "no error" {
					t.Errorf("%s of a name that is hidden succeeds", what)
				}
				if answer("off", "secret-f") != answer("off", "secret-none") {
					different++
				}
				w.restore()
			}
			if different < len(front.calls)/2 {
				t.Errorf("without the rule only %d of %d calls tell the two apart", different, len(front.calls))
			}
		})
	}
}

// restore restores the names in d of the root "off" that the calls change.
func (w *twin) restore() {
	w.Helper()
	dir := filepath.Join(w.src["off"], "d")
	for _, name := range []string{"secret-none", "new", "new-name", "new-link", "secret-f", "x", "y"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			w.Fatal(err)
		}
	}
	for _, err := range []error{os.WriteFile(dir+"/x", []byte("x"), 0o644), os.WriteFile(dir+"/secret-f", []byte("s"), 0o644), os.Mkdir(dir+"/y", 0o755)} {
		if err != nil {
			w.Fatal(err)
		}
	}
}

// R164: on every front, each call that does not create the name has the same answer for a hidden
// name and for a missing name that no pattern is about. Otherwise the answer would reveal that a
// pattern is about the name.
func TestHiddenIsLikeAnyAbsentName(t *testing.T) {
	w := newTwin(t, guard.Patterns{NoDefaults: true, Hide: guard.Texts("secret-*")},
		"d/x=x", "d/y/", "d/secret-f=s", "d/secret-d/in=s", "d/secret-l => x")
	creating := map[string]bool{ // calls that create the name; they are refused if the name is hidden
		"creat": true, "creat ex": true, "mkdir": true, "mknod": true, "symlink": true, "link to": true,
		"mv to": true, "mv y to": true, "mv new": true, "write new": true, "append new": true, "create": true,
		"write in": true, "create all": true, "mkdir all": true, "cp to": true, "cp new": true,
		"create_directory": true, "write_file": true, "write_file in": true, "move_file to": true, "copy_file to": true,
	}
	for name, front := range map[string]struct {
		calls map[string]func(dir, name string) error
		dir   string
	}{
		"mount": {mountCalls(), w.at("on", "d")}, "files/*": {requests(w.files), "on/d"}, "tools": {toolCalls(w), "on/d"},
		"files/*, absolute": {requests(w.files), w.src["on"] + "/d"},
	} {
		for _, what := range slices.Sorted(maps.Keys(front.calls)) {
			if creating[what] {
				continue
			}
			answer := func(name string) string { return neutral(front.calls[what](front.dir, name), name) }
			absent := answer("unheard")
			for _, hidden := range []string{"secret-f", "secret-d", "secret-l", "secret-none"} {
				if got := answer(hidden); got != absent {
					t.Errorf("%s, %s of %s: %s; of any other name: %s", name, what, hidden, got, absent)
				}
			}
			var reply *client.Reply
			if err := front.calls[what](front.dir, "secret-f"); errors.As(err, &reply) && reply.Data.Reason != "NotExist" {
				t.Errorf("%s, %s: the reason is %+v", name, what, reply)
			}
		}
	}
}

// Neither a symbolic link to a hidden name, nor a path that leads through a hidden name and back by
// "..", reveals whether the hidden name exists. R164.
func TestHiddenIsLikeAnyAbsentNameBehindALink(t *testing.T) {
	links := map[string]string{"to-file": "secret-f", "to-dir": "secret-d", "to-link": "secret-l", "to-none": "secret-none", "to-unheard": "unheard"}
	tree := []string{"d/x=x", "d/y/", "d/secret-f=s", "d/secret-d/in=s", "d/secret-l => x"}
	for name, target := range links {
		tree = append(tree, "d/"+name+" => "+target)
	}
	w := newTwin(t, guard.Patterns{NoDefaults: true, Hide: guard.Texts("secret-*")}, tree...)
	for name, front := range map[string]struct {
		calls  map[string]func(dir, name string) error
		labels string // of the calls that follow links
		dir    string
	}{
		"mount":   {mountCalls(), "stat,stat in,stat n/,access,open,open rw,opath,opendir,openat2,chmod,utimes,truncate,getxattr,statfs,inotify,mkdir in,creat in", w.at("on", "d")},
		"files/*": {requests(w.files), "read,stat,stat in,write,write at,write if,append,list,watch,cp from,write in,create all", "on/d"},
		"tools":   {toolCalls(w), "read_text_file,read_media_file,list_directory,directory_tree,get_file_info,search_files,edit_file,copy_file from,write_file in", "on/d"},
	} {
		for what := range strings.SplitSeq(front.labels, ",") {
			f := front.calls[what]
			if f == nil {
				t.Fatalf("%s has no %s", name, what)
			}
			answer := func(name string) string { return neutral(f(front.dir, name), name, links[name]) }
			absent := answer("to-unheard")
			for link := range links {
				if got := answer(link); got != absent {
					t.Errorf("%s, %s %s: %s; to any other name: %s", name, what, link, got, absent)
				}
			}
			answerBeyond := func(name string) string { return neutral(f(front.dir, name+"/../x"), name) }
			for _, hidden := range []string{"secret-f", "secret-d", "secret-l", "secret-none"} {
				if got := answerBeyond(hidden); got != answerBeyond("unheard") {
					t.Errorf("%s, %s through %s: %s; through any other name: %s", name, what, hidden, got, answerBeyond("unheard"))
				}
			}
		}
	}
}

// dirCounts has the counts that system calls return for a directory.
type dirCounts struct {
	Stat   unix.Stat_t
	Statfs unix.Statfs_t
	Inodes []uint64 // of the directory's entries
}

// countDir reads a directory's counts.
var countDir = childfs.In("countDir", func(dir string) (c dirCounts, err error) {
	if err := errors.Join(unix.Stat(dir, &c.Stat), unix.Statfs(dir, &c.Statfs)); err != nil {
		return c, err
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return c, err
	}
	defer unix.Close(fd)
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Getdents(fd, buf)
		if err != nil || n == 0 {
			return c, err
		}
		for at := 0; at < n; at += int(buf[at+16]) | int(buf[at+17])<<8 {
			c.Inodes = append(c.Inodes, binary.NativeEndian.Uint64(buf[at:]))
		}
	}
})

// counts returns all counts of a directory as text, and the inode numbers of its entries.
func (w *twin) counts(root, dir string) (text string, inodes []uint64) {
	w.Helper()
	c, err := countDir(w.at(root, dir))
	if err != nil {
		w.Fatal(err)
	}
	p, err := guard.NewPath(guard.RootName(root), dir)
	if err != nil {
		w.Fatal(err)
	}
	pages, entries, cursor := 0, 0, ""
	for {
		page, err := w.tree.List(bg, who, p, vfs.ListOptions{Limit: 1, Cursor: cursor})
		if err != nil {
			w.Fatal(err)
		}
		pages, entries = pages+1, entries+len(page.Entries)
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	return fmt.Sprintf("%d links, %d bytes, %d blocks, %d names, %d entries in %d pages, of %d inodes",
		c.Stat.Nlink, c.Stat.Size, c.Stat.Blocks, len(c.Inodes), entries, pages, c.Statfs.Files), c.Inodes
}

// A directory with hidden names has the same counts as one without them: links, size, names,
// pages. No inode number in a listing of the directory is that of a hidden file.
func TestHiddenIsNotCounted(t *testing.T) {
	tree := []string{"plain/x=x", "plain/y/", "full/x=x", "full/y/"}
	for i := range 300 {
		tree = append(tree, fmt.Sprintf("full/secret-%d=%0100d", i, i), fmt.Sprintf("full/secret-dir-%d/", i))
	}
	w := newTwin(t, guard.Patterns{NoDefaults: true, Hide: guard.Texts("secret-*")}, tree...)
	for _, root := range []string{"on", "off"} {
		plain, _ := w.counts(root, "plain")
		full, inodes := w.counts(root, "full")
		var leaked int
		list, err := os.ReadDir(filepath.Join(w.src[root], "full"))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			info, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(e.Name(), "secret-") && slices.Contains(inodes, info.Sys().(*syscall.Stat_t).Ino) {
				leaked++
			}
		}
		if same := plain == full && leaked == 0; same != (root == "on") {
			t.Errorf("%s: %s with hidden names, %s without; %d inode numbers of hidden files", root, full, plain, leaked)
		}
	}
}
