package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// addRoots serves control.AddRoots.
func (s *Session) addRoots(ctx context.Context, req control.AddRequest) (control.AddAnswer, error) {
	if len(req.Roots) == 0 {
		return control.AddAnswer{}, invalid("no root was named")
	}
	for i := range req.Roots {
		if err := checkRequestedGrant(&req.Roots[i]); err != nil {
			return control.AddAnswer{}, err
		}
	}
	roots, err := s.grant(ctx, req.Roots)
	return control.AddAnswer{Roots: roots}, err
}

// grant adds roots, all or none, to the running session.
func (s *Session) grant(ctx context.Context, grants []guard.Grant) ([]control.Root, error) {
	for i := range grants {
		grants[i].Policy.PosixFull = grants[i].Policy.PosixFull || s.opt.PosixFull
	}
	if s.isEnding() {
		return nil, errEnding
	}
	got, err := s.grantAll(ctx, grants)
	if err != nil {
		return nil, err
	}
	if s.isEnding() {
		// The end of the session may have listed the roots before these were added.
		_, _ = s.reg.RevokeAll(ctx)
		return nil, errEnding
	}
	out := make([]control.Root, 0, len(got))
	for _, g := range got {
		if st, ok := s.reg.Lookup(g.Root); ok {
			out = append(out, s.describe(st))
		}
	}
	return out, nil
}

func invalid(format string, args ...any) error {
	return &guard.Error{Kind: names.Invalid, Err: fmt.Errorf(format, args...)}
}

// checkRequestedGrant refuses a grant that came over the control socket and makes no sense. If the
// grant has no origin, checkRequestedGrant sets one. The registry judges the directory.
func checkRequestedGrant(g *guard.Grant) error {
	name := names.Quote(string(g.Root))
	if _, err := names.ParseRootName(string(g.Root)); err != nil {
		return err
	}
	if g.Policy.Rights == 0 {
		_, err := rules.ParseMode("")
		return err
	}
	if !filepath.IsAbs(g.Dir.Raw()) || strings.IndexByte(g.Dir.Raw(), 0) >= 0 {
		return invalid("the path of root %s is not absolute", name)
	}
	for _, l := range config.Limits() {
		if l.IsNegative(&g.Policy.Limits) {
			return invalid("the limit %s of root %s is negative", l.Name(), name)
		}
	}
	if g.Policy.Trash.Size < 0 || g.Policy.Trash.Age < 0 {
		return invalid("a bound of the trash of root %s is negative", name)
	}
	if g.Subject != "" {
		if err := config.CheckSubject(string(g.Subject)); err != nil {
			return invalid("the subject of root %s: %w", name, err)
		}
	}
	g.Origin = cmp.Or(g.Origin, "control socket")
	return nil
}

// renewRoot serves control.RenewRoot.
func (s *Session) renewRoot(ctx context.Context, req control.RenewRequest) (control.SetAnswer, error) {
	root, err := s.renew(ctx, req)
	return control.SetAnswer{Root: root}, err
}

func (s *Session) renew(ctx context.Context, req control.RenewRequest) (control.Root, error) {
	name := guard.RootName(req.Name)
	var end time.Time
	switch {
	case req.Session:
	case req.Expires != nil:
		end = *req.Expires
	case req.ForMS < 0 || req.ForMS > config.MaxFor.Milliseconds():
		return control.Root{}, invalid("a duration is between 0 (as long as it was granted for) and %v", config.MaxFor)
	case req.ForMS > 0:
		end = time.Now().Add(time.Duration(req.ForMS) * time.Millisecond)
	default:
		g, _ := s.refusals.grant(name)
		if life := g.life(); life > 0 {
			end = time.Now().Add(life)
		}
	}
	if s.isEnding() {
		return control.Root{}, errEnding
	}
	if st, ok := s.reg.Lookup(name); ok && st.State == guard.UnavailableState {
		return s.approveAgain(ctx, st, end)
	}
	if err := s.reg.Renew(ctx, name, end); err != nil {
		return control.Root{}, err
	}
	return s.rootAfter(name)
}

// rootAfter describes a root after a change.
func (s *Session) rootAfter(name guard.RootName) (control.Root, error) {
	st, ok := s.reg.Lookup(name)
	if !ok {
		return control.Root{}, revokedMeanwhile(name)
	}
	return s.describe(st), nil
}

func revokedMeanwhile(name guard.RootName) error {
	return &guard.Error{Op: names.OpSet, Kind: names.NotExist, Err: fmt.Errorf("root %s was revoked meanwhile", names.Quote(string(name)))}
}

