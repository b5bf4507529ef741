package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Limits of one question: more is not for a person to judge.
const (
	maxRequested = 32
	maxMessage   = 4096 // bytes
	maxPath      = 4096 // bytes of one path: what the kernel takes (PATH_MAX)
	maxPaths     = 16 << 10
	maxShown     = 1000 // characters of a path that is granted, as it is shown
)

// NewID returns 128 random bits, for what a peer must not be able to guess.
func NewID() string { return strings.ToLower(rand.Text()) }

// consent answers files/consent. What is approved already is not asked again;
// the rest is opened first, so that the person sees where each path leads and
// grants that directory and no other.
func (s *Session) consent(r *request, p *wire.ConsentParams) (any, error) {
	rights, err := s.checkConsent(p)
	if err != nil {
		return nil, err
	}
	if err := s.suspended(names.OpGrant); err != nil {
		return nil, err // nor is anybody bothered for it
	}
	c := &consenting{s: s, r: r, rights: rights, res: &wire.ConsentResult{ApprovedPaths: []string{}}}
	defer c.close()
	s.stats.asked.Add(int64(len(p.RequestedPaths)))
	defer func() { s.stats.given.Add(int64(len(c.res.ApprovedPaths))) }()
	var open []string
	for _, path := range p.RequestedPaths {
		q, err := s.b.parse(s.subject, path)
		if g, ok := c.approved(q, rights); ok && err == nil {
			c.approve(path, q.String(), g)
			_ = s.b.cfg.Registry.NoteConsent(s.caller, guard.Allowed, q.String()+": approved already")
		} else {
			open = append(open, path)
		}
	}
	if len(open) > 0 {
		// Before anything is opened: one question too many costs nothing.
		if err := s.limits.ask(); err != nil {
			return nil, err
		}
		for _, path := range open {
			if err := c.consider(path); err != nil {
				return nil, err
			}
		}
		c.ask(p.Message)
	}
	c.res.Granted = len(c.res.ApprovedPaths) > 0
	return c.res, nil
}

func (s *Session) checkConsent(p *wire.ConsentParams) (guard.Rights, error) {
	rights := guard.ReadOnly
	switch {
	case len(p.RequestedPaths) == 0:
		return 0, badParams{text: "params: requestedPaths is missing"}
	case len(p.RequestedPaths) > maxRequested:
		return 0, badParams{text: fmt.Sprintf("params: requestedPaths has more than %d paths", maxRequested)}
	case len(p.Message) > maxMessage:
		return 0, badParams{text: fmt.Sprintf("params: message is longer than %d bytes", maxMessage)}
	}
	all := 0
	for i, path := range p.RequestedPaths {
		if len(path) > maxPath {
			return 0, badParams{text: fmt.Sprintf("params: requestedPaths[%d] is longer than %d bytes", i, maxPath)}
		}
		if all += len(path); all > maxPaths {
			return 0, badParams{text: fmt.Sprintf("params: requestedPaths is longer than %d bytes; ask for fewer at a time", maxPaths)}
		}
	}
	if p.Mode != "" {
		var err error
		if rights, err = guard.ParseMode(p.Mode); err != nil {
			return 0, badParams{text: "params: mode: " + guardError(err).Text()}
		}
	}
	return rights, nil
}

// consenting is one files/consent being decided.
type consenting struct {
	s      *Session
	r      *request
	rights guard.Rights
	res    *wire.ConsentResult
	asked  []*guard.Proposal
	items  []Item
	// looked: a path was looked at on the host. Then the question is put also if
	// nothing came of it: a server that is answered at once learns what is not
	// there.
	looked bool
	hold   []*guard.Proposal // to be closed
}

func (c *consenting) close() {
	for _, p := range c.hold {
		p.Close()
	}
}

// approved returns the grant of the root that a path lies in, if it is one the
// server sees and the rights are the grant's.
func (c *consenting) approved(q guard.Path, rights guard.Rights) (guard.Grant, bool) {
	st, ok := c.s.b.cfg.Registry.Lookup(q.Root)
	return st.Grant, ok && c.s.sees(q.Root) && st.State == guard.Live && st.Grant.Policy.Rights&rights == rights
}

