package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/agents"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostconfig"
	"github.com/rootsfs/rootsfs/guard/names"
)

// setupResult is the output of setup --json.
type setupResult struct {
	Machine []check     `json:"machine"` // checks that failed, and a warning about confinement
	Hosts   []setupHost `json:"hosts"`   // the hosts on the command line, by default the installed ones
	Agents  []string    `json:"agents"`  // agents that are installed and have a preset
	Written bool        `json:"written"` // something was changed
}

// setupHost is an MCP host in the output of setup.
type setupHost struct {
	Host    string      `json:"host"`              // as wrap names it
	Problem string      `json:"problem,omitempty"` // why its configuration is left alone
	Wrap    *wrapResult `json:"wrap,omitempty"`    // as wrap --json prints it

	plan *wrapping
}

const setupLong = `Look at this machine and at the MCP hosts that are installed, or at each HOST, say
what would be changed, and change it after you said yes. The servers of each host
then run confined, as "rootsfs wrap" does it. A server that npx or uvx fetches gets
the network and a HOME that is kept; the others get neither.

"rootsfs wrap HOST --undo" takes the change back. Nothing else is changed or installed:
what is missing on the machine is named, and how to install it.`

const setupExamples = `  rootsfs setup
  rootsfs setup claude-desktop cursor --yes
  rootsfs setup --dry-run --json`

func (a *app) newSetupCmd() *cobra.Command {
	f := &wrapFlags{}
	cmd := &cobra.Command{
		Use:               "setup [HOST]...",
		Short:             "Check this machine and wrap the MCP hosts on it",
		Long:              setupLong,
		Example:           setupExamples,
		ValidArgsFunction: cobra.FixedCompletions(hostconfig.Known(), cobra.ShellCompDirectiveNoFileComp),
		Args: func(_ *cobra.Command, args []string) error {
			for _, arg := range args {
				if !slices.Contains(hostconfig.Known(), arg) {
					return usage(fmt.Errorf("%s is no host that setup knows: there are %s; to wrap a file: rootsfs wrap FILE", names.Quote(arg), strings.Join(hostconfig.Known(), ", ")))
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.setup(cmd.Context(), f, args) },
	}
	fs := cmd.Flags()
	pathVar(fs, &f.program, "rootsfs", "`path` of rootsfs for the configurations (default: of this program)")
	fs.StringArrayVar(&f.servers, "server", nil, "only the server of this `name`; repeatable (default: all)")
	fs.BoolVar(&f.dryRun, "dry-run", false, "say what would be changed and do not change it")
	fs.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) setup(ctx context.Context, f *wrapFlags, hosts []string) error {
	if err := f.check(); err != nil {
		return err
	}
	res := setupResult{Machine: []check{}, Hosts: []setupHost{}, Agents: []string{}}
	failed := false
	done := a.waiting("looking at the machine")
	for _, c := range append(checkSystem(), checkConfinement(ctx), checkRuntime()) {
		failed = failed || c.Status == checkFail
		if c.Status == checkFail || c.Status == checkWarn && c.Name == "confinement" {
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
	if len(f.servers) > 0 && !slices.ContainsFunc(res.Hosts, func(h setupHost) bool { return h.Wrap != nil }) {
		return noServer(f.servers, res.Hosts)
	}
	if !a.JSON {
		a.printSetup(&res)
	}
	if failed {
		return errors.Join(a.report(res, func() {}), &exitError{Code: ExitSystem, Err: errors.New("nothing was changed: this machine lacks something that the servers need; what to do stands below each problem")})
	}
	var errs []error
	for i := range res.Hosts { // a host that cannot be written does not stop the others
		h := &res.Hosts[i]
		switch {
		case h.Wrap != nil:
			if err := a.writeFile(h.plan); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", h.Host, err))
			}
			res.Written = res.Written || h.Wrap.Written
		case len(hosts) > 0: // the command line names it
			errs = append(errs, errors.New(h.Problem))
		}
	}
	return errors.Join(append(errs, a.report(res, func() { a.printSetupDone(&res) }))...)
}

// noServer returns the error for --server if setup can wrap no host.
func noServer(servers []string, hosts []setupHost) error {
	why := []string{}
	for i := range hosts {
		why = append(why, hosts[i].Host+": "+hosts[i].Problem)
	}
	if len(why) == 0 {
		why = append(why, "there is no host")
	}
	return usage(fmt.Errorf("--server %s: no host has such a server: %s", names.Quote(strings.Join(servers, ", ")), strings.Join(why, "; ")))
}

// planHosts plans the change of each host in hosts. If hosts is empty, it plans the change of each
// host that has a configuration here.
func planHosts(f *wrapFlags, hosts []string) ([]setupHost, error) {
	list := []setupHost{}
	for _, host := range hostconfig.Known() {
		if len(hosts) > 0 && !slices.Contains(hosts, host) {
			continue
		}
		home, err := keptHome("servers", host)
		if err != nil {
			return nil, err
		}
		own := *f
		own.fetchedHome = home
		one := setupHost{Host: host}
		one.plan, err = planHost(&own, host)
		var missing noHostFile
		var unwritten unwrittenError
		switch {
		case errors.As(err, &missing) && len(hosts) == 0:
			continue
		case errors.As(err, &unwritten):
			one.Problem = oneLine(unwritten.error)
		case err != nil:
			one.Problem = oneLine(err)
		default:
			one.Wrap = &one.plan.res
		}
		list = append(list, one)
	}
	return list, nil
}

// printSetup prints the findings and the planned changes.
func (a *app) printSetup(res *setupResult) {
	a.say("This machine:")
	if len(res.Machine) == 0 {
		a.say("  ok: it can mount, and confine programs")
	}
	for _, c := range res.Machine {
		a.say("  %s %s: %s", c.Status, c.Name, c.Detail)
		a.say("    do: %s", c.Remedy)
	}
	a.say("MCP hosts:")
	if len(res.Hosts) == 0 {
		a.say("  none of %s has a configuration here", strings.Join(hostconfig.Known(), ", "))
	}
	for i := range res.Hosts {
		h := &res.Hosts[i]
		if h.Wrap == nil {
			a.say("  %s: left alone: %s", h.Host, h.Problem)
			continue
		}
		a.say("  %s (%s): %s", h.Host, h.plan.file.displayPath(), h.change())
		for j := range h.Wrap.Servers {
			a.printServer("    ", &h.Wrap.Servers[j])
		}
	}
	if len(res.Agents) > 0 {
		a.say("Coding agents (in a project):")
	}
	for _, name := range res.Agents {
		if one, ok := agents.Find(name); ok {
			a.say("  rootsfs run --for %s -- %s", names.ShellWord(one.Name), names.ShellWord(one.Command))
		}
	}
}

// change describes the planned change of a host in a few words.
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
	return fmt.Sprintf("%d of %s will run confined", n, plural(len(h.Wrap.Servers), "server"))
}

// printSetupDone prints the changes that were made, and how to undo them.
func (a *app) printSetupDone(res *setupResult) {
	changes := false
	for i := range res.Hosts {
		if h := &res.Hosts[i]; h.Wrap != nil && h.Wrap.Changed {
			changes = true
			if h.Wrap.Written || h.plan.dryRun {
				a.printWritten(h.plan)
			}
		}
	}
	if !changes {
		a.say("nothing to change")
	}
}