// approveAgain grants an unavailable root again, with the same policy, until end. The root then has
// the directory that is now at the root's path.
func (s *Session) approveAgain(ctx context.Context, st guard.Status, end time.Time) (control.Root, error) {
	refuse := func(format string, args ...any) (control.Root, error) {
		return control.Root{}, &guard.Error{Op: names.OpSet, Kind: names.Unavailable, Err: fmt.Errorf(format, args...)}
	}
	g := st.Grant
	now, err := filepath.EvalSymlinks(g.Resolved)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refuse("nothing is at %s: make it or put it back first", names.Quote(g.Resolved))
	case err != nil:
		return control.Root{}, err
	case now != g.Resolved:
		return refuse("%s leads to %s now; if that is meant, approve it: rootsfs roots add %s",
			names.Quote(g.Resolved), names.Quote(now), names.ShellWord(string(g.Root)+"="+now))
	}
	g.Dir, g.Expires = names.Foreign(g.Resolved), end
	got, err := s.grant(ctx, []guard.Grant{g})
	if err != nil {
		return control.Root{}, err
	}
	if len(got) == 0 {
		return control.Root{}, guard.NoRoot(g.Root)
	}
	return got[0], nil
}

// setMode serves control.SetMode.
func (s *Session) setMode(ctx context.Context, req control.SetRequest) (control.SetAnswer, error) {
	name := guard.RootName(req.Name)
	rights, err := rules.ParseMode(req.Mode)
	if err == nil && s.isEnding() {
		err = errEnding
	}
	if err == nil {
		err = s.setRights(ctx, name, rights)
	}
	if err != nil {
		return control.SetAnswer{}, err
	}
	root, err := s.rootAfter(name)
	return control.SetAnswer{Root: root}, err
}

// pastGrant is a remembered grant. It may have ended.
type pastGrant struct {
	guard.Grant
	at time.Time // when the grant was made
}

// life returns the intended duration of the grant; 0: as long as the session.
func (g *pastGrant) life() time.Duration {
	if g.Expires.IsZero() {
		return 0
	}
	// The command calculated the end from its own start, so the remaining time is a little less
	// than the intended duration.
	d := g.Expires.Sub(g.at)
	return max(d.Round(time.Second), min(d, time.Second))
}

// grantAll makes the grants that the owner has approved (each has an Origin), all or none.
func (s *Session) grantAll(ctx context.Context, asks []guard.Grant) ([]guard.Grant, error) {
	if err := s.lease.checkGrants(); err != nil {
		return nil, err
	}
	for i := range asks {
		asks[i].Policy.Rights = s.opt.Bound.Rights(asks[i].Policy.Rights)
	}
	now := time.Now()
	got, err := s.reg.GrantAll(ctx, asks)
	s.refusals.noteGrants(got, now)
	for i := range asks {
		if g := &asks[i]; err != nil && g.Origin == config.Origin {
			err = s.opt.explainSystemDir(err, g, Resolve(g.Dir.Raw()), g.Policy.Rights, "write allow_system = true in its [[root]] block")
		}
	}
	return got, err
}

// explainSystemDir returns a better error, with the remedy, if the rules refused a root because it
// is a writable system directory. Otherwise it returns err.
func (o *Options) explainSystemDir(err error, g *guard.Grant, resolved string, rights guard.Rights, remedy string) error {
	own := rules.RootRules{AllowSystem: o.Rules.AllowSystem || g.AllowSystem, AllowRootDir: true}
	all := rules.RootRules{AllowSystem: true, AllowRootDir: true}
	if !errors.Is(err, names.Permission) || resolved == "/" || own.Check(resolved, rights) == nil || all.Check(resolved, rights) != nil {
		return err
	}
	return &guard.Error{Kind: names.Permission, Err: fmt.Errorf(
		"%s is a system directory and may only be read-only (:ro); %s if writing is meant", names.Quote(resolved), remedy)}
}

// setRights changes a root's rights, within the rules.
func (s *Session) setRights(ctx context.Context, name guard.RootName, rights guard.Rights) error {
	rights = s.opt.Bound.Rights(rights)
	err := s.reg.Set(ctx, name, rights)
	if st, ok := s.reg.Lookup(name); ok && err != nil {
		err = s.opt.explainSystemDir(err, &st.Grant, st.Grant.Resolved, rights, "revoke it and add it again with --allow-system")
	}
	return err
}

