package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// rootTrial is the result of granting a configured root as a mount would. The field names are
// part of config check --json.
type rootTrial struct {
	Name     string     `json:"name"`
	Path     string     `json:"path"`
	Resolved string     `json:"resolved,omitempty"`
	File     bool       `json:"file,omitempty"`
	Mode     string     `json:"mode"`
	Subject  string     `json:"subject,omitempty"`
	Line     int        `json:"line"`
	Expires  *time.Time `json:"expires,omitempty"` // of a grant made now
	Expired  bool       `json:"expired,omitempty"` // its time is over: it is left out
	Rules    int        `json:"rules"`             // patterns in force, built-in ones included
	Lifted   string     `json:"lifted_protections,omitempty"`
	Problem  string     `json:"problem,omitempty"` // why it cannot be granted

	err error // the error that Problem explains
}

// tryRoots grants the roots of a profile together, in a registry of its own, and revokes them.
// It does not grant a root that could not be opened, or whose time is over.
func tryRoots(ctx context.Context, conf *config.Config, profile string, opened map[string]rootInfo) ([]rootTrial, error) {
	roots, err := conf.Select(profile)
	if err != nil {
		return nil, err
	}
	reg, err := writabledirs.Registry(doctorRules(conf))
	if err != nil {
		return nil, err
	}
	defer func() { _, _ = reg.RevokeAll(context.WithoutCancel(ctx)) }() // no program uses its roots
	now := time.Now()
	list := make([]rootTrial, len(roots))
	for i, r := range roots {
		list[i] = rootTrial{Name: string(r.Name), Path: r.Path, Mode: r.Rights.String(), Subject: string(r.Subject),
			Line: r.Line, Expired: r.Expired(now), Lifted: r.Patterns.LiftedText()}
		if !list[i].Expired {
			list[i].grant(ctx, reg, r.Grant(now), opened[r.Path])
		}
	}
	return list, nil
}

// grant grants the root in reg, and notes the result. For a system directory that may only be
// read-only, the problem names the key that permits writing.
func (t *rootTrial) grant(ctx context.Context, reg *guard.Registry, g guard.Grant, in rootInfo) {
	if t.err = in.err; t.err != nil {
		t.Problem = oneLine(t.err)
		return
	}
	got, err := reg.Grant(ctx, g)
	if err == nil {
		t.Resolved, t.Rules, t.File = got.Resolved, len(reg.RulesOf(got.Root)), in.file != ""
		if !got.Expires.IsZero() {
			t.Expires = &got.Expires
		}
		return
	}
	t.err, t.Problem = err, oneLine(err)
	if errors.Is(err, names.Exist) {
		for _, other := range reg.Roots() {
			if other.Grant.Resolved == in.resolved {
				t.Problem = fmt.Sprintf("%s is already the root %s", names.Quote(in.resolved), names.Quote(string(other.Grant.Root)))
			}
		}
		return
	}
	if g.AllowSystem = true; errors.Is(err, names.Permission) {
		if p, err := reg.Propose(g); err == nil {
			p.Close()
			t.Problem = names.Quote(in.resolved) + " is a system directory and may only be read-only; write allow_system = true in its [[root]] block if writing is meant"
		}
	}
}

// rootPaths returns the paths of all roots of a configuration, which may be nil.
func rootPaths(conf *config.Config) (paths []string) {
	if conf == nil {
		return nil
	}
	for _, list := range append(slices.Collect(maps.Values(conf.Profiles)), conf.Roots) {
		for _, r := range list {
			paths = append(paths, r.Path)
		}
	}
	return paths
}

// profiles returns the names of the profiles, with "" for no profile first.
func profiles(conf *config.Config) []string {
	return append([]string{""}, slices.Sorted(maps.Keys(conf.Profiles))...)
}

// checkRoots tries each configured root as `mount` would, without a profile and with each. Of the
// roots of a profile it reports only problems, as warnings: a problem of a profile keeps only this
// profile from being mounted.
func checkRoots(ctx context.Context, conf *config.Config, opened map[string]rootInfo) (checks []check) {
	for _, profile := range profiles(conf) {
		list, err := tryRoots(ctx, conf, profile, opened)
		if err != nil {
			c := check{Name: "roots", Path: profile}
			return append(checks, c.fail("as it says", "%s", oneLine(err)))
		}
		for i := range list {
			switch c := list[i].check(conf.Path); {
			case profile == "":
				checks = append(checks, c)
			case c.Status == checkFail:
				c.Status, c.Detail = checkWarn, "profile "+quoteIfNeeded(profile)+", "+c.Detail
				checks = append(checks, c)
			}
		}
	}
	return checks
}

// check returns doctor's check of the root.
func (t *rootTrial) check(file string) check {
	c := check{Name: "root", Path: t.Path}
	name := fmt.Sprintf("%s (%s)", quoteIfNeeded(t.Name), t.Mode)
	switch {
	case t.Expired:
		return c.ok("%s: its time is over: it is left out", name)
	case t.err != nil:
		return c.fail(fmt.Sprintf("change line %d of %s", t.Line, quoteIfNeeded(file)), "%s: mount would fail: %s", name, t.Problem)
	}
	return c.ok("%s: can be mounted", name)
}

// row returns the root's row in the table of config check.
func (r *rootTrial) row() []string {
	whom, what := "every server", quoteIfNeeded(r.Resolved)
	if r.Subject != "" {
		whom = quoteIfNeeded(r.Subject)
	}
	switch {
	case r.Expired:
		what = "nothing: its time is over"
	case r.Problem != "":
		what = "cannot be granted: " + r.Problem
	case r.Lifted != "":
		what += " (" + names.Escape(r.Lifted) + ")"
	}
	return []string{strconv.Itoa(r.Line), quoteIfNeeded(r.Name), r.Mode, whom, localTime(r.Expires), strconv.Itoa(r.Rules), what}
}
