package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostwatch"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// confState is the configuration in force.
type confState struct {
	// changing serialises reloads and switches of profiles. It holds one value while roots are
	// granted and revoked. That may take long, so changing is a channel and not a mutex: a call
	// that waits for it can end with its context.
	changing chan struct{}

	mu      sync.Mutex // guards the fields below
	current *config.Config
	profile string
	problem string // why the file's present contents are not in force
}

// followConfig applies changes of the configuration until the context ends, including those
// since the first reading.
func (s *Session) followConfig(ctx context.Context) {
	changes := make(chan struct{}, 1)
	defer s.paths.Signal(s.opt.Config.Path, hostwatch.Path, changes)()
	done := config.Watch(ctx, s.opt.Config.Path, changes, s.opt.Config.Debounce, func(c *config.Config, err error) {
		s.reload(ctx, c, err)
	})
	// Apply changes between the first reading and the beginning of the watch.
	now, err := config.LoadIfPresent(s.opt.Config.Path)
	s.reload(ctx, now, err)
	<-done
}

// reload puts next, a new state of the configuration file, in force. If err is set, it is the
// mistake in the file. If err is set or next is refused, reload reports the error, and the roots
// and settings stay as they are.
func (s *Session) reload(ctx context.Context, next *config.Config, err error) {
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		_, err = s.apply(ctx, next, nil)
	}
	if err == nil {
		s.conf.setProblem("")
		return
	}
	s.conf.setProblem(err.Error())
	s.log.Error("the configuration is not in force; the one before stays", "error", err)
	s.note(guard.Failed, "configuration kept: "+err.Error())
	s.hub.Publish(control.Event{Time: time.Now(), Kind: "config-error", Detail: names.Foreign(err.Error())})
}

func (s *Session) note(v guard.Verdict, detail string) {
	if err := s.reg.Note(names.OpReload, "", v, detail); err != nil {
		s.log.Error("a reload could not be recorded", "error", err)
	}
}

// switchProfile serves control.SwitchProfile.
func (s *Session) switchProfile(ctx context.Context, req control.ProfileRequest) (control.ProfileAnswer, error) {
	if s.opt.Config == nil {
		return control.ProfileAnswer{}, invalid("the session has no configuration, so no profiles")
	}
	if s.isEnding() {
		return control.ProfileAnswer{}, errEnding
	}
	ch, err := s.apply(ctx, nil, &req.Profile)
	if err != nil {
		return control.ProfileAnswer{}, err
	}
	a := control.ProfileAnswer{Profile: req.Profile, Added: rootNames(ch.Added), Removed: rootNames(ch.Removed), Changed: []string{}}
	for _, c := range ch.Changed {
		a.Changed = append(a.Changed, string(c.New.Name))
	}
	return a, nil
}

func rootNames(roots []config.Root) []string {
	out := []string{}
	for _, r := range roots {
		out = append(out, string(r.Name))
	}
	return out
}

// apply switches the session to another state of the file (nil: the same), or another profile (nil:
// the same). If it returns an error, it has changed no root and no setting, but the paths that next
// reserves may be reserved already. An error after the first change is only logged and published as
// an event.
func (s *Session) apply(ctx context.Context, next *config.Config, profile *string) (config.Changes, error) {
	select {
	case s.conf.changing <- struct{}{}:
	case <-ctx.Done():
		return config.Changes{}, ctx.Err()
	}
	defer func() { <-s.conf.changing }()
	old, oldProfile := s.conf.inForce()
	if next == nil {
		next = old
	}
	newProfile := oldProfile
	if profile != nil {
		newProfile = *profile
	}
	before, err := old.Select(oldProfile)
	if err != nil {
		before = nil
	}
	after, err := next.Select(newProfile)
	if err != nil {
		return config.Changes{}, err
	}
	s.protectNewFiles(old, next)
	ch := config.DiffRoots(before, after)
	if err := s.change(ctx, &ch); err != nil {
		return config.Changes{}, err
	}
	if next != old {
		s.setFiles(&next.Files)
		s.setStageOutput(next)
		s.reg.SetQuotas(next.Subjects)
		if !s.opt.AbuseFixed {
			s.reg.SetAbuse(next.Abuse)
		}
		ch.Widened = append(ch.Widened, config.WidenedFile(old, next, !s.opt.AbuseFixed)...)
	}
	s.conf.putInForce(next, newProfile)
	s.announce(&ch, oldProfile, newProfile)
	return ch, nil
}

// protectNewFiles reserves the paths that next reserves and old does not, such as the files of new
// secrets: later roots may not contain these paths. A live root stays.
func (s *Session) protectNewFiles(old, next *config.Config) {
	oldPaths := old.ReservedPaths()
	for _, k := range next.ReservedPaths() {
		if !slices.Contains(oldPaths, k) {
			k.Path = Resolve(k.Path)
			s.reg.ReservePaths(k)
		}
	}
}

