package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Client talks to one session. It may be used by many goroutines.
type Client struct {
	info Info
	http *http.Client
}

// dialTimeout bounds the connection alone: a socket of the same machine answers
// at once or its daemon is stopped.
const dialTimeout = 5 * time.Second

// Dial returns a client of a session that Find, At or List returned.
func Dial(in Info) *Client {
	c := &Client{info: in}
	c.http = &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return c.dial(ctx)
		},
	}}
	return c
}

// Info is what the client was made for.
func (c *Client) Info() Info { return c.info }

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	fd, err := openPrivate(c.info.path)
	if err != nil {
		return nil, fmt.Errorf("%w: %s has ended", ErrNoSession, names.Quote(c.info.Name))
	}
	defer unix.Close(fd)
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	d := Dir{fd: fd}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", d.fdPath(socketFile))
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) {
		// It listens before it is published, so it is on its way out.
		return nil, c.endingError()
	}
	if err != nil {
		var errno unix.Errno
		if errors.As(err, &errno) {
			err = errno // the address in the error is a number of no use
		}
		return nil, fmt.Errorf("session %s does not answer on its control socket: %w", names.Quote(c.info.Name), err)
	}
	uid, err := peerUID(conn)
	if err != nil || uid != os.Geteuid() {
		_ = conn.Close()
		return nil, fmt.Errorf("session %s is served by the user with id %d, not by you", names.Quote(c.info.Name), uid)
	}
	return conn, nil
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://session"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.callError(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return c.remoteError(resp)
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("session %s broke off its answer: %w", names.Quote(c.info.Name), err)
	}
	return nil
}

// callError takes net/http's prefix (Get "http://session/...") off, and says
// plainly that the session went away.
func (c *Client) callError(err error) error {
	for _, broken := range []error{unix.ECONNRESET, unix.EPIPE, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, broken) {
			return c.endingError()
		}
	}
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

func (c *Client) endingError() error {
	return fmt.Errorf("%w: %s is ending", ErrNoSession, names.Quote(c.info.Name))
}

func (c *Client) remoteError(resp *http.Response) error {
	var p problem
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(&p); err != nil || p.Error == "" {
		return fmt.Errorf("session %s answered with status %d; is it of another version? see: rootsfs status", names.Quote(c.info.Name), resp.StatusCode)
	}
	return &Error{Text: p.Error, Class: p.Class, Kind: p.Kind, Ended: p.Ended}
}

// Status asks for the session's state.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/status", nil, &s)
	return s, err
}

// Add grants roots, all or none.
func (c *Client) Add(ctx context.Context, asks []Ask) ([]Root, error) {
	var a AddAnswer
	err := c.call(ctx, http.MethodPost, "/v1/roots", AddRequest{Roots: asks}, &a)
	return a.Roots, err
}

// Revoke ends roots. With an error of type *Error, its Ended tells of each.
func (c *Client) Revoke(ctx context.Context, req RevokeRequest) ([]Ended, error) {
	var a RevokeAnswer
	err := c.call(ctx, http.MethodPost, "/v1/revoke", req, &a)
	var remote *Error
	if errors.As(err, &remote) {
		a.Ended = remote.Ended
	}
	return a.Ended, err
}

// Set changes a root's mode.
func (c *Client) Set(ctx context.Context, name, mode string) (Root, error) {
	var a SetAnswer
	err := c.call(ctx, http.MethodPost, "/v1/set", SetRequest{Name: name, Mode: mode}, &a)
	return a.Root, err
}

// Resume lets suspended servers go on.
func (c *Client) Resume(ctx context.Context, req ResumeRequest) (a ResumeAnswer, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/resume", req, &a)
	return a, err
}

// Renew gives a live root another end.
func (c *Client) Renew(ctx context.Context, req RenewRequest) (Root, error) {
	var a SetAnswer
	err := c.call(ctx, http.MethodPost, "/v1/renew", req, &a)
	return a.Root, err
}

// Profile switches to another set of roots of the configuration.
func (c *Client) Profile(ctx context.Context, profile string) (a ProfileAnswer, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/profile", ProfileRequest{Profile: profile}, &a)
	return a, err
}

// Unmount revokes everything and ends the mount.
func (c *Client) Unmount(ctx context.Context) (a UnmountAnswer, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/unmount", struct{}{}, &a)
	return a, err
}

// Refused asks for the last refusal that a grant would have avoided; nil if
// there was none.
func (c *Client) Refused(ctx context.Context) (*Refusal, error) {
	var a RefusalAnswer
	err := c.call(ctx, http.MethodGet, "/v1/refused", nil, &a)
	return a.Last, err
}

// Questions lists what servers ask consent for.
func (c *Client) Questions(ctx context.Context) ([]Question, error) {
	var a QuestionsAnswer
	err := c.call(ctx, http.MethodGet, "/v1/consent", nil, &a)
	return a.Questions, err
}

// Answer decides a question, or denies all.
func (c *Client) Answer(ctx context.Context, req AnswerRequest) ([]Answered, error) {
	var a AnswerAnswer
	err := c.call(ctx, http.MethodPost, "/v1/consent", req, &a)
	return a.Answered, err
}

// WatchQuestions calls f with the questions that wait, and the denials that are
// remembered, at once and whenever one comes or goes, until ctx or the session
// ends, which is no error, or f returns one.
func (c *Client) WatchQuestions(ctx context.Context, f func(WaitingAnswer) error) error {
	return follow(ctx, c, "/v1/consent/watch", nil, f)
}

// Metrics copies the session's figures to w, in Prometheus' text format.
func (c *Client) Metrics(ctx context.Context, w io.Writer) error {
	resp, err := c.get(ctx, "/metrics")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("session %s broke off its answer: %w", names.Quote(c.info.Name), err)
	}
	return nil
}

// Events calls f for each event until ctx or the session ends, which is no
// error, or f returns one. It calls begun once before that, when no event from
// then on is missed: what begun asks for and the events that follow leave no
// gap between them.
func (c *Client) Events(ctx context.Context, begun func() error, f func(Event) error) error {
	return follow(ctx, c, "/v1/events", begun, f)
}

// get asks for something whose answer is read by the caller, who closes it.
func (c *Client) get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://session"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.callError(err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, c.remoteError(resp)
	}
	return resp, nil
}

// follow calls begun, if there is one, when the stream has begun, and f for
// each of its objects.
func follow[T any](ctx context.Context, c *Client, path string, begun func() error, f func(T) error) error {
	resp, err := c.get(ctx, path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if begun != nil {
		if err := begun(); err != nil {
			return err
		}
	}
	dec := json.NewDecoder(bufio.NewReader(resp.Body))
	for {
		var v T
		if err := dec.Decode(&v); err != nil {
			return nil //nolint:nilerr // the stream has ended
		}
		if err := f(v); err != nil {
			return err
		}
	}
}

// WaitEnded returns when the session's directory is gone or another's, or ctx
// ends.
func (c *Client) WaitEnded(ctx context.Context) error {
	for {
		in, ok := look(c.info.path, c.info.Name)
		if !ok || in.PID != c.info.PID || in.Start != c.info.Start {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}
