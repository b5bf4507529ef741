// Package ownercmd has the commands by which the owner of a session grants and ends
// access.
//
// # Promises
//
// Those of package cli.
//
// # Not promised
//
// Those of package cli.
package ownercmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/grantflags"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// app is the frame of all commands, with those of this package as methods.
type app struct{ *cli.App }

// Commands are those of this package.
func Commands(c *cli.App) cli.Commands {
	a := &app{c}
	return cli.Commands{"roots": a.newRootsCmd, "revoke": a.newRevokeCmd, "resume": a.newResumeCmd, "allow": a.newAllowCmd, "consent": a.newConsentCmd, "trash": a.newTrashCmd, "unmount": a.newUnmountCmd, "net": a.newNetCmd}
}

func (a *app) newRootsCmd() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "roots",
		Short: "List, add and change the roots of a session",
	}, newRootsListCmd(a), newRootsAddCmd(a), newRootsRemoveCmd(a), newRootsSetCmd(a), newRootsRenewCmd(a), newRootsProfileCmd(a))
}

func newRootsListCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the roots, their mode and state",
	}
	return cli.Show(a.App, cmd, control.GetStatus, func(st control.Status) []control.Root { return st.Roots }, a.printRoots)
}

// printRoots prints roots as a table.
func (a *app) printRoots(roots []control.Root) {
	if len(roots) == 0 {
		a.Say("no roots; add one: rootsfs roots add SPEC")
		return
	}
	rows := [][]string{{"ROOT", "MODE", "STATE", "EXPIRES", "PATH"}}
	for _, r := range roots {
		rows = append(rows, []string{cli.QuoteIfNeeded(r.Name), r.Mode, r.State, cli.ExpiryText(&r), cli.RootPlace(&r)})
	}
	a.Table(rows)
	a.PrintWhy(roots)
}

func newRootsAddCmd(a *app) *cobra.Command {
	f := &addFlags{}
	cmd := &cobra.Command{
		Use:   "add [SPEC]...",
		Short: "Approve roots in a live session",
		Args:  cli.ArgCount(0, -1, "a root"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.rootsAdd(cmd.Context(), f, args)
		},
	}
	f.Add(cmd)
	cmd.Flags().BoolVar(&f.save, "save", false, "write the roots to the session's configuration as well")
	cmd.Flags().BoolVar(&f.allowSystem, "allow-system", false, "let system directories such as /etc be writable")
	cmd.Flags().BoolVar(&f.allowTop, "allow-root-dir", false, "let / be a root")
	cmd.Flags().StringVar(&f.subject, "subject", "", "grant to this one `server` only, by its name in rootsfs status")
	cli.AllFlag(cmd)
	return a.OfSession(cmd)
}

// addFlags are the flags of `rootsfs roots add`.
type addFlags struct {
	grantflags.Grants
	save, allowSystem, allowTop bool
	subject                     string
}

func (a *app) rootsAdd(ctx context.Context, f *addFlags, specs []string) error {
	grants, err := f.All(specs, "command line")
	switch {
	case err != nil:
		return err
	case len(grants) == 0:
		return cli.Usage(errors.New("a root is missing from the command line; see: rootsfs roots add --help"))
	case f.save && len(f.Once) > 0:
		return cli.Usage(errors.New("--save and --once cannot be combined: a grant of one use is not kept"))
	}
	if f.subject != "" {
		if err := config.CheckSubject(f.subject); err != nil {
			return cli.Usage(fmt.Errorf("--subject: %w", err))
		}
	}
	if err := grantflags.AskLinks(grants); err != nil {
		return err
	}
	c, err := a.Client()
	if err != nil {
		return err
	}
	ctx, cancel := cli.Interruptible(ctx)
	defer cancel()
	for i := range grants {
		grants[i].AllowSystem, grants[i].AllowRootDir, grants[i].Subject = f.allowSystem, f.allowTop, guard.Subject(f.subject)
	}
	file := ""
	if f.save { // a grant that cannot be saved is not made
		if file, err = configOf(ctx, c); err != nil {
			return err
		}
	}
	added, err := cli.AskOf(ctx, a.App, c, control.AddRoots, control.AddRequest{Roots: grants})
	if err != nil {
		return err
	}
	if f.save {
		if err := f.saveRoots(grants, file); err != nil {
			return fmt.Errorf("the roots are granted until the session ends, but could not be saved: %w", err)
		}
	}
	return a.Report(addResult{added, file}, func() {
		for _, r := range added.Roots {
			a.Say("%s (%s) is %s", cli.QuoteIfNeeded(r.Name), r.Mode, cli.QuoteIfNeeded(r.Resolved))
		}
		a.printUnseen(ctx, c, added.Roots)
		if file != "" {
			a.Say("saved in %s", cli.QuoteIfNeeded(file))
		}
	})
}

