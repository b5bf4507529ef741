package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// The tools give the same verdicts in the conformance suite as the tree, a mount and files/*
// do. Each subtest has its own transport, or its own tools that read a file and list a directory.
// The test takes the verdict from the text of the answer, because a client gets nothing else.
// R002, R063, R064, R065, R066, R067, R070, R110.
func TestConformance(t *testing.T) {
	for name, run := range map[string]struct {
		connect func(*bench)
		uris    bool // files are named by URIs, in which a path is written in one way only
		read    func(*toolsFront, string) ([]byte, error)
		list    func(*toolsFront, string) ([]string, error)
		staged  bool
	}{
		"memory":    {inMemory, false, (*toolsFront).readText, (*toolsFront).listDirectory, false},
		"stdio":     {func(b *bench) { b.overStdio("") }, false, (*toolsFront).readRange, (*toolsFront).listWithSizes, false},
		"http":      {func(b *bench) { b.overHTTP("") }, false, (*toolsFront).readMultiple, (*toolsFront).tree, false},
		"resources": {inMemory, true, (*toolsFront).readResource, (*toolsFront).search, false},
		"staged":    {inMemory, false, (*toolsFront).readText, (*toolsFront).listDirectory, true},
	} {
		if run.staged && os.Getenv("ROOTSFS_SOAK") == "" {
			continue // it takes a while: each case makes a stage and closes it
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time is the disk's
			var tree *vfs.Tree
			s := guardtest.Suite{
				Opener: vfs.Opener(), Subject: "test", AtLeast: 270,
				Can: guardtest.Can{ParsesPaths: !run.uris, KindsOnly: true, FixedSize: true},
				Make: func(t testing.TB, reg *guard.Registry) guardtest.Front {
					b := startOn(t, reg, nil, nil)
					tree = vfs.New(reg)
					// Beside other roots every path begins with a root's name, and every tool is offered.
					b.root("second", guard.ReadWrite)
					b.root("third", guard.ReadWrite)
					run.connect(b)
					return &toolsFront{b: b, read: run.read, list: run.list}
				},
			}
			if run.staged {
				s.Opener, s.Staged, s.AtLeast = vfs.StagingOpener(t.TempDir(), "test"), true, 170
				s.Apply = func(root guard.RootName) error {
					_, err := tree.StageApply(context.Background(), root, vfs.StageApply{Links: true})
					return err
				}
			}
			guardtest.Run(t, s)
		})
	}
}

func inMemory(b *bench) { b.connect("") }

// toolsFront is the front end of a client that knows only tools.
type toolsFront struct {
	b    *bench
	read func(*toolsFront, string) ([]byte, error)
	list func(*toolsFront, string) ([]string, error)
}

// tool calls a tool and returns the text of the answer. If the tool refuses the call, tool returns
// the error that the text describes.
func (f *toolsFront) tool(name string, args m) (string, error) {
	res, err := f.b.host.CallTool(context.Background(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		return "", err
	}
	text := res.Content[0].(*mcp.TextContent).Text
	if res.IsError {
		return "", refusalOf(text)
	}
	return text, nil
}

// kindsByText has the kinds of errors whose texts do not begin with the text of their kind. A key
// is the beginning of the text of such an error.
var kindsByText = map[string]guard.Kind{
	"path has the element": names.Invalid, "path has a NUL byte": names.Invalid, "URI ": names.Invalid,
	"root name ": names.Invalid, "arguments: path is missing": names.Invalid, "arguments: paths is missing": names.Invalid,
	"path has an element longer": names.TooLong, "the policy ": names.Permission, "device or resource busy": names.IO,
	"the two paths lie in different roots": names.Invalid, "the links on the way": names.Invalid,
}

var pathBefore = regexp.MustCompile(`^c\d+-[^ ]*: `)

// refusalOf returns the error that a text describes.
func refusalOf(text string) error {
	bare := pathBefore.ReplaceAllString(text, "")
	for k := names.Invalid; k.String() != names.Other.String(); k++ {
		if words := (&guard.Error{Kind: k}).Text(); bare == words || strings.HasPrefix(bare, words+"; ") || strings.HasPrefix(bare, words+" (") {
			return &guard.Error{Kind: k, Err: errors.New(text)}
		}
	}
	for words, k := range kindsByText {
		if strings.HasPrefix(bare, words) {
			return &guard.Error{Kind: k, Err: errors.New(text)}
		}
	}
	return fmt.Errorf("the text tells no kind: %q", text)
}

func (f *toolsFront) ReadFile(p string) ([]byte, error) { return f.read(f, p) }

func (f *toolsFront) readText(p string) ([]byte, error) {
	text, err := f.tool("read_text_file", m{"path": p})
	return []byte(text), err
}

func (f *toolsFront) readRange(p string) ([]byte, error) {
	text, err := f.tool("read_file_range", m{"path": p})
	return []byte(text), err
}

func (f *toolsFront) readMultiple(p string) ([]byte, error) {
	text, err := f.tool("read_multiple_files", m{"paths": []string{p}})
	if reason, failed := strings.CutPrefix(text, p+": Error - "); failed {
		return nil, refusalOf(reason)
	}
	return []byte(strings.TrimSuffix(strings.TrimPrefix(text, p+":\n"), "\n")), err
}

// readResource reads a file by its URI. A path has a URI only if its root is a live directory and
// the path holds no NUL. Other paths are read by readText.
func (f *toolsFront) readResource(p string) ([]byte, error) {
	root, rel, _ := strings.Cut(p, "/")
	st, ok := f.b.reg.Lookup(guard.RootName(root))
	if !ok || st.State != guard.Live || st.FileRoot || strings.Contains(p, "\x00") {
		return f.readText(p)
	}
	uri := names.FormatURI(st.Grant.Resolved + "/" + rel)
	res, err := f.b.host.ReadResource(context.Background(), &mcp.ReadResourceParams{URI: uri})
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return nil, refusalOf(wire.Message)
	}
	if err != nil {
		return nil, err
	}
	return []byte(res.Contents[0].Text), nil
}

