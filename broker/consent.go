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
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Limits of one question: a person cannot judge more.
const (
	maxRequested = 32
	maxMessage   = 4096     // bytes
	maxPath      = 4096     // bytes of one path: what the kernel takes (PATH_MAX)
	maxPathsSize = 16 << 10 // bytes of all paths together
	maxShown     = 1000     // characters of a path to be granted, as the person sees it
)

// NewID returns 128 random bits, for ids that a peer must not be able to guess.
func NewID() string { return strings.ToLower(rand.Text()) }

// consentCall is one files/consent being answered.
type consentCall struct {
	s      *Session
	r      *request
	rights guard.Rights
	res    *wire.ConsentResult
	// candidates has the requested paths that are not approved yet.
	candidates []*candidate
	// hostSeen reports that a path was looked up on the host. The question is then put
	// even if no path can be granted: an answer at once would tell the server that a path
	// does not exist.
	hostSeen bool
}

// candidate is a path that a person is asked about.
type candidate struct {
	Item
	proposal *guard.Proposal // nil: the path could not be opened
}

// consent answers files/consent. Paths that are approved already are not asked for again.
// The others are opened first, so that the person sees where each path leads and grants
// that directory and no other.
func (s *Session) consent(r *request, p *wire.ConsentParams) (any, error) {
	rights, err := checkConsent(p)
	if err != nil {
		return nil, err
	}
	if err := s.barred(names.OpGrant); err != nil {
		return nil, err // no person is asked
	}
	if terms := s.b.cfg.Terms; terms != nil { // so that the person sees whether the root would be staged
		rights = terms(guard.Grant{Policy: guard.Policy{Rights: rights}}).Policy.Rights
	}
	c := &consentCall{s: s, r: r, rights: rights, res: &wire.ConsentResult{ApprovedPaths: []string{}}}
	defer c.close()
	s.stats.asked.Add(int64(len(p.RequestedPaths)))
	defer func() { s.stats.given.Add(int64(len(c.res.ApprovedPaths))) }()
	for _, path := range p.RequestedPaths {
		q, err := s.b.parse(s.subject, path)
		if g, ok := c.approved(q, rights); ok && err == nil {
			c.approve(path, q.String(), g)
			c.note(guard.Allowed, q.String()+": approved already")
			continue
		}
		c.candidates = append(c.candidates, &candidate{Item: Item{Requested: names.Foreign(path), Mode: rights.String(), Rights: rights}})
	}
	if len(c.candidates) > 0 {
		// Count the question before a path is opened, so that a question over the limit opens none.
		if err := s.limits.spendQuestion(); err != nil {
			return nil, err
		}
		if err := c.open(); err != nil {
			return nil, err
		}
		c.ask(p.Message)
	}
	c.res.Granted = len(c.res.ApprovedPaths) > 0
	return c.res, nil
}

func checkConsent(p *wire.ConsentParams) (guard.Rights, error) {
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
		if all += len(path); all > maxPathsSize {
			return 0, badParams{text: fmt.Sprintf("params: requestedPaths is longer than %d bytes; ask for fewer at a time", maxPathsSize)}
		}
	}
	if p.Mode == "" {
		return guard.ReadOnly, nil
	}
	rights, err := rules.ParseMode(p.Mode)
	if err != nil {
		return 0, badParams{text: "params: mode: " + guardError(err).Text()}
	}
	return rights.Visible(), nil // only the owner decides whether a root is staged
}

func (c *consentCall) close() {
	for _, cand := range c.candidates {
		if cand.proposal != nil {
			cand.proposal.Close()
		}
	}
}

// approved returns the grant of the root that a path lies in. It reports whether the grant
// approves the path already: the root is live, the server sees it, and the grant has all of the
// rights.
func (c *consentCall) approved(q guard.Path, rights guard.Rights) (guard.Grant, bool) {
	st, ok := c.s.b.cfg.Registry.Lookup(q.Root)
	return st.Grant, ok && c.s.sees(q.Root) && st.State == guard.Live && st.Grant.Policy.Rights&rights == rights
}

// approve adds a requested path to the result. root is the path that the server can use from now
// on: the name of a root, or a path below such a name.
func (c *consentCall) approve(path, root string, g guard.Grant) {
	c.res.ApprovedPaths = append(c.res.ApprovedPaths, path)
	a := wire.Approved{Path: path, Root: root, Mode: g.Policy.Rights.Visible().String()}
	if !g.Expires.IsZero() {
		a.Expires = formatTime(g.Expires)
	}
	c.res.Approved = append(c.res.Approved, a)
}

