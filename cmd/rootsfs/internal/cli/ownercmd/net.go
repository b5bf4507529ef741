package ownercmd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/guard/names"
)

func (a *app) newNetCmd() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "net",
		Short: "List and change the hosts that a command may connect to",
	}, newNetListCmd(a), newNetAddCmd(a), newNetRemoveCmd(a))
}

func newNetListCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the approved hosts and the open connections",
	}
	return cli.Show(a.App, cmd, control.ListNet, func(st control.NetState) control.NetState { return st }, a.printNet)
}

func (a *app) printNet(st control.NetState) {
	if len(st.Hosts) == 0 && len(st.Secrets) == 0 {
		a.Say("no host is approved; add one: rootsfs net add HOST")
	}
	for _, h := range slices.Concat(st.Hosts, st.Secrets) {
		a.Say("%s", names.EscapeQuoted(h))
	}
	if st.Asks {
		a.Say("other hosts are asked about; see: rootsfs consent list")
	}
	if st.Reach != string(network.EveryPort) && st.Reach != "" {
		a.Say("only %s can be reached: the kernel lacks nf_tables or routes; other connections are refused without a record", names.EscapeQuoted(st.Reach))
	}
	if len(st.Connections) == 0 {
		return
	}
	rows := [][]string{{"HOST", "PORT", "ADDRESS", "TLS ASKS FOR", "PERMITTED BY", "SENT", "RECEIVED", "OPEN FOR"}}
	list := func(texts []string) string { return cmp.Or(names.EscapeQuoted(strings.Join(texts, ",")), "-") }
	for _, c := range st.Connections {
		rows = append(rows, []string{cli.QuoteIfNeeded(c.Host), fmt.Sprint(c.Port), names.EscapeQuoted(c.Address), list(c.ServerNames), list(c.PermittedBy),
			cli.SizeText(c.Sent), cli.SizeText(c.Received), time.Since(c.Began).Round(time.Second).String()})
	}
	a.Table(rows)
}

func newNetAddCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add HOSTS...",
		Short: "Let the command connect to more hosts",
		Args:  cli.ArgCount(1, -1, "the host"),
	}
	return cli.Do(a.App, cmd, control.AddNet, netRequest, func(out control.NetAdded) {
		if len(out.Added) == 0 {
			a.Say("nothing is new: the hosts were approved already")
		}
		for _, h := range out.Added {
			a.Say("%s: approved", names.EscapeQuoted(h))
		}
	})
}

func newNetRemoveCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove HOSTS...",
		Short: "Take hosts back, and end the connections to them",
		Args:  cli.ArgCount(1, -1, "the host"),
	}
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return cli.Offer(a.App, control.ListNet, func(st control.NetState) ([]string, error) { return slices.Concat(st.Hosts, st.Secrets), nil })
	}
	return cli.Do(a.App, cmd, control.RemoveNet, netRequest, func(out control.NetRemoved) {
		for _, h := range out.Removed {
			a.Say("%s: revoked", names.EscapeQuoted(h))
		}
		if out.Connections > 0 {
			a.Say("%s ended", cli.Plural(out.Connections, "connection"))
		}
	})
}

// netRequest names hosts, each of which may be a list with commas, and secrets.
func netRequest(args []string) (control.NetRequest, error) {
	return control.NetRequest{Hosts: args}, nil
}
