package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Grant adds one root; see GrantAll.
func (g *Registry) Grant(ctx context.Context, ask Grant) (Grant, error) {
	got, err := g.GrantAll(ctx, []Grant{ask})
	if err != nil {
		return Grant{}, err
	}
	return got[0], nil
}

// GrantAll adds roots in one transaction: all of them or none. When they are visible, it
// sends one event for each. It opens each directory first, and then checks and grants the
// opened directory. A grant with the name of an unavailable root replaces that root: this is how
// such a root is approved again. Any other name in use is refused.
func (g *Registry) GrantAll(ctx context.Context, asks []Grant) ([]Grant, error) {
	list := make([]*Proposal, 0, len(asks))
	defer func() {
		for _, p := range list {
			p.Close()
		}
	}()
	got := make([]Grant, len(asks))
	for i, ask := range asks {
		p, err := g.Propose(ask)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
		if ask.Origin == "" {
			return nil, g.recordRefusedGrant(ask, &Error{Kind: names.NoConsent, Err: errors.New("nobody approved this root")})
		}
		got[i] = p.ask
	}
	return g.GrantProposed(ctx, list, got)
}

// Proposal is a root that was opened and checked, and is not granted yet. A person who is asked
// about it approves the opened directory, even if its path leads to another one by then.
type Proposal struct {
	ask Grant
	src Source // nil once granted or closed
}

// Ask returns the requested grant. Its Resolved is the path of the opened directory or file.
func (p *Proposal) Ask() Grant { return p.ask }

// File reports whether a single file was opened. It is false once the proposal was granted or
// closed.
func (p *Proposal) File() bool { return p.src != nil && p.src.File() != "" }

// ID returns the identity of the opened directory, or zero after the proposal was granted or
// closed.
func (p *Proposal) ID() rules.Identity {
	if p.src == nil {
		return rules.Identity{}
	}
	return p.src.ID()
}

// LiesIn reports whether the opened directory or file is top, or lies in it (Source.LiesIn).
func (p *Proposal) LiesIn(top rules.Identity) bool { return p.src != nil && p.src.LiesIn(top) }

// WithName gives the root another name, and returns p.
func (p *Proposal) WithName(root RootName) *Proposal {
	p.ask.Root = root
	return p
}

// Close releases a proposal that was not granted. After a grant it does nothing.
func (p *Proposal) Close() {
	if p.src != nil {
		_ = p.src.Close()
		p.src = nil
	}
}

// Propose opens the directory or file of a grant and checks it against the rules. A refusal is
// audited. The caller must close the proposal, granted or not.
func (g *Registry) Propose(ask Grant) (*Proposal, error) {
	src, err := g.open(&ask)
	if err != nil {
		return nil, g.recordRefusedGrant(ask, err)
	}
	return &Proposal{ask: ask, src: src}, nil
}

// open opens the directory or file of a grant, checks the grant, and sets its Resolved.
func (g *Registry) open(ask *Grant) (Source, error) {
	if _, err := names.ParseRootName(string(ask.Root)); err != nil {
		return nil, err
	}
	if !ask.Policy.Rights.Valid() {
		return nil, &Error{Kind: names.Invalid, Err: errors.New("the grant names no rights; write ro, rw, stage or a list of rights")}
	}
	if !ask.Expires.IsZero() && ask.Expires.UnixNano() <= g.clock.Now().Wall {
		return nil, &Error{Kind: names.Invalid, Err: errors.New("the grant has already expired")}
	}
	src, err := g.cfg.Opener.OpenRoot(ask.Dir.Raw())
	if err != nil {
		return nil, err
	}
	ask.Resolved = src.Resolved()
	ask.Policy.Rights = g.stagedByCeiling(ask, src)
	err = g.checkRules(ask, src.Location())
	if err == nil && ask.Origin != "" { // without an origin a person is asked, who sees Resolved
		err = g.judgeLinks(ask.Dir.Raw(), src.Resolved(), src.Links())
	}
	if err != nil {
		_ = src.Close()
		return nil, err
	}
	return src, nil
}

// stagedByCeiling returns the rights of a grant, with all changes staged if a ceiling demands that.
// A single file cannot be staged: the rules refuse it, and name the ceiling's line.
func (g *Registry) stagedByCeiling(ask *Grant, src Source) Rights {
	if src.File() != "" {
		return ask.Policy.Rights
	}
	return g.rootRules().AsStaged(ask.Resolved, ask.Policy.Rights)
}

// checkRules checks a grant against the rules, except those that the grant lifts for itself
// (rules.RootRules.With).
func (g *Registry) checkRules(ask *Grant, location string) error {
	allowed := g.rootRules()
	if err := allowed.With(ask).Check(ask.Resolved, ask.Policy.Rights); err != nil {
		return err
	}
	return allowed.CheckLocation(ask.Resolved, location, g.cfg.Opener.LocationOf)
}

// GrantProposed grants proposals in one transaction, as GrantAll does. got has one grant for
// each proposal, which may be narrower than the proposed one and must not be wider.
func (g *Registry) GrantProposed(ctx context.Context, list []*Proposal, got []Grant) ([]Grant, error) {
	added := make([]*root, 0, len(list))
	for i, p := range list {
		r, err := g.prepare(p, got[i])
		if err != nil {
			return nil, g.recordRefusedGrant(p.ask, err)
		}
		added = append(added, r)
	}
	release, err := g.pauseMoves(ctx, added)
	if err != nil {
		return nil, g.recordRefusedGrant(list[0].ask, err)
	}
	outers, err := g.commit(added)
	release()
	if err != nil {
		return nil, g.recordRefusedGrant(list[0].ask, err)
	}
	for _, p := range list {
		p.src = nil // it belongs to the root now
	}
	return g.announce(ctx, added, outers)
}

