package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/rootsfs/rootsfs/broker"
)

// Bounds, in bytes. Looking for an error in an answer of more than maxError would cost more than
// the server itself. For such an answer the caller checks a least length that no error has.
const (
	maxAnswer = 64 << 20 // the longest answer that is accepted
	maxError  = 64 << 10 // the longest answer that is searched for an error
)

// lineHost is an MCP host that does hardly any work of its own, so that the bench measures the
// server. Of an answer, lineHost reads only the id and the length, and whether the answer is an
// error. A lineHost may be used concurrently.
type lineHost struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{} // closed when read returns

	writing atomic.Int32  // calls that have a line to write
	out     sync.Mutex    // held while writing; guards lines
	lines   *bufio.Writer // lines that go out in one write

	mu      sync.Mutex // guards the fields below
	last    int
	waiting map[int]chan answer
}

type answer struct {
	size int
	err  error
}

// newLineHost starts a server and initializes the MCP session.
func newLineHost(ctx context.Context, cmd *exec.Cmd) (*lineHost, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	broker.Widen(in)
	broker.Widen(out)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	h := &lineHost{cmd: cmd, in: in, lines: bufio.NewWriter(in), done: make(chan struct{}), waiting: map[int]chan answer{}}
	go h.read(out)
	if _, err := h.call(ctx, []byte(`"method":"initialize","params":{"protocolVersion":"`+filesRevision+`","capabilities":{},"clientInfo":{"name":"bench-host","version":"1"}}`)); err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, h.send([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
}

// read passes answers to their callers until the server hangs up or sends too long an answer.
func (h *lineHost) read(out io.Reader) {
	defer close(h.done)
	r := bufio.NewReaderSize(out, 64<<10)
	var line []byte
	for {
		var err error
		if line, err = readLine(r, line); err != nil {
			return
		}
		id, ok := idOf(line)
		if !ok {
			continue // a notification
		}
		a := answer{size: len(line)}
		if len(line) <= maxError && (bytes.Contains(line, []byte(`"isError":true`)) || bytes.Contains(line, []byte(`"error":{`))) {
			a.err = fmt.Errorf("the server answered %.300s", line)
		}
		h.mu.Lock()
		c := h.waiting[id]
		delete(h.waiting, id)
		h.mu.Unlock()
		if c != nil {
			c <- a
		}
	}
}

// readLine reads one line into buf, and returns buf, which it enlarges as needed.
func readLine(r *bufio.Reader, buf []byte) ([]byte, error) {
	buf = buf[:0]
	for {
		part, err := r.ReadSlice('\n')
		buf = append(buf, part...)
		switch {
		case len(buf) > maxAnswer:
			return buf, errors.New("the server's answer is too long")
		case !errors.Is(err, bufio.ErrBufferFull):
			return buf, err
		}
	}
}

// send writes one line; the last of several concurrent callers flushes.
func (h *lineHost) send(frame []byte) error {
	h.writing.Add(1)
	h.out.Lock()
	defer h.out.Unlock()
	_, err := h.lines.Write(append(frame, '\n'))
	if h.writing.Add(-1) == 0 {
		err = h.lines.Flush()
	}
	return err
}

// idOf returns the id of an answer. It looks only near the beginning and the end of the answer,
// because servers write the id there.
func idOf(line []byte) (int, bool) {
	const near = 64
	for _, part := range [][]byte{line[:min(len(line), near)], line[max(0, len(line)-near):]} {
		i := bytes.LastIndex(part, []byte(`"id":`))
		if i < 0 {
			continue
		}
		digits := part[i+len(`"id":`):]
		n := 0
		for n < len(digits) && digits[n] >= '0' && digits[n] <= '9' {
			n++
		}
		if id, err := strconv.Atoi(string(digits[:n])); err == nil {
			return id, true
		}
	}
	return 0, false
}

// call sends a request and returns the length of the answer. rest is the part of the
// request after the id.
func (h *lineHost) call(ctx context.Context, rest []byte) (int, error) {
	c := make(chan answer, 1)
	h.mu.Lock()
	h.last++
	id := h.last
	h.waiting[id] = c
	h.mu.Unlock()
	frame := fmt.Appendf(make([]byte, 0, len(rest)+64), `{"jsonrpc":"2.0","id":%d,%s}`, id, rest)
	if err := h.send(frame); err != nil {
		return 0, err
	}
	select {
	case a := <-c:
		return a.size, a.err
	case <-h.done:
		return 0, errors.New("the server hung up")
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// callTool makes the calls of a row. An answer has its text twice: as text, and structured. So an
// answer must have at least twice c.least bytes.
func (h *lineHost) callTool(ctx context.Context, dir string, c *serveCase, l load) (loadResult, error) {
	params, err := json.Marshal(map[string]any{"name": c.tool, "arguments": c.arguments(dir)})
	if err != nil {
		return loadResult{}, err
	}
	rest := append([]byte(`"method":"tools/call","params":`), params...)
	return l.run(ctx, func(ctx context.Context) error {
		n, err := h.call(ctx, rest)
		if err == nil && n < 2*c.least {
			err = fmt.Errorf("%s answered %d bytes", c.tool, n)
		}
		return err
	})
}

// close hangs up and waits for the server to end.
func (h *lineHost) close() error {
	err := h.in.Close()
	<-h.done
	return errors.Join(err, h.cmd.Wait())
}