// note records a decision.
func (c *consentCall) note(v guard.Verdict, detail string) {
	_ = c.s.b.cfg.Registry.NoteConsent(c.s.caller, v, guard.Facts{}, detail) // a record that is lost does not change the decision
}

// open opens the candidates, or finds why they cannot be granted. Limits.Timeout bounds open,
// although it does not bound files/consent as a whole, which waits for a person.
func (c *consentCall) open() error {
	ctx := c.r.ctx
	if limit := c.s.limits.Timeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	for _, cand := range c.candidates {
		host, err := hostPath(cand.Requested.Raw())
		if err == nil {
			c.hostSeen = true
			cand.proposal, err = c.propose(ctx, host, nil)
		}
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			// The reason is for the person. The server learns nothing about the host's
			// files.
			cand.Problem = names.Foreign(err.Error())
			continue
		}
		resolved := cand.proposal.Ask().Resolved
		if utf8.RuneCountInString(names.Quote(resolved)) > maxShown {
			cand.Problem = names.Foreign(fmt.Sprintf("its path has more than the %d characters that are shown", maxShown))
			continue
		}
		cand.Resolved, cand.File = names.Foreign(resolved), cand.proposal.File()
		cand.Rights = cand.proposal.Ask().Policy.Rights // a ceiling of the registry may demand that changes are staged
		cand.Mode = cand.Rights.String()
		if cand.File && cand.Rights.Staged() {
			cand.Problem = "it is a single file, which cannot be staged; its directory can"
		}
	}
	return nil
}

// hostPath reads a path of files/consent: absolute, or a file URI. Before there is a root, a
// relative path has no meaning on which the two sides agree.
func hostPath(p string) (string, error) {
	if len(p) >= 5 && strings.EqualFold(p[:5], "file:") {
		return names.ParseURI(p)
	}
	switch {
	case strings.IndexByte(p, 0) >= 0:
		return "", invalid("the path has a NUL byte")
	case !filepath.IsAbs(p):
		return "", invalid("the path is not absolute")
	}
	return p, nil
}

// longestBase leaves room for a number, which distinguishes roots with the same base.
const longestBase = names.MaxRootName - 8

// rootName makes a name for a root that consent grants, from the last element of its path.
// A server may have chosen that element, so it goes through names.SafeName.
func rootName(host string) guard.RootName {
	base := names.SafeName(filepath.Base(host))
	return guard.RootName(base[:min(len(base), longestBase)])
}

// maxOpening limits how many paths a session opens at a time. A path counts until its open
// returns, even if the request has timed out. So a file system that hangs blocks at most
// maxOpening goroutines of a session.
const maxOpening = 4