// printUnseen tells of roots that the session's command cannot see at their paths.
func (a *app) printUnseen(ctx context.Context, c *control.Client, roots []control.Root) {
	st, err := control.GetStatus.Call(ctx, c, control.None{})
	if err != nil || st.Server == nil {
		return // it ended meanwhile, or there is no command
	}
	seen := sandbox.Report{Follows: st.Server.Follows, Closed: st.Server.Closed}
	for _, r := range roots {
		switch {
		case !sandbox.Appears(r.Resolved, seen):
			a.Warn("the running command does not see %s: it reaches the root by files/* only, or start it anew with the root", cli.QuoteIfNeeded(r.Resolved))
		case slices.Contains(st.Server.Fixed, r.Resolved):
			a.Warn("the running command can only read %s: it writes there by files/* only, or start it anew with the root", cli.QuoteIfNeeded(r.Resolved))
		}
	}
}

// addResult is what roots add --json prints.
type addResult struct {
	control.AddAnswer
	Saved string `json:"saved,omitempty"` // the configuration file
}

// configOf is the configuration of a session, or the default one if it has none.
func configOf(ctx context.Context, c *control.Client) (string, error) {
	st, err := control.GetStatus.Call(ctx, c, control.None{})
	if err != nil || st.Config != "" {
		return st.Config, err
	}
	return config.DefaultPath()
}

// saveRoots writes granted roots to the configuration, with the limits that were
// given.
func (f *addFlags) saveRoots(grants []guard.Grant, file string) error {
	for _, g := range grants {
		r := config.Root{
			Name: g.Root, Path: g.Dir, Subject: guard.Subject(f.subject), Rights: g.Policy.Rights, Patterns: g.Policy.Patterns,
			CrossFileSystems: g.Policy.OtherFileSystems, AllowSystem: f.allowSystem, For: f.ForTime, Trash: g.Policy.Trash,
		}
		if f.ForTime == 0 {
			r.Expires = g.Expires
		}
		if err := config.Save(file, r, f.Limits.Override); err != nil {
			return err
		}
	}
	return nil
}

func newRootsRemoveCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "remove NAME...",
		Aliases:           []string{"rm"},
		Short:             "Revoke roots; the same as rootsfs revoke",
		Args:              cli.ArgCount(1, -1, "a root's name"),
		ValidArgsFunction: a.CompleteRoots(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.revoke(cmd.Context(), control.RevokeRequest{Names: args})
		},
	}
	return a.OfSession(cmd)
}

func newRootsSetCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "set NAME MODE",
		Short:             "Change the mode of a root",
		Args:              cli.ArgCount(2, 2, "the name of the root, or its new mode,"),
		ValidArgsFunction: a.CompleteRoots(1, "ro", "rw"),
	}
	return cli.Do(a.App, cmd, control.SetMode, func(args []string) (control.SetRequest, error) {
		_, err := guard.ParseMode(args[1])
		if err != nil {
			err = cli.Usage(err)
		}
		return control.SetRequest{Name: args[0], Mode: args[1]}, err
	}, func(ans control.SetAnswer) { a.Say("%s is %s now", cli.QuoteIfNeeded(ans.Root.Name), ans.Root.Mode) })
}

func newRootsProfileCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profile NAME",
		Short: "Switch to a profile of the configuration",
		Args:  cli.ArgCount(1, 1, "a profile's name"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return cli.Offer(a.App, control.GetStatus, func(st control.Status) ([]string, error) { return cli.ProfilesOf(st.Config) })
		},
	}
	return cli.Do(a.App, cmd, control.SwitchProfile, func(args []string) (control.ProfileRequest, error) {
		return control.ProfileRequest{Profile: args[0]}, nil
	}, func(ans control.ProfileAnswer) {
		a.Say("profile %s: %s added, %d removed, %d changed", cli.QuoteIfNeeded(ans.Profile), cli.Plural(len(ans.Added), "root"), len(ans.Removed), len(ans.Changed))
	})
}

func newRootsRenewCmd(a *app) *cobra.Command {
	f := &renewFlags{}
	cmd := &cobra.Command{
		Use:               "renew NAME",
		Short:             "Change the end of a grant",
		Args:              cli.ArgCount(1, 1, "a root's name"),
		ValidArgsFunction: a.CompleteRoots(1),
	}
	cmd.Flags().DurationVar(&f.forTime, "for", 0, "revoke after this `duration` from now, such as 30m")
	cmd.Flags().StringVar(&f.until, "until", "", "revoke at this `time`: 15:04, 2006-01-02T15:04 or RFC 3339")
	cmd.Flags().BoolVar(&f.forSession, "for-session", false, "revoke when the session ends")
	return cli.Do(a.App, cmd, control.RenewRoot, func(args []string) (control.RenewRequest, error) {
		return f.request(cmd, args[0])
	}, func(ans control.SetAnswer) {
		if ans.Root.Expires == nil {
			a.Say("%s lasts as long as the session", cli.QuoteIfNeeded(ans.Root.Name))
			return
		}
		a.Say("%s lasts until %s", cli.QuoteIfNeeded(ans.Root.Name), cli.LocalTime(ans.Root.Expires))
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
		return req, cli.Usage(errors.New("--for-session, --for and --until: use one of them"))
	case given("for") && f.forTime <= 0:
		return req, cli.Usage(fmt.Errorf("--for %v: write a positive duration, such as 30m", f.forTime))
	}
	g := grantflags.Grants{ForTime: f.forTime, Until: f.until, Fs: cmd.Flags()}
	end, err := g.Expires(time.Now())
	if err == nil && !end.IsZero() {
		req.Expires = &end
	}
	return req, err
}
