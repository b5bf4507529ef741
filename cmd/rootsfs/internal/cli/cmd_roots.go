package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

const rootsLong = `List, add, remove and change the roots of a live session. Changes take effect at once.`

const rootsExamples = `  rootsfs roots list
  rootsfs roots add docs=~/docs
  rootsfs roots set out ro
  rootsfs roots remove docs`

func (a *app) newRootsCmd() *cobra.Command {
	return group(&cobra.Command{
		Use:     "roots",
		Short:   "List, add and change the roots of a session",
		Long:    rootsLong,
		Example: rootsExamples,
	}, newRootsListCmd(a), newRootsAddCmd(a), newRootsRemoveCmd(a), newRootsSetCmd(a), newRootsRenewCmd(a), newRootsProfileCmd(a))
}

const rootsListLong = `Show the roots of a session. A root is "unavailable" when its directory is gone, was
replaced or cannot be read any more, until you approve it again with "rootsfs roots
renew".`

const rootsListExamples = `  rootsfs roots list --session work --json`

func newRootsListCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "Show the roots, their mode and state",
		Long:    rootsListLong,
		Example: rootsListExamples,
	}
	return show(a, cmd, control.GetStatus, func(st control.Status) []control.Root { return st.Roots }, a.printRoots)
}

// printRoots prints roots as a table.
func (a *app) printRoots(roots []control.Root) {
	if len(roots) == 0 {
		a.say("no roots; add one: rootsfs roots add SPEC")
		return
	}
	rows := [][]string{{"ROOT", "MODE", "STATE", "EXPIRES", "PATH"}}
	for _, r := range roots {
		rows = append(rows, []string{quoteIfNeeded(r.Name), r.Mode, r.State, expiryText(&r), rootLocation(&r)})
	}
	a.table(rows)
	a.printUnavailable(roots)
}

const rootsAddLong = `Approve roots in a live session. Each appears at once; if one cannot be granted, none
is. A SPEC is [NAME=]PATH[:MODE], as for "rootsfs mount". A root that has become
unavailable is approved by its name, with the directory that is there now.

A grant ends with the session. --save also writes it to the configuration, with the
limits that were given as flags. To give a live root other limits, revoke it and add it
again. What programs hold of it is dead then: a program whose working directory is in
the root has to change to it anew.`

const rootsAddExamples = `  rootsfs roots add docs=~/docs src=.:rw
  rootsfs roots add --for 30m tmp=/tmp/build:rw
  rootsfs roots add --once ~/letter.txt      # one use of one file
  rootsfs revoke out && rootsfs roots add out=./out:rw --limit max_written=1G
  rootsfs roots add --save auto`

func newRootsAddCmd(a *app) *cobra.Command {
	f := &addFlags{}
	cmd := &cobra.Command{
		Use:     "add [SPEC]...",
		Short:   "Approve roots in a live session",
		Long:    rootsAddLong,
		Example: rootsAddExamples,
		Args:    argCount(0, -1, "a root"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.rootsAdd(cmd.Context(), f, args)
		},
	}
	f.Add(cmd)
	cmd.Flags().BoolVar(&f.save, "save", false, "write the roots to the session's configuration as well")
	cmd.Flags().BoolVar(&f.allowSystem, "allow-system", false, "let system directories such as /etc be writable")
	cmd.Flags().BoolVar(&f.allowTop, "allow-root-dir", false, "let / be a root")
	cmd.Flags().StringVar(&f.subject, "subject", "", "grant to this one `server` only, by its name in rootsfs status")
	allFlag(cmd)
	return a.ofSession(cmd)
}

// addFlags are the flags of `rootsfs roots add`.
type addFlags struct {
	grantFlags
	save, allowSystem, allowTop bool
	subject                     string
}