// propose opens a path of the host. If within is not nil, the path has to lie in that directory.
// propose opens the path in a goroutine, because the file system may hang: the request is
// answered when its time is up, and a path that is opened too late is closed.
func (c *consentCall) propose(ctx context.Context, host string, within *rules.Identity) (*guard.Proposal, error) {
	ctx, cancel := context.WithTimeout(ctx, rules.DefaultTimeout) // Limits.Timeout may be none
	defer cancel()
	opening := c.s.opening
	select {
	case opening <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	reg := c.s.b.cfg.Registry
	ask := guard.Grant{Root: rootName(host), Dir: names.Foreign(host), Subject: c.s.subject, Policy: guard.Policy{Rights: c.rights}}
	if within != nil {
		// With an Origin, Propose also refuses a path through a link that others can change: the
		// person named the path and does not see where it leads.
		ask.Origin = "consent"
	}
	var p *guard.Proposal
	var err error
	opened := make(chan struct{})
	go func() {
		p, err = reg.Propose(ask)
		if err == nil && within != nil && !p.LiesIn(*within) {
			p.Close()
			err = errNotBelow
		}
		<-opening
		select {
		case opened <- struct{}{}:
		case <-ctx.Done():
			if err == nil {
				p.Close()
			}
		}
	}()
	select {
	case <-opened:
		return p, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ask puts the question and grants the allowed paths.
func (c *consentCall) ask(message string) {
	s := c.s
	if !c.hostSeen {
		c.denied("denied", "nothing of it can be granted: "+c.candidates[0].Problem.Raw())
		return
	}
	if s.asker == nil {
		c.denied("denied", "there is nobody to ask")
		return
	}
	now := time.Now()
	q := &Question{
		Kind: FileKind, ID: NewID(), Asked: now, Until: now.Add(s.b.cfg.AskFor), Subject: s.subject, Message: names.Foreign(message),
	}
	for _, cand := range c.candidates {
		q.Items = append(q.Items, cand.Item)
	}
	s.mu.Lock()
	q.Server, q.elicitor = names.Foreign(s.server), s.elicitor
	s.mu.Unlock()
	if c.r.elicitor != nil {
		q.elicitor = c.r.elicitor
	}
	ctx, cancel := context.WithTimeout(c.r.ctx, s.b.cfg.AskFor)
	defer cancel()
	ans, err := s.asker.Ask(ctx, q)
	switch { // an answer that comes too late does not count
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

func (c *consentCall) denied(reason, detail string) {
	if len(c.res.ApprovedPaths) == 0 {
		c.res.Reason = reason
	}
	c.note(guard.Refused, detail)
}

// decide grants the paths that an answer allows. If one cannot be granted, the others still
// are.
func (c *consentCall) decide(ans Answer) {
	for i, cand := range c.candidates {
		if i >= len(ans.Decisions) || !ans.Decisions[i].Allow || cand.Problem != "" {
			c.note(guard.Refused, cand.Requested.Raw()+": denied by "+ans.By)
			continue
		}
		if err := c.grant(cand, ans.Decisions[i], ans.By); err != nil {
			c.s.b.cfg.Log.Warn("allowed, but not granted", "path", cand.Requested, "error", err)
			c.note(guard.Failed, cand.Requested.Raw()+": allowed by "+ans.By+", but: "+err.Error())
		}
	}
	if len(c.res.ApprovedPaths) == 0 {
		c.res.Reason = "denied"
	}
}

// grant grants the root that one decision allows.
func (c *consentCall) grant(cand *candidate, d Decision, by string) error {
	p, approvedPath := cand.proposal, cand.Requested
	if d.Path != "" && d.Path != cand.Resolved.Raw() {
		narrower, err := c.narrow(cand, d.Path)
		if err != nil {
			return err
		}
		defer narrower.Close()
		p, approvedPath = narrower, names.Foreign(narrower.Ask().Resolved)
	}
	got := p.Ask()
	got.Origin = "consent: " + by
	if d.Mode != "" {
		rights, err := rules.ParseMode(d.Mode)
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
	// One grant at a time: another question about the same directory may be answered now.
	b := c.s.b
	b.nameMu.Lock()
	defer b.nameMu.Unlock()
	q, err := b.cfg.Registry.Parse(c.s.subject, got.Resolved)
	if g, ok := c.approved(q, got.Policy.Rights); ok && err == nil {
		c.approve(approvedPath.Raw(), q.String(), g) // approved under another path, or named twice in the question
		return nil
	}
	if b.cfg.Terms != nil {
		got = b.cfg.Terms(got)
	}
	got.Root = b.freeName(got.Root)
	grants, err := b.cfg.Registry.GrantProposed(c.r.ctx, []*guard.Proposal{p.WithName(got.Root)}, []guard.Grant{got})
	if err != nil {
		return err
	}
	c.approve(approvedPath.Raw(), string(grants[0].Root), grants[0])
	return nil
}

var errNotBelow = &guard.Error{Kind: names.NoConsent, Err: errors.New("the narrower path is not below what was asked for")}

// narrow opens a path below the directory that the person was shown. The path must lie in the
// opened directory: the directory's path may lead elsewhere by the time the person answers.
func (c *consentCall) narrow(cand *candidate, path string) (*guard.Proposal, error) {
	if cand.File {
		return nil, errNotBelow
	}
	within := cand.proposal.ID()
	p, err := c.propose(c.r.ctx, path, &within)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(cand.Resolved.Raw(), p.Ask().Resolved)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		p.Close()
		return nil, errNotBelow
	}
	return p, nil
}

// freeName returns a free root name: base, or base with a number if base is taken. The caller
// holds nameMu.
func (b *Broker) freeName(base guard.RootName) guard.RootName {
	for name, n := base, 2; ; n++ {
		if _, taken := b.cfg.Registry.Lookup(name); !taken {
			return name
		}
		name = base + guard.RootName(fmt.Sprintf("-%d", n))
	}
}
