package files

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/vfs"
)

// can describes files/* as a front end for guardtest. The broker parses the paths, which are UTF-8,
// and errors have a kind and no errno. There are no calls for links and attributes.
var can = guardtest.Can{ParsesPaths: true, KindsOnly: true}

// The cases of guard/guardtest that files/* can express pass over a real MCP session, as they do
// with the tree and with a mount. A server with broker/client sends the requests to a host with
// broker, over each transport. Another server writes JSON itself, so that no library checks its
// paths before the broker. R002, R003, R063, R064, R065, R066, R067, R070.
func TestConformance(t *testing.T) {
	const least = 280 // how many cases have to run at least
	for name := range transports {
		t.Run(name, func(t *testing.T) { conform(t, name, nil, least) })
	}
	// With chunks of one byte, a longer file is read in pieces and written as an upload.
	t.Run("chunked", func(t *testing.T) { conform(t, "lines", &client.Options{Chunk: 1}, least) })
	t.Run("raw", func(t *testing.T) {
		guardtest.Run(t, guardtest.Suite{Opener: vfs.Opener(), Can: can, Subject: "peer", AtLeast: least,
			Make: func(t testing.TB, reg *guard.Registry) guardtest.Front {
				return &rawFront{p: connectRaw(t, newBroker(t, reg, nil))}
			}})
	})
	if !lab.Soak() {
		return // the subtest "staged" takes a while: each case makes a staged root and ends it
	}
	t.Run("staged", func(t *testing.T) {
		var tree *vfs.Tree
		guardtest.Run(t, guardtest.Suite{Opener: vfs.StagingOpener(t.TempDir(), "test"), Staged: true, Can: can, Subject: "peer", AtLeast: 180,
			Apply: func(root guard.RootName) error {
				_, err := tree.StageApply(context.Background(), root, vfs.StageApply{Links: true})
				return err
			},
			Make: func(t testing.TB, reg *guard.Registry) guardtest.Front {
				tree = vfs.New(reg)
				return &rawFront{p: connectRaw(t, newBroker(t, reg, nil))}
			}})
	})
}

func conform(t *testing.T, transport string, opts *client.Options, least int) {
	guardtest.Run(t, guardtest.Suite{Opener: vfs.Opener(), Can: can, Subject: "peer", AtLeast: least,
		Make: func(t testing.TB, reg *guard.Registry) guardtest.Front {
			b := newBroker(t, reg, nil)
			p := connect(t, b, transport, opts)
			// broker/client has no call that truncates a file: Truncate goes through rawFront.
			return &clientFront{f: p.files, ctx: p.ctx, rawFront: rawFront{p: connectRaw(t, b)}}
		}})
}

// errNoMethod is the error of operations for which files/* has no method; the suite does not
// try them.
var errNoMethod = errors.New("files/* has no such call")

// clientFront is the front end of a server that uses package broker/client.
type clientFront struct {
	rawFront
	f   *client.Files
	ctx context.Context
}

func (c *clientFront) ReadFile(p string) ([]byte, error) {
	return c.f.ReadFile(c.ctx, p)
}

func (c *clientFront) WriteFile(p string, data []byte) error {
	_, err := c.f.WriteFile(c.ctx, p, data, client.WriteOptions{Create: true})
	return err
}

func (c *clientFront) Append(p string, data []byte) error {
	for len(data) > 0 { // a byte at a time, so that any chunk size will do
		if _, err := c.f.Append(c.ctx, p, data[:1], true); err != nil {
			return err
		}
		data = data[1:]
	}
	return nil
}

func (c *clientFront) Mkdir(p string) error {
	_, err := c.f.Mkdir(c.ctx, p, false)
	return err
}

func (c *clientFront) Remove(p string) error {
	return c.f.Delete(c.ctx, p, client.DeleteOptions{})
}

func (c *clientFront) Rename(p, q string) error {
	_, err := c.f.Rename(c.ctx, p, q, client.MoveOptions{Overwrite: true})
	return err
}

func (c *clientFront) Stat(p string) (guardtest.Info, error) {
	st, err := c.f.Stat(c.ctx, p)
	if err == nil {
		return guardtest.Info{Size: st.Size}, nil
	}
	dir, base := parent(p)
	return statLink(err, func() bool {
		for e, err := range c.f.List(c.ctx, dir, client.ListOptions{Hidden: true}) {
			if err == nil && e.Name == base && e.Type == wire.TypeSymlink {
				return true
			}
		}
		return false
	})
}

