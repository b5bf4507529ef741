package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

func newAllowCmd(a *app) *cobra.Command {
	var last, yes bool
	cmd := &cobra.Command{
		Use:   "allow --last",
		Short: "Grant what was refused last, after showing it",
		Long: `Show what the session refused last for want of a right or a root, and what would
allow it: a wider mode of that root, or the grant of a root that was revoked or
has expired. It is done only after you said yes, on the terminal or with --yes.`,
		Example: `  rootsfs allow --last
  rootsfs allow --last --yes --session work`,
		Args: nargs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !last {
				return usage(errors.New("say what to allow: rootsfs allow --last"))
			}
			return a.allow(cmd.Context(), yes)
		},
	}
	cmd.Flags().BoolVar(&last, "last", false, "what was refused last")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	sessionFlag(a, cmd)
	jsonFlag(a, cmd)
	return cmd
}

func (a *app) allow(ctx context.Context, yes bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	r, err := c.Refused(ctx)
	if err != nil {
		return err
	}
	if r == nil {
		return errors.New("nothing was refused that a grant would have allowed; see: rootsfs audit show --denied")
	}
	said := fmt.Sprintf("refused at %s: %s of %s by pid %d uid %d (%s)",
		r.Time.Local().Format("15:04:05"), r.Op, r.Path, r.PID, r.UID, r.Reason)
	what := fmt.Sprintf("root %s (%s) gets the mode %s", shown(r.Root), shown(r.Dir), r.Mode)
	if r.Remedy == "grant" {
		what = fmt.Sprintf("root %s (%s) is granted again, mode %s", shown(r.Root), shown(r.Dir), r.Mode)
	}
	if !a.json {
		a.say("%s", said)
		a.say("to allow it: %s", what)
	}
	if !yes {
		if err := confirm(said + "\nto allow it: " + what + "\n"); err != nil {
			return err
		}
	}
	var root control.Root
	if r.Ask == nil {
		root, err = c.Set(ctx, r.Root, r.Mode)
	} else {
		var roots []control.Root
		if roots, err = c.Add(ctx, []control.Ask{*r.Ask}); len(roots) == 1 {
			root = roots[0]
		}
	}
	if err != nil {
		return err
	}
	return a.report(control.SetAnswer{Root: root}, func() { a.say("allowed: %s is %s now", shown(root.Name), root.Mode) })
}

// confirm shows what is to be allowed and asks, on the terminal itself: standard
// input and output may be anything.
func confirm(what string) error {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return &exitError{code: exitNotApproved, err: errors.New("not approved: there is no terminal to ask on; use --yes if this is meant")}
	}
	defer tty.Close()
	fmt.Fprint(tty, what+"Allow it? [y/N] ")
	line, err := bufio.NewReader(tty).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); err == nil && (answer == "y" || answer == "yes") {
		return nil
	}
	return &exitError{code: exitNotApproved, err: fmt.Errorf("not approved (answer: %s)", names.Quote(strings.TrimSpace(line)))}
}