// consider opens one path, or finds that it cannot be granted. The error is that
// of a request that has ended.
func (c *consenting) consider(path string) error {
	item := Item{Requested: path, Mode: c.rights.String(), Rights: c.rights}
	host, err := hostPath(path)
	var prop *guard.Proposal
	if err == nil {
		c.looked = true
		prop, err = c.propose(host, nil)
	}
	if err != nil && c.r.ctx.Err() != nil {
		return c.r.ctx.Err()
	}
	if err == nil && utf8.RuneCountInString(names.Quote(prop.Ask().Resolved)) > maxShown {
		err = fmt.Errorf("its path has more than the %d characters that are shown", maxShown)
	}
	if err != nil {
		// The server learns nothing of what the host has; the person does.
		item.Problem = err.Error()
		c.items, c.asked = append(c.items, item), append(c.asked, nil)
		return nil
	}
	item.Resolved, item.File = prop.Ask().Resolved, prop.File()
	c.items, c.asked = append(c.items, item), append(c.asked, prop)
	return nil
}

// maxOpening is how many paths of one session are being opened at a time, those
// of requests that were answered meanwhile counted: a file system that hangs keeps
// no more than these.
const maxOpening = 4

// propose opens a path, which has to lie in the directory in unless that is nil. It
// may lie on a file system that hangs, so that is done on the side: the request is
// answered when its time is up, and what is opened too late is closed.
func (c *consenting) propose(host string, in *guard.Identity) (*guard.Proposal, error) {
	ctx, cancel := context.WithTimeout(c.r.ctx, guard.DefaultTimeout) // Limits.Timeout may be none
	defer cancel()
	select {
	case c.s.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	type opened struct {
		p   *guard.Proposal
		err error
	}
	done := make(chan opened)
	reg, subject, rights, opening := c.s.b.cfg.Registry, c.s.subject, c.rights, c.s.opening
	ask := guard.Grant{Root: rootName(host), Dir: host, Subject: subject, Policy: guard.Policy{Rights: rights}}
	if in != nil {
		ask.Origin = "consent" // the owner has named the path: links on it are judged
	}
	go func() {
		p, err := reg.Propose(ask)
		if err == nil && in != nil && !p.LiesIn(*in) {
			p.Close()
			err = errNotBelow
		}
		<-opening
		select {
		case done <- opened{p, err}:
		case <-ctx.Done():
			if err == nil {
				p.Close()
			}
		}
	}()
	select {
	case o := <-done:
		if o.err == nil {
			c.hold = append(c.hold, o.p)
		}
		return o.p, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ask puts the question and grants what was allowed.
func (c *consenting) ask(message string) {
	s := c.s
	if !c.looked {
		c.denied("denied", "nothing of it can be granted: "+c.items[0].Problem)
		return
	}
	if s.b.cfg.Asker == nil {
		c.denied("denied", "there is nobody to ask")
		return
	}
	ctx, cancel := context.WithTimeout(c.r.ctx, s.b.cfg.AskFor)
	defer cancel()
	stop := c.patience(ctx)
	defer stop()
	now := time.Now()
	s.mu.Lock()
	server, host := s.server, s.host
	s.mu.Unlock()
	if c.r.host != nil {
		host = c.r.host
	}
	q := &Question{
		Kind: FileKind, ID: NewID(), Asked: now, Until: now.Add(s.b.cfg.AskFor), Subject: s.subject, Server: server,
		Message: message, Items: c.items, host: host,
	}
	ans, err := s.b.cfg.Asker.Ask(ctx, q)
	switch { // an answer that comes too late is none
	case c.r.ctx.Err() != nil:
		c.denied("timeout", "withdrawn: whoever asked waits no more")
	case ctx.Err() != nil || errors.Is(err, ErrUnanswered):
		c.denied("timeout", "nobody answered")
	case errors.As(err, new(*errAnswer)):
		s.b.cfg.Log.Warn("an answer to a question was refused", "subject", s.subject, "error", err)
		c.denied("denied", err.Error())
	case err != nil:
		c.denied("denied", "the question could not be put: "+err.Error())
	default:
		c.decide(ans)
	}
}

// patience keeps the request's timeout from running while a person thinks.
func (c *consenting) patience(ctx context.Context) (stop func()) {
	if c.s.limits.Timeout <= 0 {
		return func() {}
	}
	t := time.NewTicker(max(c.s.limits.Timeout/4, time.Millisecond))
	done := make(chan struct{})
	go func() {
		defer t.Stop()
		for {
			select {
			case <-t.C:
				c.r.alive()
			case <-ctx.Done():
				return
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}

func (c *consenting) denied(reason, detail string) {
	if len(c.res.ApprovedPaths) == 0 {
		c.res.Reason = reason
	}
	_ = c.s.b.cfg.Registry.NoteConsent(c.s.caller, guard.Refused, detail)
}

// decide grants what an answer allows, each path by itself: that one cannot be
// granted after all takes nothing from the others.
func (c *consenting) decide(ans Answer) {
	allowed := 0
	for i, item := range c.items {
		if i >= len(ans.Decisions) || !ans.Decisions[i].Allow || c.asked[i] == nil {
			_ = c.s.b.cfg.Registry.NoteConsent(c.s.caller, guard.Refused, item.Requested+": denied by "+ans.By)
			continue
		}
		if err := c.grant(item, c.asked[i], ans.Decisions[i], ans.By); err != nil {
			c.s.b.cfg.Log.Warn("allowed, but not granted", "path", item.Requested, "error", err)
			_ = c.s.b.cfg.Registry.NoteConsent(c.s.caller, guard.Failed, item.Requested+": allowed by "+ans.By+", but: "+err.Error())
			continue
		}
		allowed++
	}
	if allowed == 0 && len(c.res.ApprovedPaths) == 0 {
		c.res.Reason = "denied"
	}
}

// grant makes one decision a root.
func (c *consenting) grant(item Item, p *guard.Proposal, d Decision, by string) error {
	shown := item.Requested
	if d.Path != "" && d.Path != item.Resolved {
		var err error
		if p, err = c.narrow(item, p.ID(), d.Path); err != nil {
			return err
		}
		shown = p.Ask().Resolved
	}
	got := p.Ask()
	got.Origin = "consent: " + by
	if d.Mode != "" {
		rights, err := guard.ParseMode(d.Mode)
		if err != nil {
			return err
		}
		got.Policy.Rights = rights
	}
	if d.For > 0 {
		got.Expires = time.Now().Add(d.For)
	}
	if d.Idle > 0 {
		got.Policy.Limits.Idle = d.Idle
	}
	// One at a time: another question may be answered for the same directory now.
	c.s.b.naming.Lock()
	defer c.s.b.naming.Unlock()
	q, err := c.s.b.cfg.Registry.Parse(c.s.subject, got.Resolved)
	if g, ok := c.approved(q, got.Policy.Rights); ok && err == nil {
		c.approve(shown, q.String(), g) // by another path, or named twice
		return nil
	}
	if terms := c.s.b.cfg.Terms; terms != nil {
		got = terms(got)
	}
	grants, err := c.grantNamed(p, got)
	if err != nil {
		return err
	}
	root, _ := names.NewPath(grants.Root, "")
	c.approve(shown, root.String(), grants)
	return nil
}

var errNotBelow = &guard.Error{Kind: names.NoConsent, Err: errors.New("the narrower path is not below what was asked for")}

// narrow opens a path below the one that was shown: below that very directory,
// which may have another path by the time the person answers.
func (c *consenting) narrow(item Item, shown guard.Identity, path string) (*guard.Proposal, error) {
	if item.File {
		return nil, errNotBelow
	}
	p, err := c.propose(path, &shown)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(item.Resolved, p.Ask().Resolved)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return nil, errNotBelow
	}
	return p, nil
}

// grantNamed grants a proposal, under its own name or, if that is taken, with a
// number behind it. The caller holds the broker's naming.
func (c *consenting) grantNamed(p *guard.Proposal, got guard.Grant) (guard.Grant, error) {
	b, base := c.s.b, string(got.Root)
	for n := 2; ; n++ {
		if _, taken := b.cfg.Registry.Lookup(got.Root); !taken {
			break
		}
		got.Root = guard.RootName(fmt.Sprintf("%s-%d", base, n))
	}
	p = p.WithName(got.Root)
	grants, err := b.cfg.Registry.GrantProposed(c.r.ctx, []*guard.Proposal{p}, []guard.Grant{got})
	if err != nil {
		return guard.Grant{}, err
	}
	return grants[0], nil
}

func (c *consenting) approve(path, root string, g guard.Grant) {
	c.res.ApprovedPaths = append(c.res.ApprovedPaths, path)
	a := wire.Approved{Path: path, Root: root, Mode: g.Policy.Rights.String()}
	if !g.Expires.IsZero() {
		a.Expires = stamp(g.Expires)
	}
	c.res.Approved = append(c.res.Approved, a)
}
