package broker

import (
	"context"
	"sync"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/vfs"
)

func (s *Session) copy(r *request) (any, error) {
	p, from, to, err := s.twoPaths(r)
	if err != nil {
		return nil, err
	}
	c := &copying{s: s, r: r}
	report := s.reporter(r)
	info, err := s.b.cfg.Tree.CopyFile(r.ctx, s.caller, from, to, vfs.CopyOptions{
		Overwrite: p.Overwrite, ETag: p.IfMatch, Charge: c.charge,
		Progress: func(done int64) { r.alive(); report(done, 0) },
	})
	c.end(err)
	if err != nil {
		return nil, s.conflict(r, err)
	}
	return &wire.RenameResult{Path: to.String(), Size: info.Size, ETag: vfs.ETag(&info)}, nil
}

// copying holds one files/copy to the limits of its session while it runs.
type copying struct {
	s *Session
	r *request

	mu      sync.Mutex // guards the fields below
	charged int64
	over    bool // answered; what still runs is nobody's any more
}

// charge takes n bytes of the session's total, and waits for its speed limit: a
// copy holds no memory, so it need not be refused as a request too fast is.
func (c *copying) charge(ctx context.Context, n, size int64) error {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return context.Canceled
	}
	err := c.s.limits.write(n, size)
	if err == nil {
		c.charged += n
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return c.s.limits.pace(ctx, n, c.r.alive)
}

// end gives back what was charged if nothing came of it.
func (c *copying) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if err != nil {
		c.s.limits.unwritten(c.charged)
		return
	}
	c.s.stats.written.Add(c.charged)
}