// change grants, changes and revokes configured roots. New roots come first: they may be refused,
// and then nothing has changed. Only a root with the name or the directory of a root that ends has
// to come after that end.
func (s *Session) change(ctx context.Context, ch *config.Changes) error {
	now := time.Now()
	var grantsFirst, grantsAfter []guard.Grant
	freedPaths := map[string]bool{}
	for _, r := range ch.Removed {
		freedPaths[r.Path] = true
	}
	isStaged := func(r config.Root) bool { return s.opt.boundedGrant(r, now).Policy.Rights.Staged() }
	for i := range ch.Changed {
		c := &ch.Changed[i]
		c.ModeOnly = c.ModeOnly && isStaged(c.Old) == isStaged(c.New) // a live root cannot become staged
		freedPaths[c.Old.Path] = freedPaths[c.Old.Path] || !c.ModeOnly && !c.PatternsOnly
	}
	for _, r := range ch.Added {
		switch g := s.opt.boundedGrant(r, now); {
		case s.opt.expired(r, now) || s.has(g) || !s.opt.isFor(r):
		case freedPaths[r.Path]:
			grantsAfter = append(grantsAfter, g)
		default:
			grantsFirst = append(grantsFirst, g)
		}
	}
	if len(grantsFirst) > 0 {
		if _, err := s.grant(ctx, grantsFirst); err != nil {
			return err
		}
	}
	var ending []guard.RootName
	for _, r := range ch.Removed {
		ending = append(ending, r.Name)
	}
	var errs []error
	for _, c := range ch.Changed {
		if c.ModeOnly {
			errs = append(errs, ignoreGone(s.setRights(ctx, c.New.Name, c.New.Rights)))
			continue
		}
		if c.PatternsOnly {
			p := s.opt.boundedGrant(c.New, now).Policy.Patterns
			errs = append(errs, ignoreGone(s.reg.SetPatterns(ctx, c.New.Name, p)))
			continue
		}
		ending = append(ending, c.Old.Name)
		if !s.opt.expired(c.New, now) && s.opt.isFor(c.New) {
			grantsAfter = append(grantsAfter, s.opt.boundedGrant(c.New, now))
		}
	}
	ending = slices.DeleteFunc(ending, func(n guard.RootName) bool { _, ok := s.reg.Lookup(n); return !ok })
	if len(ending) > 0 {
		_, err := s.reg.Revoke(ctx, ending...)
		errs = append(errs, ignoreGone(err))
	}
	if len(grantsAfter) > 0 {
		_, err := s.grant(ctx, grantsAfter)
		errs = append(errs, err)
	}
	s.avail.Update()
	if err := errors.Join(errs...); err != nil {
		// A failed change leaves the old root or none. The other changes are not undone.
		s.log.Error("part of the new configuration could not be applied", "error", err)
		s.hub.Publish(control.Event{Time: now, Kind: "config-error", Detail: names.Foreign(err.Error())})
	}
	return nil
}

// isFor reports whether the session may grant a configured root. A root that is for one server is
// not granted if the session is named after its program: a project may have chosen that name.
func (o *Options) isFor(r config.Root) bool { return r.Subject == "" || !o.HasProgramName }

// boundedGrant returns the grant of a configured root, narrowed to the command line's bound.
func (o *Options) boundedGrant(r config.Root, now time.Time) guard.Grant {
	return o.Bound.Apply(r.Grant(now))
}

// expired reports whether the time of a configured root, or of the bound, has ended.
func (o *Options) expired(r config.Root, now time.Time) bool {
	return r.Expired(now) || o.Bound.hasEnded(now)
}

// has reports whether a root is in force already, as after `roots add --save`.
func (s *Session) has(g guard.Grant) bool {
	st, ok := s.reg.Lookup(g.Root)
	return ok && st.State == guard.Live && st.Grant.Dir == g.Dir
}

// ignoreGone drops the error for a root that the owner has revoked meanwhile.
func ignoreGone(err error) error {
	if errors.Is(err, names.NotExist) || errors.Is(err, names.Revoked) {
		return nil
	}
	return err
}

// announce reports the changes of a reload or a switch to the owner and the audit log, once for
// all roots. It lists separately the changes that give more than before.
func (s *Session) announce(ch *config.Changes, oldProfile, newProfile string) {
	if ch.Empty() && oldProfile == newProfile {
		return
	}
	detail := fmt.Sprintf("%d added, %d removed, %d changed", len(ch.Added), len(ch.Removed), len(ch.Changed))
	if oldProfile != newProfile {
		detail = "profile " + names.Quote(newProfile) + ": " + detail
	}
	s.note(guard.Allowed, "configuration in force: "+detail)
	s.log.Info("the configuration has changed", "detail", detail)
	s.hub.Publish(control.Event{Time: time.Now(), Kind: "config", Detail: names.Foreign(detail)})
	if len(ch.Widened) == 0 {
		return
	}
	text := strings.Join(ch.Widened, "; ")
	s.note(guard.Allowed, "widened: "+text)
	s.log.Warn("the configuration gives more than before", "detail", text)
	s.hub.Publish(control.Event{Time: time.Now(), Kind: "widened", Detail: names.Foreign(text)})
}

func (c *confState) setProblem(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problem = text
}

func (c *confState) inForce() (conf *config.Config, profile string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current, c.profile
}

func (c *confState) putInForce(conf *config.Config, profile string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current, c.profile = conf, profile
}

// status returns the profile in force, the path of the configuration file ("": there is none), and
// why the file's present contents are not in force ("": they are).
func (c *confState) status() (profile, path string, problem names.Foreign) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		path = c.current.Path
	}
	return c.profile, path, names.Foreign(c.problem)
}
