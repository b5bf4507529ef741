package wrapcmd

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/agents"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/doctorcmd"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/runcmd"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostconfig"
	"github.com/rootsfs/rootsfs/guard/names"
)

// setupResult is what setup --json prints.
type setupResult struct {
	Machine []doctorcmd.Check `json:"machine"` // what is not as it should be
	Hosts   []setupHost       `json:"hosts"`   // that are installed
	Agents  []string          `json:"agents"`  // that are installed and have a preset
	Written bool              `json:"written"` // something was changed
}

// setupHost is an MCP host that is installed.
type setupHost struct {
	Host    string      `json:"host"`              // as wrap names it
	Problem string      `json:"problem,omitempty"` // its configuration is left alone
	Wrap    *wrapResult `json:"wrap,omitempty"`    // as wrap --json tells it

	plan *wrapping
	doc  []byte
}

func (a *app) newSetupCmd() *cobra.Command {
	f := &wrapFlags{}
	cmd := &cobra.Command{
		Use:               "setup [HOST]...",
		Short:             "Check this machine and wrap the MCP hosts on it",
		ValidArgsFunction: cobra.FixedCompletions(hostconfig.Known(), cobra.ShellCompDirectiveNoFileComp),
		Args: func(_ *cobra.Command, args []string) error {
			for _, arg := range args {
				if !slices.Contains(hostconfig.Known(), arg) {
					return cli.Usage(fmt.Errorf("%s is no host that setup knows: there are %s; to wrap a file: rootsfs wrap FILE", names.Quote(arg), strings.Join(hostconfig.Known(), ", ")))
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.setup(cmd.Context(), f, args) },
	}
	fs := cmd.Flags()
	cli.PathVar(fs, &f.program, "rootsfs", "`path` of rootsfs for the configurations (default: of this program)")
	fs.BoolVar(&f.dryRun, "dry-run", false, "say what would be changed and do not change it")
	fs.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	a.JSONFlag(cmd)
	return cmd
}

func (a *app) setup(ctx context.Context, f *wrapFlags, hosts []string) error {
	if err := f.check(); err != nil {
		return err
	}
	res := setupResult{Machine: []doctorcmd.Check{}, Hosts: []setupHost{}, Agents: []string{}}
	failed := false
	done := a.Waiting("looking at the machine")
	for _, c := range append(doctorcmd.CheckSystem(), doctorcmd.CheckConfinement(ctx), doctorcmd.CheckRuntime()) {
		failed = failed || c.Status == doctorcmd.CheckFail
		if c.Status == doctorcmd.CheckFail || c.Status == doctorcmd.CheckWarn && c.Name == "confinement" {
			res.Machine = append(res.Machine, c)
		}
	}
	done()
	for _, one := range agents.All() {
		if _, err := exec.LookPath(one.Command); err == nil {
			res.Agents = append(res.Agents, one.Name)
		}
	}
	var err error
	if res.Hosts, err = planHosts(f, hosts); err != nil {
		return err
	}
	if !a.JSON {
		a.printSetup(&res)
	}
	if failed {
		return errors.Join(a.Report(res, func() {}), &cli.ExitError{Code: cli.ExitSystem, Err: errors.New("nothing was changed: this machine lacks something that the servers need; what to do stands below each problem")})
	}
	if err := a.writeHosts(f, &res); err != nil {
		return err
	}
	if err := a.Report(res, func() { a.printSetupDone(f, &res) }); err != nil {
		return err
	}
	for i := range res.Hosts {
		if h := &res.Hosts[i]; h.Problem != "" && len(hosts) > 0 {
			return errors.New(h.Problem) // of a host that was named
		}
	}
	return nil
}

// planHosts plans the change of each host that is named, or that is installed.
func planHosts(f *wrapFlags, hosts []string) ([]setupHost, error) {
	list := []setupHost{}
	for _, host := range hostconfig.Known() {
		if len(hosts) > 0 && !slices.Contains(hosts, host) {
			continue
		}
		home, err := runcmd.KeptHome("servers", host)
		if err != nil {
			return nil, err
		}
		own := *f
		own.fetchedHome = home
		one := setupHost{Host: host}
		one.plan, one.doc, err = planHost(&own, host)
		var missing noHostFile
		switch {
		case errors.As(err, &missing) && len(hosts) == 0:
			continue
		case err != nil:
			one.Problem = strings.TrimSuffix(cli.OneLine(err), "; nothing was written")
		default:
			one.Wrap = &one.plan.res
		}
		list = append(list, one)
	}
	return list, nil
}

// changing are the hosts whose file would be changed.
func (r *setupResult) changing() (list []*setupHost) {
	for i := range r.Hosts {
		if h := &r.Hosts[i]; h.Wrap != nil && h.Wrap.Changed {
			list = append(list, h)
		}
	}
	return list
}

// writeHosts asks, and writes the files. One that cannot be written does not keep the
// others from it.
func (a *app) writeHosts(f *wrapFlags, res *setupResult) error {
	list := res.changing()
	if len(list) == 0 || f.dryRun {
		return nil
	}
	if !f.yes {
		what := ""
		if a.JSON || !cli.IsTerminal(a.Stdout) {
			for _, h := range list {
				what += h.Wrap.Diff
			}
		}
		if err := cli.Confirm(what, "Write "+cli.Plural(len(list), "file")+"?"); err != nil {
			return fmt.Errorf("nothing was changed: %w", err)
		}
	}
	var errs []error
	for _, h := range list {
		backup, err := h.plan.file.replace(h.doc, "")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		h.Wrap.Backup, h.Wrap.Written, res.Written = backup, true, true
	}
	return errors.Join(errs...)
}

// printSetup says what was found, and what would be changed.
func (a *app) printSetup(res *setupResult) {
	a.Say("This machine:")
	if len(res.Machine) == 0 {
		a.Say("  ok: it can mount, and confine programs")
	}
	for _, c := range res.Machine {
		a.Say("  %s %s: %s", c.Status, c.Name, c.Detail)
		a.Say("    do: %s", c.Remedy)
	}
	a.Say("MCP hosts:")
	if len(res.Hosts) == 0 {
		a.Say("  none of %s has a configuration here", strings.Join(hostconfig.Known(), ", "))
	}
	for i := range res.Hosts {
		h := &res.Hosts[i]
		if h.Wrap == nil {
			a.Say("  %s: left alone: %s", h.Host, h.Problem)
			continue
		}
		a.Say("  %s (%s): %s", h.Host, h.plan.file.shown(), h.change())
		for j := range h.Wrap.Servers {
			a.printServer("    ", &h.Wrap.Servers[j])
		}
	}
	if len(res.Agents) > 0 {
		a.Say("Coding agents (in a project):")
	}
	for _, name := range res.Agents {
		if one, ok := agents.Find(name); ok {
			a.Say("  rootsfs run --for %s -- %s", names.ShellWord(one.Name), names.ShellWord(one.Command))
		}
	}
}

// change says in some words what is to be done to a host.
func (h *setupHost) change() string {
	n := 0
	for _, s := range h.Wrap.Servers {
		if s.State == "wrap" {
			n++
		}
	}
	if n == 0 {
		return "nothing to do"
	}
	return fmt.Sprintf("%d of %s will run confined", n, cli.Plural(len(h.Wrap.Servers), "server"))
}

// printSetupDone says what was changed and how to take it back.
func (a *app) printSetupDone(f *wrapFlags, res *setupResult) {
	list := res.changing()
	switch {
	case len(list) == 0:
		a.Say("nothing to change")
		return
	case f.dryRun:
		a.Say("nothing was written: --dry-run; to see a change whole: rootsfs wrap %s --dry-run", names.ShellWord(list[0].Host))
		return
	}
	for _, h := range list {
		a.Say("written: %s; to undo: rootsfs wrap %s --undo", cli.QuoteIfNeeded(h.Wrap.File), names.ShellWord(h.Host))
	}
	a.Say("start them again; to change what a server reaches, write its --root in the file, PATH:rw to let it write")
}