func (f *toolsFront) List(p string) ([]string, error) { return f.list(f, p) }

var listed = regexp.MustCompile(`(?m)^\[(?:FILE|DIR)\] `)

func (f *toolsFront) listDirectory(p string) ([]string, error) {
	text, err := f.tool("list_directory", m{"path": p})
	got := listed.Split(text, -1)[1:]
	for i := range got {
		got[i] = strings.TrimSuffix(got[i], "\n")
	}
	return sorted(got), err
}

// sorted returns names in the order in which the suite has them.
func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

func (f *toolsFront) listWithSizes(p string) ([]string, error) {
	text, err := f.tool("list_directory_with_sizes", m{"path": p})
	text, _, _ = strings.Cut(text, "\nTotal: ")
	got := listed.Split(text, -1)[1:]
	for i := range got {
		name, _, _ := strings.Cut(got[i], "  ")
		got[i] = strings.TrimSpace(name)
	}
	return sorted(got), err
}

func (f *toolsFront) tree(p string) ([]string, error) {
	text, err := f.tool("directory_tree", m{"path": p, "depth": 1})
	if err != nil {
		return nil, err
	}
	var all []struct{ Name string }
	testkit.Must(f.b.t, json.Unmarshal([]byte(text), &all))
	got := make([]string, len(all))
	for i := range all {
		got[i] = all[i].Name
	}
	return sorted(got), nil
}

func (f *toolsFront) search(p string) ([]string, error) {
	text, err := f.tool("search_files", m{"path": p, "pattern": "*"})
	if err != nil || text == "No matches found" {
		return []string{}, err
	}
	p = strings.TrimSuffix(p, "/")
	got := strings.Split(text, "\n"+p+"/")
	got[0] = strings.TrimPrefix(got[0], p+"/")
	return sorted(got), nil
}

func (f *toolsFront) WriteFile(p string, data []byte) error {
	_, err := f.tool("write_file", m{"path": p, "content": string(data)})
	return err
}

func (f *toolsFront) Append(p string, data []byte) error {
	_, err := f.tool("append_file", m{"path": p, "content": string(data), "create": true})
	return err
}

// Mkdir reports an error for an existing directory. The tool does not.
func (f *toolsFront) Mkdir(p string) error {
	root, rel, _ := strings.Cut(p, "/")
	dir, _ := f.b.reg.Dir(guard.RootName(root))
	_, lstatErr := os.Lstat(filepath.Join(dir, rel))
	_, err := f.tool("create_directory", m{"path": p})
	if err == nil && lstatErr == nil {
		return &guard.Error{Kind: names.Exist}
	}
	return err
}

func (f *toolsFront) Remove(p string) error {
	_, err := f.tool("delete_file", m{"path": p})
	return err
}

func (f *toolsFront) Rename(p, q string) error {
	_, err := f.tool("move_file", m{"source": p, "destination": q, "overwrite": true})
	return err
}

// Stat returns only the error of get_file_info. The tool follows a link, and lstat(2) does not: so
// for a link that leaves the root, Stat returns the mode of a link, if the directory lists the
// link.
func (f *toolsFront) Stat(p string) (guardtest.Info, error) {
	_, err := f.tool("get_file_info", m{"path": p})
	dir, base := filepath.Split(p)
	if errors.Is(err, names.Escaped) {
		if list, _ := f.List(strings.TrimSuffix(dir, "/")); slices.Contains(list, base) {
			return guardtest.Info{Mode: unix.S_IFLNK}, nil
		}
	}
	return guardtest.Info{}, err
}

// errNoTool is the error for operations that no tool has; the suite does not call them.
var errNoTool = errors.New("there is no such tool")

func (f *toolsFront) Truncate(string, int64) error            { return errNoTool }
func (f *toolsFront) Link(string, string) error               { return errNoTool }
func (f *toolsFront) Symlink(string, string) error            { return errNoTool }
func (f *toolsFront) Readlink(string) (string, error)         { return "", errNoTool }
func (f *toolsFront) Chmod(string, uint32) error              { return errNoTool }
func (f *toolsFront) Setxattr(string, string, []byte) error   { return errNoTool }
func (f *toolsFront) Getxattr(string, string) ([]byte, error) { return nil, errNoTool }

var _ guardtest.Front = (*toolsFront)(nil)
