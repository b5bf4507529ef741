package policy

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/vfs"
)

// front is one way to do operations in the root. The operations' paths are relative to the root.
type front struct {
	name  string
	kinds []string // the operations of the front, the frequent ones several times
	do    func(o *op) ([]string, error)
}

var (
	allKinds = []string{"read", "stat", "list", "write", "write", "mkdir", "mkdir", "unlink", "rmdir", "delete", "rename", "rename",
		"exchange", "chmod", "copy", "purge"}
	treeKinds = allKinds[:len(allKinds)-2] // without copy and purge
	// fileKinds are the operations for which files/* has methods.
	fileKinds = []string{"read", "stat", "list", "write", "write", "mkdir", "mkdir", "delete", "delete", "rename", "rename", "copy", "purge"}
)

// op is one operation. For a list, front.do returns the names; for other operations it returns no
// names.
type op struct {
	what string
	p, q string // the path; the second path of a rename, exchange, link or copy
}

var (
	bg  = context.Background()
	who = guard.Caller{Via: guard.ViaFiles}
)

// hostCalls returns a function that does an operation by system calls below dir. A child process
// makes the calls.
func hostCalls(dir string) func(o *op) ([]string, error) {
	return func(o *op) ([]string, error) { return inHost(dir, o.what, o.p, o.q) }
}

var inHost = childfs.In("inHost", func(dir, what, from, to string) ([]string, error) {
	p, q := filepath.Join(dir, from), filepath.Join(dir, to)
	switch what {
	case "read":
		_, err := os.ReadFile(p)
		return nil, err
	case "stat":
		return nil, unix.Lstat(p, &unix.Stat_t{})
	case "list":
		list, err := os.ReadDir(p)
		return entryNames(list), err
	case "write":
		return nil, os.WriteFile(p, []byte(from), 0o644)
	case "mkdir":
		return nil, unix.Mkdir(p, 0o755)
	case "unlink":
		return nil, unix.Unlink(p)
	case "rmdir":
		return nil, unix.Rmdir(p)
	case "delete":
		return nil, rmdirIfDir(unix.Unlink(p), func() error { return unix.Rmdir(p) })
	case "purge":
		return nil, purge(p)
	case "copy":
		return nil, copyFile(p, q)
	case "rename":
		return nil, unix.Rename(p, q)
	case "exchange":
		return nil, unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, q, unix.RENAME_EXCHANGE)
	case "link":
		return nil, unix.Link(p, q)
	case "chmod":
		return nil, unix.Chmod(p, 0o755)
	}
	return nil, errors.ErrUnsupported
})

// rmdirIfDir calls rmdir if err says that the name is a directory.
func rmdirIfDir(err error, rmdir func() error) error {
	if errors.Is(err, syscall.EISDIR) {
		return rmdir()
	}
	return err
}

// purge is rm -r: os.RemoveAll, but with an error for a missing name.
func purge(p string) error {
	if err := unix.Lstat(p, &unix.Stat_t{}); err != nil {
		return err
	}
	return os.RemoveAll(p)
}

func copyFile(p, q string) error {
	data, err := os.ReadFile(p)
	if err == nil {
		err = os.WriteFile(q, data, 0o644)
	}
	return err
}

