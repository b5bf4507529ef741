package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

func (s *Session) stat(r *request, p *wire.StatParams) (any, error) {
	q, err := s.path(r, "path", p.Path)
	if err != nil {
		return nil, err
	}
	info, real, err := s.b.cfg.Tree.Stat(r.ctx, s.caller, q)
	if err != nil {
		return nil, err
	}
	root, _ := s.b.cfg.Registry.Lookup(q.Root)
	res := &wire.StatResult{
		Path: q.String(), Type: typeOf(&info), Size: sizeOf(&info), MTime: formatTime(info.ModTime()),
		Writable: root.Grant.Policy.Rights&guard.Write != 0,
	}
	if res.Type == wire.TypeFile {
		res.ETag, res.MimeType = vfs.ETag(&info), mimeType(real.Rel(), nil)
	}
	return res, nil
}

func (s *Session) create(r *request, p *wire.CreateParams) (any, error) {
	q, err := s.path(r, "path", p.Path)
	if err != nil {
		return nil, err
	}
	t := s.b.cfg.Tree
	switch {
	case p.Type == "" || p.Type == wire.TypeFile:
		info, err := t.CreateFile(r.ctx, s.caller, q, 0o644, p.Parents)
		if err != nil {
			return nil, err
		}
		return &wire.CreateResult{Path: q.String(), Type: wire.TypeFile, ETag: vfs.ETag(&info)}, nil
	case p.Type != wire.TypeDirectory:
		return nil, badParams{text: "params: type must be file or directory"}
	case p.Parents:
		_, _, err = t.MkdirAll(r.ctx, s.caller, q, 0o755)
	default:
		_, err = t.MkdirPath(r.ctx, s.caller, q, 0o755)
	}
	if err != nil {
		return nil, err
	}
	return &wire.CreateResult{Path: q.String(), Type: wire.TypeDirectory}, nil
}

func (s *Session) remove(r *request, p *wire.DeleteParams) (any, error) {
	q, err := s.path(r, "path", p.Path)
	if err != nil {
		return nil, err
	}
	if err := s.b.cfg.Tree.RemovePath(r.ctx, s.caller, q, vfs.RemoveOptions{Recursive: p.Recursive, ETag: p.IfMatch}); err != nil {
		if guardError(err).Kind == names.NotEmpty {
			return nil, &hinted{err: err, hint: "set recursive to delete what is in it"}
		}
		return nil, s.conflict(r, err)
	}
	return wire.Empty{}, nil
}

// oldAndNew reads the two paths of a rename or a copy.
func (s *Session) oldAndNew(r *request, p *wire.RenameParams) (from, to guard.Path, err error) {
	if from, err = s.path(r, "oldPath", p.OldPath); err == nil {
		to, err = s.path(r, "newPath", p.NewPath)
	}
	return from, to, err
}

func (s *Session) rename(r *request, p *wire.RenameParams) (any, error) {
	from, to, err := s.oldAndNew(r, p)
	if err != nil {
		return nil, err
	}
	if from.Root != to.Root && !s.sees(to.Root) {
		// The gate would answer that the path is in another root, and so reveal that root.
		return nil, &guard.Error{Op: names.OpRename, Path: to, Kind: names.NoConsent}
	}
	err = s.b.cfg.Tree.RenamePath(r.ctx, s.caller, from, to, p.Overwrite, p.IfMatch)
	if errors.Is(err, unix.EXDEV) {
		return nil, &hinted{err: err, hint: "a rename stays within one root: use files/copy and files/delete"}
	}
	if err != nil {
		return nil, s.conflict(r, err)
	}
	return &wire.RenameResult{Path: to.String()}, nil
}

func (s *Session) copy(r *request, p *wire.RenameParams) (any, error) {
	from, to, err := s.oldAndNew(r, p)
	if err != nil {
		return nil, err
	}
	c := &sessionCopy{s: s, r: r}
	report := s.reporter(r, p.Meta)
	info, err := s.b.cfg.Tree.CopyFile(r.ctx, s.caller, from, to, vfs.CopyOptions{
		Overwrite: p.Overwrite, ETag: p.IfMatch, Charge: c.charge,
		Progress: func(done int64) { r.alive(); report(done) },
	})
	c.end(err)
	if err != nil {
		return nil, s.conflict(r, err)
	}
	return &wire.RenameResult{Path: to.String(), Size: info.Size, ETag: vfs.ETag(&info)}, nil
}

// sessionCopy applies the limits of the session to one files/copy while it runs.
type sessionCopy struct {
	s *Session
	r *request

	mu       sync.Mutex // guards the fields below
	charged  int64
	answered bool // CopyFile has returned: a part of the copy that still runs is stopped, not charged
}

// charge is the Charge of vfs.CopyOptions. It charges n bytes to the session's total, and then
// waits until the session's speed limit lets n bytes pass. Other requests beyond the speed limit
// are refused, but a copy may wait, because it holds no memory meanwhile. A negative n is a refund.
func (c *sessionCopy) charge(ctx context.Context, n, size int64) error {
	c.mu.Lock()
	if c.answered {
		c.mu.Unlock()
		return context.Canceled
	}
	err := c.s.limits.chargeWrite(n, size)
	if err == nil {
		c.charged += n
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return c.s.limits.pace(ctx, n, c.r.alive)
}

// end ends the charging. It refunds the charged bytes if the copy failed, and otherwise counts
// them as written.
func (c *sessionCopy) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = true
	if err != nil {
		c.s.limits.refundWrite(c.charged)
		return
	}
	c.s.stats.written.Add(c.charged)
}

// reporter returns a function that sends notifications/progress, if the peer gave
// a token: at most ten a second, and none before the peer has received the previous one. The
// function does not wait, because a revocation waits for the operations that call the function.
func (s *Session) reporter(r *request, meta *wire.Meta) func(done int64) {
	if meta == nil || len(meta.ProgressToken) == 0 || string(meta.ProgressToken) == "null" {
		return func(int64) {}
	}
	r.reporting = make(chan struct{}, 1)
	pace := rate.Sometimes{Interval: 100 * time.Millisecond}
	return func(done int64) {
		pace.Do(func() {
			select {
			case r.reporting <- struct{}{}:
			default:
				return
			}
			go func() {
				s.notify(wire.Progress, map[string]any{"progressToken": meta.ProgressToken, "progress": done}, nil)
				<-r.reporting
			}()
		})
	}
}

// awaitReport waits until ctx ends or the peer has received the last progress notification, which
// must come before the answer. Afterwards no progress notification is sent.
func (r *request) awaitReport(ctx context.Context) {
	if r.reporting == nil {
		return
	}
	select {
	case r.reporting <- struct{}{}:
	case <-ctx.Done():
	}
}
