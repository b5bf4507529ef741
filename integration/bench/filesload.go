package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/client"
)

// childFiles is the mode in which this program is an MCP server over stdio. Its tool "load"
// asks the client for files, as often as the argument of the tool says.
const childFiles = "child-files"

// filesRevision is the last revision of MCP in which a server may send requests of its own.
const filesRevision = "2025-11-25"

// load is the work of one row about servers: the same call again and again, AtOnce calls at a
// time. The load ends after Count calls, or after Span if Count is 0, but not before the first
// call.
type load struct {
	Path    string `json:"path"`
	Bytes   int    `json:"bytes"`   // not 0: a read, which must return this many
	Entries int    `json:"entries"` // not 0: a listing, which must return this many
	Sizes   bool   `json:"sizes"`   // a listing with sizes
	// TheirNames makes server-filesystem list names and types without sizes, although Sizes is set.
	TheirNames bool          `json:"theirNames"`
	AtOnce     int           `json:"atOnce"`
	Span       time.Duration `json:"span"`
	Count      int           `json:"count"`
}

// loadResult is the result of a load.
type loadResult struct {
	PerSecond float64       `json:"perSecond"`
	Median    time.Duration `json:"median"`
	P99       time.Duration `json:"p99"`
}

// run makes the calls. The first error ends the load.
func (l load) run(ctx context.Context, call func(context.Context) error) (loadResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	start := time.Now()
	var mu sync.Mutex // guards took and begun
	var took []time.Duration
	begun := 0
	next := func(d time.Duration) bool {
		mu.Lock()
		defer mu.Unlock()
		if d > 0 {
			took = append(took, d)
		}
		if ctx.Err() != nil || l.Count > 0 && begun == l.Count || l.Count == 0 && begun > 0 && time.Since(start) >= l.Span {
			return false
		}
		begun++
		return true
	}
	var wg sync.WaitGroup
	for range l.AtOnce {
		wg.Go(func() {
			for d := time.Duration(0); next(d); {
				t := time.Now()
				if err := call(ctx); err != nil {
					cancel(err)
					return
				}
				d = max(time.Since(t), 1)
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	if err := context.Cause(ctx); err != nil {
		return loadResult{}, err
	}
	slices.Sort(took)
	return loadResult{float64(len(took)) / elapsed.Seconds(), took[len(took)/2], took[(len(took)-1)*99/100]}, nil
}

// serveFiles is the server of childFiles.
func serveFiles() error {
	b := client.New(nil)
	s := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "load"}, func(ctx context.Context, req *mcp.CallToolRequest, l load) (*mcp.CallToolResult, loadResult, error) {
		f, err := b.Files(req.Session)
		if err != nil {
			return nil, loadResult{}, err
		}
		out, err := l.run(ctx, func(ctx context.Context) error { return l.callBroker(ctx, f) })
		return nil, out, err
	})
	return s.Run(context.Background(), b.Stdio())
}

// callBroker makes one call, through the client's broker.
func (l load) callBroker(ctx context.Context, f *client.Files) error {
	if l.Entries == 0 {
		c, err := f.Read(ctx, l.Path, client.ReadOptions{Length: int64(l.Bytes)})
		if err == nil && len(c.Data) != l.Bytes {
			err = fmt.Errorf("read %d bytes of %d", len(c.Data), l.Bytes)
		}
		return err
	}
	n := 0
	for e, err := range f.List(ctx, l.Path, client.ListOptions{NoMetadata: !l.Sizes}) {
		if err != nil {
			return err
		}
		if l.Sizes != (e.Size > 0) {
			return fmt.Errorf("%s has size %d", e.Path, e.Size)
		}
		n++
	}
	if n != l.Entries {
		return fmt.Errorf("listed %d entries of %d", n, l.Entries)
	}
	return nil
}

// filesPeer is one way for a program to read and list files over MCP.
type filesPeer interface {
	do(ctx context.Context, l load) (loadResult, error)
	close() error
}

// brokeredPeer is a server that uses package broker/client. Its broker, of package broker, is in
// this process.
type brokeredPeer struct {
	session *broker.Session
	child   *exec.Cmd
	host    *mcp.ClientSession
}

// startBrokered starts the child, and connects it to a session of the broker.
func (l *lab) startBrokered(ctx context.Context, b *broker.Broker) (*brokeredPeer, error) {
	p := &brokeredPeer{session: b.Session("bench")}
	p.child = exec.CommandContext(ctx, l.self, childFiles)
	in, err := p.child.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	broker.Widen(in)
	broker.Widen(out)
	if err := p.child.Start(); err != nil {
		return nil, err
	}
	c := mcp.NewClient(&mcp.Implementation{Name: "bench-host", Version: "1"}, nil)
	if p.host, err = c.Connect(ctx, p.session.Lines(out, in, 0), &mcp.ClientSessionOptions{ProtocolVersion: filesRevision}); err != nil {
		p.session.Close()
		_ = p.child.Process.Kill()
		_ = p.child.Wait()
		return nil, err
	}
	return p, nil
}

func (p *brokeredPeer) do(ctx context.Context, l load) (out loadResult, err error) {
	l.Path = rootName + "/" + l.Path
	res, err := p.host.CallTool(ctx, &mcp.CallToolParams{Name: "load", Arguments: l})
	if err != nil {
		return out, err
	}
	text := textOf(res)
	if res.IsError {
		return out, errors.New(text)
	}
	return out, json.Unmarshal([]byte(text), &out)
}

func (p *brokeredPeer) close() error {
	err := p.host.Close() // this closes the child's standard input, too
	p.session.Close()
	return errors.Join(err, p.child.Wait())
}

// reference is server-filesystem, called by this process through the SDK.
type reference struct {
	host *mcp.ClientSession
	dir  string
}

func newReference(ctx context.Context, cmd *exec.Cmd, dir string) (*reference, error) {
	// The client announces no roots, because the server would take them for its directories.
	c := mcp.NewClient(&mcp.Implementation{Name: "bench-host", Version: "1"}, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
	host, err := c.Connect(ctx, &mcp.CommandTransport{Command: cmd}, &mcp.ClientSessionOptions{ProtocolVersion: filesRevision})
	return &reference{host, dir}, err
}

func (p *reference) do(ctx context.Context, l load) (loadResult, error) {
	params := &mcp.CallToolParams{Name: "read_text_file", Arguments: map[string]any{"path": p.dir + "/" + l.Path}}
	switch {
	case l.Sizes && !l.TheirNames:
		params.Name = "list_directory_with_sizes"
	case l.Entries > 0:
		params.Name = "list_directory"
	}
	return l.run(ctx, func(ctx context.Context) error {
		res, err := p.host.CallTool(ctx, params)
		if err != nil {
			return err
		}
		text := textOf(res)
		switch {
		case res.IsError:
			return errors.New(text)
		case l.Entries == 0 && len(text) != l.Bytes, l.Entries > 0 && len(text) < l.Entries*len("[FILE] "):
			return fmt.Errorf("%s answered %d bytes", params.Name, len(text))
		}
		return nil
	})
}

func (p *reference) close() error { return p.host.Close() }

func textOf(res *mcp.CallToolResult) string {
	if len(res.Content) == 1 {
		if text, ok := res.Content[0].(*mcp.TextContent); ok {
			return text.Text
		}
	}
	return ""
}