// explainSameDir returns a better error if the first grants of a session failed because two of them
// lead to the same directory. Otherwise it returns err.
func explainSameDir(asks []guard.Grant, err error) error {
	if !errors.Is(err, names.Exist) {
		return err
	}
	type place struct {
		dir     string
		subject guard.Subject
	}
	first := map[place]guard.Grant{}
	for _, a := range asks {
		dir := place{Resolve(a.Dir.Raw()), a.Subject}
		b, twice := first[dir]
		if twice && a.Root != b.Root {
			return &guard.Error{Kind: names.Exist, Err: fmt.Errorf(
				"%s is asked for twice: as the root %s (%s) and as %s (%s); leave one of them out",
				names.Quote(dir.dir), names.Quote(string(b.Root)), b.Origin, names.Quote(string(a.Root)), a.Origin)}
		}
		first[dir] = a
	}
	return err
}

// explainAbsent returns a better error if the first grants of a session failed because a directory
// does not exist: it names the directory and the origin of the grant. Otherwise it returns err.
func explainAbsent(asks []guard.Grant, err error) error {
	if !errors.Is(err, names.NotExist) {
		return err
	}
	for _, a := range asks {
		if _, gone := os.Stat(a.Dir.Raw()); errors.Is(gone, fs.ErrNotExist) {
			return &guard.Error{Kind: names.NotExist, Err: fmt.Errorf("the root %s (%s): %w", names.Quote(string(a.Root)), a.Origin, err)}
		}
	}
	return err
}

// Bound is the command line's bound on roots that the configuration or an answer to a question
// grants. The zero Bound leaves these roots as they are.
type Bound struct {
	Expires       time.Time    // zero: no end
	Limits        guard.Limits // of each, 0 is no limit
	OneFileSystem bool         // other file systems inside a root are not entered
	// Stage stages every root that can be written to, however it is granted: by the command
	// line, the configuration, a command of the owner's or an answer to a question.
	Stage bool
	// Patterns are added to the patterns of each root, but they lift no protection.
	Patterns guard.Patterns
	// Trash, if it is on, keeps the removed files of each root.
	Trash rules.Trash
}

// hasEnded reports whether the bound has ended at the time now, so that no root can begin.
func (b Bound) hasEnded(now time.Time) bool {
	return !b.Expires.IsZero() && !now.Before(b.Expires)
}

// Rights returns approved, the rights that the owner has approved for a root. If Stage is set, all
// changes that these rights permit are staged.
func (b Bound) Rights(approved guard.Rights) guard.Rights {
	if b.Stage {
		return approved.AsStaged()
	}
	return approved
}

// Apply narrows a grant: of each two limits, and of the two ends, the stricter one applies.
func (b Bound) Apply(g guard.Grant) guard.Grant {
	if !b.Expires.IsZero() && (g.Expires.IsZero() || b.Expires.Before(g.Expires)) {
		g.Expires = b.Expires
	}
	if b.OneFileSystem {
		g.Policy.OtherFileSystems = false
	}
	g.Policy.Rights = b.Rights(g.Policy.Rights)
	p := &g.Policy.Patterns
	p.Hide = slices.Concat(p.Hide, b.Patterns.Hide)
	p.Deny = slices.Concat(p.Deny, b.Patterns.Deny)
	p.Protect = slices.Concat(p.Protect, b.Patterns.Protect)
	p.Gitignore = p.Gitignore || b.Patterns.Gitignore
	if t := &g.Policy.Trash; b.Trash.On {
		t.On, t.Size, t.Age = true, cmp.Or(b.Trash.Size, t.Size), cmp.Or(b.Trash.Age, t.Age)
	}
	l, m := g.Policy.Limits, b.Limits
	if m.OpsPerSecond > 0 {
		// Without a burst, the burst is the operations of one second. So the stricter burst is
		// known only together with the speed.
		l.Burst, m.Burst = burst(l), burst(m)
	}
	if m.Timeout > 0 && l.Timeout == 0 {
		l.Timeout = rules.DefaultTimeout // what 0 means
	}
	if m.MaxStage > 0 && l.MaxStage == 0 {
		l.MaxStage = rules.DefaultMaxStage
	}
	g.Policy.Limits = config.Stricter(config.Limits(), l, m)
	return g
}

// burst returns the effective burst of a limit; 0 without a limit of speed.
func burst(l guard.Limits) int {
	switch {
	case l.OpsPerSecond <= 0:
		return 0
	case l.Burst > 0:
		return l.Burst
	}
	return max(1, int(l.OpsPerSecond))
}
