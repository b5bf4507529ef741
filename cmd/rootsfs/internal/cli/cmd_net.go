package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/guard/names"
)

const netLong = `List, add and remove the hosts that the command of "rootsfs run --net=HOSTS" may connect
to, while it runs. "rootsfs why" tells which host was refused last.`

const netExamples = `  rootsfs net list
  rootsfs net add registry.npmjs.org:443
  rootsfs net remove registry.npmjs.org:443`

func (a *app) newNetCmd() *cobra.Command {
	return group(&cobra.Command{
		Use:     "net",
		Short:   "List and change the hosts that a command may connect to",
		Long:    netLong,
		Example: netExamples,
	}, newNetListCmd(a), newNetAddCmd(a), newNetRemoveCmd(a))
}

const netListLong = `Show the hosts that the command may connect to, its open connections, each with the
hosts and secrets that permit it, and its requests with secrets: those under way and
the last ones.`

const netListExamples = `  rootsfs net list --session my-agent --json`

func newNetListCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "Show the approved hosts and the open connections",
		Long:    netListLong,
		Example: netListExamples,
	}
	return show(a, cmd, control.ListNet, func(st control.NetState) control.NetState { return st }, a.printNet)
}

func (a *app) printNet(st control.NetState) {
	if len(st.Hosts) == 0 && len(st.Secrets) == 0 {
		a.say("no host is approved; add one: rootsfs net add HOST")
	}
	for _, h := range slices.Concat(st.Hosts, st.Secrets) {
		a.say("%s", names.EscapeQuoted(h))
	}
	if st.Asks {
		a.say("other hosts are asked about; see: rootsfs consent list")
	}
	if st.Reach != string(network.EveryPort) && st.Reach != "" {
		a.say("only %s can be reached: the kernel lacks nf_tables or routes; other connections are refused without a record", names.EscapeQuoted(st.Reach))
	}
	a.printRequests(st.Requests)
	if len(st.Connections) == 0 {
		return
	}
	rows := [][]string{{"HOST", "PORT", "ADDRESS", "TLS ASKS FOR", "PERMITTED BY", "SENT", "RECEIVED", "OPEN FOR"}}
	list := func(texts []string) string { return cmp.Or(names.EscapeQuoted(strings.Join(texts, ",")), "-") }
	for _, c := range st.Connections {
		rows = append(rows, []string{quoteIfNeeded(c.Host), fmt.Sprint(c.Port), names.EscapeQuoted(c.Address), list(names.List[string](c.ServerNames)), list(c.PermittedBy),
			sizeText(c.Sent), sizeText(c.Received), time.Since(c.Began).Round(time.Second).String()})
	}
	a.table(rows)
}

// printRequests shows requests with secrets.
func (a *app) printRequests(list []control.SecretUse) {
	if len(list) == 0 {
		return
	}
	rows := [][]string{{"REQUEST", "HOST", "SECRET", "STATUS", "SENT", "RECEIVED", "BEGAN"}}
	for _, r := range list {
		status := fmt.Sprint(r.Status)
		switch {
		case r.Open:
			status = "under way"
		case r.Refused:
			status += " refused"
		case r.Status == 0:
			status = "none"
		}
		what := "TLS handshake"
		if r.Method != "" {
			what = names.Escape(r.Method) + " " + names.QuoteShort(r.Path)
		}
		rows = append(rows, []string{what, names.EscapeQuoted(r.Host), names.EscapeQuoted(r.Secret), status, sizeText(r.Sent), sizeText(r.Received), r.Began.Local().Format(time.TimeOnly)})
	}
	a.table(rows)
}

const netAddLong = `Let the command connect to more hosts, written as "run --net" takes them, until it ends.
A program that asked for a name before may have to ask again.`

const netAddExamples = `  rootsfs net add registry.npmjs.org:443 '*.githubusercontent.com'`

func newNetAddCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "add HOSTS...",
		Short:   "Let the command connect to more hosts",
		Long:    netAddLong,
		Example: netAddExamples,
		Args:    argCount(1, -1, "the host"),
	}
	return do(a, cmd, control.AddNet, netRequest, func(out control.NetAdded) {
		if len(out.Added) == 0 {
			a.say("nothing is new: the hosts were approved already")
		}
		for _, h := range out.Added {
			a.say("%s: approved", names.EscapeQuoted(h))
		}
	})
}

const netRemoveLong = `Take hosts and secrets back, written as "rootsfs net list" shows them; of a secret,
NAME= is enough. When the command returns, no connection that needs them carries
a byte any more. "rootsfs revoke --net" takes all back.`

const netRemoveExamples = `  rootsfs net remove registry.npmjs.org:443`

func newNetRemoveCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "remove HOSTS...",
		Short:   "Take hosts back, and end the connections to them",
		Long:    netRemoveLong,
		Example: netRemoveExamples,
		Args:    argCount(1, -1, "the host"),
	}
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return offer(a, control.ListNet, func(st control.NetState) ([]string, error) { return slices.Concat(st.Hosts, st.Secrets), nil })
	}
	return do(a, cmd, control.RemoveNet, netRequest, func(out control.NetRemoved) {
		for _, h := range out.Removed {
			a.say("%s: revoked", names.EscapeQuoted(h))
		}
		if out.Connections > 0 {
			a.say("%s ended", plural(out.Connections, "connection"))
		}
	})
}

// netRequest returns the request of net add or net remove. Each argument is a host, or several
// hosts with commas between them. An argument of net remove can also be a secret.
func netRequest(args []string) (control.NetRequest, error) {
	return control.NetRequest{Hosts: args}, nil
}