// prepare makes the root of a proposal, and does not add it to the registry.
func (g *Registry) prepare(p *Proposal, got Grant) (*root, error) {
	if p.src == nil {
		return nil, &Error{Kind: names.Internal, Err: errors.New("the proposal was granted or given up")}
	}
	got.Policy.Rights = g.stagedByCeiling(&got, p.src)
	got.Expires = g.rootRules().End(got.Expires, g.clock.Wall())
	if got.WiderThan(&p.ask) {
		return nil, &Error{Kind: names.NoConsent, Err: errors.New("the approval is wider than what was asked")}
	}
	// Check again: p.ask may have lifted rules that got does not lift (rules.RootRules.With).
	if err := g.checkRules(&got, p.src.Location()); err != nil {
		return nil, err
	}
	if got.Policy.Once && p.src.File() == "" {
		return nil, &Error{Kind: names.Invalid, Err: fmt.Errorf(
			"%s is a directory, and one use is granted of a single file: name the file", names.Quote(got.Resolved))}
	}
	if err := checkTrash(got.Policy.Trash, p.src, got.Resolved, got.Policy.Rights); err != nil {
		return nil, err
	}
	if err := checkStage(&got.Policy, p.src, got.Resolved); err != nil {
		return nil, err
	}
	if err := g.objection(nil, got.Policy); err != nil {
		return nil, err
	}
	if err := g.stage(p, &got); err != nil {
		return nil, err
	}
	if err := got.Policy.Compile(p.src); err != nil {
		return nil, err
	}
	if err := g.noteWritable(got.Resolved, got.Policy.Rights); err != nil {
		return nil, err
	}
	return newRoot(got, p.src, g.epochs.Add(1), g.moves.of(p.src.ID()), g.clock.Now()), nil
}

// stage makes the source of a staged root keep changes apart. It must be called after the
// checks, because it makes or opens a store.
func (g *Registry) stage(p *Proposal, got *Grant) error {
	if _, twice := p.src.(Staged); twice {
		return errStagedTwice
	}
	if !got.Policy.Rights.Staged() {
		return nil
	}
	// A root that has just ended may still have open the store that this root needs.
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Deadline)
	defer cancel()
	same := func(ended *Grant) bool { return ended.Resolved == got.Resolved && ended.Subject == got.Subject }
	if err := g.awaitClosing(ctx, same); err != nil {
		return &Error{Kind: names.Locked, Err: fmt.Errorf("a staged root at %s has ended and is still in use: try again", names.Quote(got.Resolved))}
	}
	src, err := g.cfg.Opener.Stage(p.src, got)
	if err == nil {
		p.src = src
	}
	return err
}

// announce records new roots that are visible now, and notifies views and listeners.
func (g *Registry) announce(ctx context.Context, added, outers []*root) ([]Grant, error) {
	got := make([]Grant, len(added))
	for i, r := range added {
		got[i] = r.grant
		detail := r.grant.Resolved + " (" + r.grant.Origin + ")" + lifted(&r.grant.Policy.Patterns)
		if err := g.recordOwner(r, names.OpGrant, r.policy.Load().Rights, detail); err != nil {
			// A grant that cannot be recorded is taken back.
			for _, r := range added {
				_, _ = g.end(context.WithoutCancel(ctx), r, RevokedState)
			}
			return nil, err
		}
		g.startTimer(r)
	}
	// Outer roots have a nested root inside now. Its files were handed out by the rights of the
	// outer roots alone, so these files are judged again.
	var narrowErrs []error
	for _, outer := range outers {
		narrowErrs = append(narrowErrs, g.narrowViews(ctx, outer))
	}
	for _, r := range added {
		_ = g.invalidateViews(ctx, Change{Root: r.name, Epoch: r.epoch, Kind: ChangeAdded})
		g.notify(Event{Kind: EventAdded, Root: r.name, Detail: r.policy.Load().Rights.String() + " " + r.grant.Resolved})
	}
	if err := errors.Join(narrowErrs...); err != nil {
		return got, fmt.Errorf("granted, but what was handed out through the root around it could not all be taken back: %w", err)
	}
	return got, nil
}

// lifted returns the part of a record's detail about protections that are not in force.
func lifted(p *Patterns) string {
	if text := p.LiftedText(); text != "" {
		return "; " + text
	}
	return ""
}

// recordRefusedGrant audits a grant that was refused, and returns err.
func (g *Registry) recordRefusedGrant(ask Grant, err error) error {
	e := &Error{Op: names.OpGrant, Kind: names.Reason(err), Err: err}
	var have *Error
	if errors.As(err, &have) {
		e.Kind, e.Err = have.Kind, have
	}
	_ = g.record(Record{
		Time: time.Now(), Subject: ask.Subject, Via: ViaControl, Op: names.OpGrant, Path: Path{Root: ask.Root},
		Rights: ask.Policy.Rights, Verdict: Refused, Kind: e.Kind, Errno: e.Errno(),
		Facts: Facts{Dir: ask.Dir.Raw(), Origin: ask.Origin}, Detail: ask.Dir.Raw() + ": " + err.Error(),
	})
	return err
}