func entryNames(list []fs.DirEntry) (out []string) {
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

func path(rel string) guard.Path {
	p, err := guard.NewPath("r", rel)
	if err != nil {
		panic(err)
	}
	return p
}

func at(rel string) (vfs.At, string) {
	dir, base := path(rel).Split()
	return vfs.At{Path: dir}, base
}

// treeCalls returns a function that does an operation with the tree's methods for system calls.
func treeCalls(t *vfs.Tree) func(o *op) ([]string, error) {
	return func(o *op) ([]string, error) {
		dir, base := at(o.p)
		dir2, base2 := at(o.q)
		switch o.what {
		case "read":
			f, _, err := t.Open(bg, who, vfs.At{Path: path(o.p)}, unix.O_RDONLY)
			if err == nil {
				f.Close()
			}
			return nil, err
		case "stat":
			_, err := t.Lookup(bg, who, dir, base)
			return nil, err
		case "list":
			return list(t, o.p)
		case "write":
			f, _, _, err := t.Create(bg, who, dir, base, unix.O_WRONLY, 0o644)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			_, err = f.WriteAt(bg, who, [][]byte{[]byte(o.p)}, 0, vfs.WriteAtOptions{})
			return nil, err
		case "mkdir":
			_, err := t.Mkdir(bg, who, dir, base, 0o755)
			return nil, err
		case "unlink":
			return nil, t.Unlink(bg, who, dir, base)
		case "rmdir":
			return nil, t.Rmdir(bg, who, dir, base)
		case "delete":
			return nil, rmdirIfDir(t.Unlink(bg, who, dir, base), func() error { return t.Rmdir(bg, who, dir, base) })
		case "rename":
			return nil, t.Rename(bg, who, dir, base, dir2, base2, 0)
		case "exchange":
			return nil, t.Rename(bg, who, dir, base, dir2, base2, vfs.RenameExchange)
		case "link":
			_, err := t.Link(bg, who, vfs.At{Path: path(o.p)}, nil, dir2, base2)
			return nil, err
		case "chmod":
			mode := uint32(0o755)
			_, err := t.Setattr(bg, who, vfs.At{Path: path(o.p)}, nil, vfs.Attrs{Mode: &mode})
			return nil, err
		}
		return nil, errors.ErrUnsupported
	}
}

func list(t *vfs.Tree, rel string) (out []string, err error) {
	d, err := t.Opendir(bg, who, vfs.At{Path: path(rel)})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	for next := uint64(0); ; {
		got, err := d.Read(bg, who, vfs.ReadDirOptions{At: vfs.At{Path: path(rel)}, Names: true, Off: next})
		if err != nil || len(got.Entries) == 0 {
			slices.Sort(out)
			return out, err
		}
		next = got.Next
		for _, e := range got.Entries {
			if e.Name != "." && e.Name != ".." {
				out = append(out, e.Name)
			}
		}
	}
}

// pathCalls returns a function that does an operation with the tree's methods that the broker
// calls. Operations for which the broker has no method go through treeCalls.
func pathCalls(t *vfs.Tree) func(o *op) ([]string, error) {
	tree := treeCalls(t)
	return func(o *op) ([]string, error) {
		switch o.what {
		case "read":
			_, _, err := t.ReadChunk(bg, who, path(o.p), 0, 10, "", func(n int64) ([]byte, error) { return make([]byte, n), nil })
			return nil, err
		case "stat":
			_, _, err := t.Stat(bg, who, path(o.p))
			return nil, err
		case "list":
			page, err := t.List(bg, who, path(o.p), vfs.ListOptions{Hidden: true})
			var out []string
			for _, e := range page.Entries {
				out = append(out, e.Name)
			}
			slices.Sort(out)
			return out, err
		case "write":
			_, err := t.Replace(bg, who, vfs.At{Path: path(o.p)}, strings.NewReader(o.p), vfs.IfMatch{Follow: true, NoDurable: true, Mode: 0o644})
			return nil, err
		case "mkdir":
			_, err := t.MkdirPath(bg, who, path(o.p), 0o755)
			return nil, err
		case "delete", "purge":
			return nil, t.RemovePath(bg, who, path(o.p), vfs.RemoveOptions{Recursive: o.what == "purge"})
		case "rename":
			return nil, t.RenamePath(bg, who, path(o.p), path(o.q), true, "")
		case "copy":
			_, err := t.CopyFile(bg, who, path(o.p), path(o.q), vfs.CopyOptions{Overwrite: true})
			return nil, err
		}
		return tree(o)
	}
}

// brokerCalls returns a function that does an operation by files/*, as a server does over an MCP
// session.
func brokerCalls(f *client.Files) func(o *op) ([]string, error) {
	return func(o *op) (list []string, err error) {
		p, q := "r/"+o.p, "r/"+o.q
		switch o.what {
		case "read":
			_, err = f.ReadFile(bg, p)
		case "stat":
			_, err = f.Stat(bg, p)
		case "list":
			for e, err := range f.List(bg, p, client.ListOptions{Hidden: true}) {
				if err != nil {
					return nil, err
				}
				list = append(list, e.Name)
			}
			slices.Sort(list)
		case "write":
			_, err = f.WriteFile(bg, p, []byte(o.p), client.WriteOptions{Create: true})
		case "mkdir":
			_, err = f.Mkdir(bg, p, false)
		case "delete", "purge":
			err = f.Delete(bg, p, client.DeleteOptions{Recursive: o.what == "purge"})
		case "rename":
			_, err = f.Rename(bg, p, q, client.MoveOptions{Overwrite: true})
		case "copy":
			_, err = f.Copy(bg, p, q, client.MoveOptions{Overwrite: true})
		default:
			err = errors.ErrUnsupported
		}
		return list, err
	}
}

// connect starts a server, which uses package broker/client, and a host, which uses package broker,
// and connects them by a real MCP session over pipes. It returns the server's client for files/*.
func connect(t *testing.T, reg *guard.Registry, tree *vfs.Tree, subject guard.Subject) *client.Files {
	t.Helper()
	b := broker.New(broker.Config{Registry: reg, Tree: tree})
	t.Cleanup(b.Close)
	session := b.Session(subject)
	t.Cleanup(session.Close)
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	server := client.New(nil)
	info := &mcp.Implementation{Name: "test", Version: "1"}
	served, err := mcp.NewServer(info, nil).Connect(bg, server.Transport(&mcp.IOTransport{Reader: outR, Writer: inW}), nil)
	if err != nil {
		t.Fatal(err)
	}
	// 2025-11-25 is the last revision of MCP in which a server may send requests on its own.
	host, err := mcp.NewClient(info, nil).Connect(bg, session.Lines(inR, outW, 0), &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close(); _ = served.Wait() })
	files, err := server.Files(served)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// needFUSE skips the test if this machine cannot mount FUSE file systems. In CI it fails the test
// instead.
func needFUSE(t *testing.T) {
	t.Helper()
	err := mountpoint.CheckFUSE()
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatalf("CI must be able to mount: %v", err)
	default:
		t.Skip(err)
	}
}
