package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Client talks to one session. It may be used by many goroutines.
type Client struct{ info Info }

// dialTimeout bounds only the time to connect. A daemon on the same machine accepts a connection at
// once, unless it is stopped.
const dialTimeout = 5 * time.Second

// Dial returns a client of a session that Find, FindByMountpoint or List returned.
func Dial(in Info) *Client { return &Client{info: in} }

// Info returns the session of the client.
func (c *Client) Info() Info { return c.info }

// connect connects to the session, which must be this user's. It uses blocking calls, which need
// no poller (see rawConn).
func (c *Client) connect() (*rawConn, error) {
	fd, err := openPrivate(c.info.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s has ended", ErrNoSession, names.Quote(c.info.Name))
	}
	if err != nil {
		return nil, fmt.Errorf("session %s cannot be reached: %w", names.Quote(c.info.Name), err)
	}
	defer unix.Close(fd)
	d := Dir{fd: fd}
	conn, err := connectRaw(d.fdPath(socketFile), dialTimeout)
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) {
		// A session listens before it is published, so this one is ending.
		return nil, c.endingError()
	}
	if err != nil {
		// Only the number of the error: the name of the system call is of no use to the user.
		return nil, fmt.Errorf("session %s does not answer on its control socket: %w", names.Quote(c.info.Name), errnoOf(err))
	}
	cred, err := unix.GetsockoptUcred(conn.fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	switch {
	case err != nil:
		err = os.NewSyscallError("getsockopt", err)
	case int(cred.Uid) != os.Geteuid():
		err = fmt.Errorf("session %s is served by the user with id %d, not by you", names.Quote(c.info.Name), cred.Uid)
	default:
		return conn, nil
	}
	_ = conn.Close()
	return nil, err
}

// dial connects for a long stream. The runtime's poller waits for its data.
func (c *Client) dial() (*net.UnixConn, error) {
	raw, err := c.connect()
	if err != nil {
		return nil, err
	}
	conn, ok := pollConn(raw.fd).(*net.UnixConn)
	if !ok {
		_ = raw.Close()
		return nil, fmt.Errorf("session %s cannot be reached: this process has no descriptor, or this user no epoll watch, left", names.Quote(c.info.Name))
	}
	return conn, nil
}

// finalAnswerTimeout is how long a client waits for the answer of ApplyStage after its context has
// ended. The answer reports the changes that were applied before.
const finalAnswerTimeout = 5 * time.Second

// send sends one request and returns the answer, whose body the caller closes. When ctx ends, the
// session's context of the request ends, too. The answer can still be read for the duration of
// patience. Then the connection is closed.
func (c *Client) send(ctx context.Context, method, path string, body []byte, patience time.Duration) (*http.Response, error) {
	req, err := http.NewRequest(method, "http://session"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	conn, err := c.connect()
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() {
		if patience > 0 && conn.CloseWrite() == nil {
			time.AfterFunc(patience, func() { _ = conn.Close() })
			return
		}
		_ = conn.Close()
	})
	resp, err := exchange(conn, req)
	if err != nil {
		stop()
		_ = conn.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, c.callError(err)
	}
	resp.Body = answerBody{resp.Body, func() { stop(); _ = conn.Close() }}
	return resp, nil
}

// exchange writes a request and reads the beginning of the answer.
func exchange(conn net.Conn, req *http.Request) (*http.Response, error) {
	req.Close = true
	writeErr := req.Write(conn)
	// A server may refuse a request before it has read it to the end.
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil && writeErr != nil {
		err = writeErr
	}
	return resp, err
}

// answerBody is the body of an answer that has a connection of its own.
type answerBody struct {
	io.ReadCloser
	end func()
}

// Close closes the connection, even if a part of the answer is unread.
func (b answerBody) Close() error {
	b.end()
	return nil
}

// call calls a verb and decodes the answer into out. A refusal can have an answer, too: the work
// that was done before.
func (c *Client) call(ctx context.Context, verb string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if (verb == Revoke.name || verb == Unmount.name) && isStopped(c.info.PID) {
		_ = c.signal(unix.SIGCONT) // if it fails, the session does not answer, and the error says so
	}
	patience := time.Duration(0)
	if verb == ApplyStage.name {
		patience = finalAnswerTimeout
	}
	resp, err := c.send(ctx, http.MethodPost, "/v1/"+verb, body, patience)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return c.remoteError(resp, out)
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("session %s broke off its answer: %w", names.Quote(c.info.Name), err)
	}
	return nil
}

// callError returns the error of a call, or, if the connection broke off, the error that the
// session is ending.
func (c *Client) callError(err error) error {
	for _, broken := range []error{unix.ECONNRESET, unix.EPIPE, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, broken) {
			return c.endingError()
		}
	}
	return err
}

func (c *Client) endingError() error {
	return fmt.Errorf("%w: %s is ending", ErrNoSession, names.Quote(c.info.Name))
}

// remoteError returns the error in the answer of a session that refused. If partial is not nil,
// remoteError decodes into it the part of the work that the session did before.
func (c *Client) remoteError(resp *http.Response, partial any) error {
	var p problem
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(&p); err != nil || p.Error == "" {
		return fmt.Errorf("session %s answered with status %d; is it of another version? see: rootsfs status", names.Quote(c.info.Name), resp.StatusCode)
	}
	if partial != nil && p.Answer != nil {
		_ = json.Unmarshal(p.Answer, partial) // if this fails, the error is the refusal all the same
	}
	return &Error{Text: p.Error, Class: p.Class, Kind: p.Kind}
}

// Metrics copies the session's figures to w, in Prometheus' text format.
func (c *Client) Metrics(ctx context.Context, w io.Writer) error {
	resp, err := c.get(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("session %s broke off its answer: %w", names.Quote(c.info.Name), err)
	}
	return nil
}

// Stream calls f for each update. After the session has begun to answer, Stream returns nil when ctx
// or the session ends, and f's error if f returns one.
func (c *Client) Stream(ctx context.Context, req StreamRequest, f func(Update) error) error {
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	resp, err := c.get(ctx, http.MethodPost, "/v1/watch", body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(bufio.NewReader(resp.Body))
	for {
		var u Update
		if err := dec.Decode(&u); err != nil {
			return nil //nolint:nilerr // the stream has ended
		}
		if err := f(u); err != nil {
			return err
		}
	}
}

// get sends a request and returns the answer, whose body the caller closes. It returns a refusal as
// an error.
func (c *Client) get(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	resp, err := c.send(ctx, method, path, body, 0)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, c.remoteError(resp, nil)
	}
	return resp, nil
}

// WaitEnded returns when the session's directory is gone or belongs to another session, when
// limit has passed, or when ctx ends.
func (c *Client) WaitEnded(ctx context.Context, limit time.Duration) {
	for end := time.Now().Add(limit); time.Now().Before(end) && ctx.Err() == nil; pause() {
		in, ok := readSession(c.info.path, c.info.Name)
		if !ok || in.PID != c.info.PID || in.Start != c.info.Start {
			return
		}
	}
}

// pause waits 5 ms. It uses no timer of the Go runtime, because the runtime's timers need the
// runtime's poller.
func pause() { _, _ = unix.Poll(nil, 5) }