// statLink turns the error of files/stat, which follows links, into the answer of lstat(2). If the
// error is names.Escaped and the name is a link, the link itself lies in the root, so statLink
// describes the link. All other errors are returned as they are.
func statLink(err error, isLink func() bool) (guardtest.Info, error) {
	if errors.Is(err, names.Escaped) && isLink() {
		return guardtest.Info{Mode: unix.S_IFLNK}, nil
	}
	return guardtest.Info{}, err
}

func parent(p string) (dir, base string) {
	i := strings.LastIndexByte(p, '/')
	return p[:max(i, 0)], p[i+1:]
}

func (c *clientFront) List(p string) ([]string, error) {
	got := []string{}
	for e, err := range c.f.List(c.ctx, p, client.ListOptions{Hidden: true}) {
		if err != nil {
			return nil, err
		}
		got = append(got, e.Name)
	}
	slices.Sort(got)
	return got, nil
}

// rawFront is the front end of a server that writes JSON itself.
type rawFront struct{ p *rawServer }

func (f *rawFront) ReadFile(p string) ([]byte, error) {
	var r wire.ReadResult
	err := f.p.ask(wire.Read, wire.ReadParams{Path: p}, &r)
	return []byte(r.Content), err
}

func (f *rawFront) WriteFile(p string, data []byte) error {
	return f.p.ask(wire.Write, wire.WriteParams{Path: p, Content: string(data), Create: true}, nil)
}

func (f *rawFront) Append(p string, data []byte) error {
	return f.p.ask(wire.Write, wire.WriteParams{Path: p, Content: string(data), Create: true, Append: true}, nil)
}

func (f *rawFront) Mkdir(p string) error {
	return f.p.ask(wire.Create, wire.CreateParams{Path: p, Type: wire.TypeDirectory}, nil)
}

func (f *rawFront) Remove(p string) error {
	return f.p.ask(wire.Delete, wire.DeleteParams{Path: p}, nil)
}

func (f *rawFront) Rename(p, q string) error {
	return f.p.ask(wire.Rename, wire.RenameParams{OldPath: p, NewPath: q, Overwrite: true}, nil)
}

func (f *rawFront) Stat(p string) (guardtest.Info, error) {
	var r wire.StatResult
	err := f.p.ask(wire.Stat, wire.StatParams{Path: p}, &r)
	if err == nil {
		return guardtest.Info{Size: r.Size}, nil
	}
	dir, base := parent(p)
	return statLink(err, func() bool {
		var l wire.ListResult
		_ = f.p.ask(wire.List, wire.ListParams{Path: dir, IncludeHidden: true}, &l)
		return slices.ContainsFunc(l.Entries, func(e wire.Entry) bool { return e.Name == base && e.Type == wire.TypeSymlink })
	})
}

func (f *rawFront) List(p string) ([]string, error) {
	got, params := []string{}, wire.ListParams{Path: p, IncludeHidden: true}
	for {
		var r wire.ListResult
		if err := f.p.ask(wire.List, params, &r); err != nil {
			return nil, err
		}
		for _, e := range r.Entries {
			got = append(got, e.Name)
		}
		if params.Cursor = r.NextCursor; params.Cursor == "" {
			slices.Sort(got)
			return got, nil
		}
	}
}

func (f *rawFront) Truncate(p string, size int64) error {
	return f.p.ask(wire.Write, wire.WriteParams{Path: p, Offset: &size, Truncate: true}, nil)
}

func (f *rawFront) Link(string, string) error               { return errNoMethod }
func (f *rawFront) Symlink(string, string) error            { return errNoMethod }
func (f *rawFront) Readlink(string) (string, error)         { return "", errNoMethod }
func (f *rawFront) Chmod(string, uint32) error              { return errNoMethod }
func (f *rawFront) Setxattr(string, string, []byte) error   { return errNoMethod }
func (f *rawFront) Getxattr(string, string) ([]byte, error) { return nil, errNoMethod }

var (
	_ guardtest.Front = (*clientFront)(nil)
	_ guardtest.Front = (*rawFront)(nil)
)