func (a *app) rootsAdd(ctx context.Context, f *addFlags, specs []string) error {
	grants, err := f.all(specs, "command line")
	switch {
	case err != nil:
		return err
	case len(grants) == 0:
		return usage(errors.New("a root is missing from the command line; see: rootsfs roots add --help"))
	case f.save && len(f.Once) > 0:
		return usage(errors.New("--save and --once cannot be combined: a grant of one use is not kept"))
	}
	if f.subject != "" {
		if err := config.CheckSubject(f.subject); err != nil {
			return usage(fmt.Errorf("--subject: %w", err))
		}
	}
	if err := askLinks(grants); err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	ctx, cancel := interruptible(ctx)
	defer cancel()
	for i := range grants {
		grants[i].AllowSystem, grants[i].AllowRootDir, grants[i].Subject = f.allowSystem, f.allowTop, guard.Subject(f.subject)
	}
	file := ""
	if f.save { // nothing is granted if the file to save to is not known
		if file, err = configOf(ctx, c); err != nil {
			return err
		}
	}
	added, err := askOf(ctx, a, c, control.AddRoots, control.AddRequest{Roots: grants})
	if err != nil {
		return err
	}
	if f.save {
		if err := f.saveRoots(grants, file); err != nil {
			return fmt.Errorf("the roots are granted until the session ends, but could not be saved: %w", err)
		}
	}
	return a.report(addResult{added, file}, func() {
		for _, r := range added.Roots {
			a.say("%s (%s) is %s", quoteIfNeeded(r.Name), r.Mode, quoteIfNeeded(r.Resolved))
		}
		a.printUnseen(ctx, c, added.Roots)
		if file != "" {
			a.say("saved in %s", quoteIfNeeded(file))
		}
	})
}

// printUnseen warns of the roots that the session's command cannot see, or cannot change, at their
// paths.
func (a *app) printUnseen(ctx context.Context, c *control.Client, roots []control.Root) {
	st, err := control.GetStatus.Call(ctx, c, control.None{})
	if err != nil || st.Server == nil {
		return // the session has ended meanwhile, or has no command
	}
	seen := sandbox.Report{Follows: names.List[string](st.Server.Follows), Closed: names.List[string](st.Server.Closed)}
	for _, r := range roots {
		switch {
		case !sandbox.Appears(r.Resolved.Raw(), seen):
			a.warn("the running command does not see %s: it reaches the root by files/* only, or start it anew with the root", quoteIfNeeded(r.Resolved))
		case slices.Contains(st.Server.Fixed, r.Resolved):
			a.warn("the running command can only read %s: it writes there by files/* only, or start it anew with the root", quoteIfNeeded(r.Resolved))
		}
	}
}

// addResult is the output of roots add --json.
type addResult struct {
	control.AddAnswer
	Saved string `json:"saved,omitempty"` // the configuration file
}

// configOf returns the configuration file of a session, or the default one if it has none.
func configOf(ctx context.Context, c *control.Client) (string, error) {
	st, err := control.GetStatus.Call(ctx, c, control.None{})
	if err != nil || st.Config != "" {
		return st.Config, err
	}
	return config.DefaultPath()
}

// saveRoots writes granted roots to the configuration, with the limits of the flags.
func (f *addFlags) saveRoots(grants []guard.Grant, file string) error {
	for _, g := range grants {
		r := config.Root{
			Name: g.Root, Path: g.Dir.Raw(), Subject: guard.Subject(f.subject), Rights: g.Policy.Rights, Patterns: g.Policy.Patterns,
			CrossFileSystems: g.Policy.OtherFileSystems, AllowSystem: f.allowSystem, For: f.ForTime, Trash: g.Policy.Trash,
		}
		if f.ForTime == 0 {
			r.Expires = g.Expires
		}
		if err := config.Save(file, r, f.Limits.override); err != nil {
			return err
		}
	}
	return nil
}

const rootsRemoveLong = `Revoke the named roots, as "rootsfs revoke" does. What the configuration says is
not changed: a root it holds is back with the next session.`

const rootsRemoveExamples = `  rootsfs roots remove docs src`

func newRootsRemoveCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "remove NAME...",
		Aliases:           []string{"rm"},
		Short:             "Revoke roots; the same as rootsfs revoke",
		Long:              rootsRemoveLong,
		Example:           rootsRemoveExamples,
		Args:              argCount(1, -1, "a root's name"),
		ValidArgsFunction: a.completeRoots(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.revoke(cmd.Context(), control.RevokeRequest{Names: args})
		},
	}
	return a.ofSession(cmd)
}

const rootsSetLong = `Change a root's mode: ro, rw or a comma list of read, list, write, append, create,
delete, rename, watch. When set returns, everything that the new mode forbids is dead,
descriptors and mappings included. This is not possible with --cache max. A root's
limits do not change with its mode: see "rootsfs roots add". A staged root stays staged,
and takes stage in place of rw.`

const rootsSetExamples = `  rootsfs roots set out ro
  rootsfs roots set inbox read,list,create`

func newRootsSetCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "set NAME MODE",
		Short:             "Change the mode of a root",
		Long:              rootsSetLong,
		Example:           rootsSetExamples,
		Args:              argCount(2, 2, "the name of the root, or its new mode,"),
		ValidArgsFunction: a.completeRoots(1, "ro", "rw", "stage"),
	}
	return do(a, cmd, control.SetMode, func(args []string) (control.SetRequest, error) {
		_, err := rules.ParseMode(args[1])
		if err != nil {
			err = usage(err)
		}
		return control.SetRequest{Name: args[0], Mode: args[1]}, err
	}, func(ans control.SetAnswer) { a.say("%s is %s now", quoteIfNeeded(ans.Root.Name), ans.Root.Mode) })
}

const rootsProfileLong = `Replace the roots of the configuration by those of its profile NAME; "" stands for its
plain [[root]] blocks. A root that is in both stays as it is, with all open files.
Roots of the command line stay.`

const rootsProfileExamples = `  rootsfs roots profile review`

func newRootsProfileCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "profile NAME",
		Short:   "Switch to a profile of the configuration",
		Long:    rootsProfileLong,
		Example: rootsProfileExamples,
		Args:    argCount(1, 1, "a profile's name"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return offer(a, control.GetStatus, func(st control.Status) ([]string, error) { return profilesOf(st.Config) })
		},
	}
	return do(a, cmd, control.SwitchProfile, func(args []string) (control.ProfileRequest, error) {
		return control.ProfileRequest{Profile: args[0]}, nil
	}, func(ans control.ProfileAnswer) {
		a.say("profile %s: %s added, %d removed, %d changed", quoteIfNeeded(ans.Profile), plural(len(ans.Added), "root"), len(ans.Removed), len(ans.Changed))
	})
}

const rootsRenewLong = `Give a live root another end: after a duration from now, at a time, or when the
session ends. Without a flag, it lasts as long again as it was granted for. What
programs hold of it stays open.

A root that is unavailable, because its directory was deleted or replaced, is approved
again with the directory that is there now. One that has ended is granted again by
"rootsfs roots add" or "rootsfs allow --last".`

const rootsRenewExamples = `  rootsfs roots renew docs
  rootsfs roots renew docs --for 30m
  rootsfs roots renew docs --until 18:00 --json`

func newRootsRenewCmd(a *app) *cobra.Command {
	f := &renewFlags{}
	cmd := &cobra.Command{
		Use:               "renew NAME",
		Short:             "Change the end of a grant",
		Long:              rootsRenewLong,
		Example:           rootsRenewExamples,
		Args:              argCount(1, 1, "a root's name"),
		ValidArgsFunction: a.completeRoots(1),
	}
	cmd.Flags().DurationVar(&f.forTime, "for", 0, "revoke after this `duration` from now, such as 30m")
	cmd.Flags().StringVar(&f.until, "until", "", "revoke at this `time`: 15:04, 2006-01-02T15:04 or RFC 3339")
	cmd.Flags().BoolVar(&f.forSession, "for-session", false, "revoke when the session ends")
	return do(a, cmd, control.RenewRoot, func(args []string) (control.RenewRequest, error) {
		return f.request(cmd, args[0])
	}, func(ans control.SetAnswer) {
		if ans.Root.Expires == nil {
			a.say("%s lasts as long as the session", quoteIfNeeded(ans.Root.Name))
			return
		}
		a.say("%s lasts until %s", quoteIfNeeded(ans.Root.Name), localTime(ans.Root.Expires))
	})
}

// renewFlags are the flags of `rootsfs roots renew`.
type renewFlags struct {
	forTime    time.Duration
	until      string
	forSession bool
}

func (f *renewFlags) request(cmd *cobra.Command, root string) (control.RenewRequest, error) {
	req := control.RenewRequest{Name: root, Session: f.forSession}
	given := cmd.Flags().Changed
	switch {
	case f.forSession && (given("for") || given("until")):
		return req, usage(errors.New("--for-session, --for and --until: use one of them"))
	case given("for") && f.forTime <= 0:
		return req, usage(fmt.Errorf("--for %v: write a positive duration, such as 30m", f.forTime))
	}
	g := grantFlags{ForTime: f.forTime, Until: f.until, Fs: cmd.Flags()}
	end, err := g.expires(time.Now())
	if err == nil && !end.IsZero() {
		req.Expires = &end
	}
	return req, err
}
