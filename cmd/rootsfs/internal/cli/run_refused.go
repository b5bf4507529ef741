package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/secret"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// refusedHosts returns the hosts without a rule that the command tried to reach, and how often.
func (n *commandNet) refusedHosts() (hosts []string, times int) {
	if n == nil {
		return nil, 0
	}
	for _, r := range n.refused.counts() {
		hosts, times = append(hosts, r.Host.Raw()), times+r.Times
	}
	return hosts, times
}

// record records an event of a connection. If it returns an error for network.Opened, the gate does
// not carry the connection.
func (n *commandNet) record(e network.Event) error {
	if errors.Is(e.Reason, network.ErrNoRule) && !secret.IsInside(e.Host.Raw()) {
		n.refused.add(refusedHost(e))
		n.warnFirst(refusedHost(e))
	}
	if errors.Is(e.Reason, network.ErrLimit) {
		n.limited.add(e.Reason.Error())
	}
	return n.reg.NoteConnection(connectionRecord(e))
}

// warnFirst warns once that the command has no network, because the command's own error does not
// say so. It warns at the first refused host that the ceiling allows. The host comes from the
// command, but is in the form of a rule.
func (n *commandNet) warnFirst(host string) {
	if host == "" || n.learn || !n.none || len(n.gate.Rules()) > 0 || n.warned.Load() || n.overCeiling(host) != nil || !n.warned.CompareAndSwap(false, true) {
		return
	}
	n.warning.Go(func() { // standard error may not be read, and the gate must not wait for it
		n.warn("the command has no network; it looked for %s. To permit that: --net=%s, or, while it runs: rootsfs net add %[2]s --session %s",
			names.Quote(host), names.ShellWord(host), names.ShellWord(n.name))
	})
}

// connectionRecord returns the record of a connection's outcome. A connection counts as refused if
// it ended because TLS named a server without a rule, or because the server cannot be known.
func connectionRecord(e network.Event) guard.Record {
	rec := guard.Record{Time: e.Began, Op: names.OpConnect, Verdict: guard.Allowed, Read: e.Received, Written: e.Sent, Duration: e.Duration}
	if e.State == network.Ended {
		rec.Op, rec.Time = names.OpDisconnect, e.Began.Add(e.Duration)
	}
	switch {
	case e.State == network.Refused, e.State == network.Ended && (errors.Is(e.Reason, network.ErrNoRule) || errors.Is(e.Reason, network.ErrHello)):
		rec.Verdict, rec.Kind = guard.Refused, names.Permission
	case e.State == network.Failed:
		rec.Verdict, rec.Kind = guard.Failed, names.IO
	}
	rec.Facts = guard.Facts{
		Host: e.Host.Raw(), Port: e.Port, ServerName: e.ServerName.Raw(), Program: e.Program.Path.Raw(),
		NoRule: rec.Verdict == guard.Refused && errors.Is(e.Reason, network.ErrNoRule),
	}
	rec.Detail = e.Host.Raw()
	if e.Port != 0 {
		rec.Detail += fmt.Sprintf(" port %d", e.Port)
	}
	if e.Addr.IsValid() && e.Addr.Addr().String() != e.Host.Raw() {
		rec.Detail += ", at " + e.Addr.Addr().String()
	}
	if e.ServerName != "" {
		rec.Detail += ", server name " + names.Quote(e.ServerName)
	}
	if e.Reason != nil {
		rec.Detail += ": " + e.Reason.Error()
	}
	if e.Program.Path != "" {
		rec.Detail += "; program " + names.QuoteShort(e.Program.Path)
	}
	return rec
}

// refusedHost returns the host that a program tried to reach. The result has the form of a rule,
// HOST or HOST:PORT. It is "" for a server name that is no host name: a rule for a wildcard or a
// prefix would permit more than one host.
func refusedHost(e network.Event) string {
	return hostRule(cmp.Or(e.ServerName, e.Host).Raw(), int(e.Port))
}

// hostRule returns the rule for a name or address, and for a port unless that is 0. It returns
// "" if the rule would permit more than one host.
func hostRule(name string, port int) string {
	if port != 0 {
		name = net.JoinHostPort(name, strconv.Itoa(port))
	}
	if r, err := network.ParseRule(name); err != nil || r.String() != name || !r.IsOneHost() {
		return ""
	}
	return name
}

// tally counts texts.
type tally struct {
	mu   sync.Mutex
	list []control.NetUnapproved // the oldest first; Host is the text, even if it is no host
}

// maxTally bounds the number of texts: a command may try any number of hosts.
const maxTally = 64

// add counts a text. It ignores an empty text, and a new text if there are maxTally already.
func (t *tally) add(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.list, func(one control.NetUnapproved) bool { return one.Host.Raw() == text })
	switch {
	case i >= 0:
		t.list[i].Times++
	case text != "" && len(t.list) < maxTally:
		t.list = append(t.list, control.NetUnapproved{Host: names.Text(text), Times: 1})
	}
}

// counts returns the texts with their counts, the oldest first.
func (t *tally) counts() []control.NetUnapproved {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]control.NetUnapproved{}, t.list...)
}

// printLimits prints, at the end, which limits were reached.
func (n *commandNet) printLimits(a *app) {
	if n == nil {
		return
	}
	for _, limit := range n.limited.counts() {
		a.warn("%s; %s ended or refused", limit.Host, plural(limit.Times, "connection"))
	}
}

// printRefused lists, at the end, the hosts that the rules of --net did not permit.
func (n *commandNet) printRefused(a *app) {
	hosts, times := n.refusedHosts()
	if len(hosts) == 0 || n.learn {
		return
	}
	more := ""
	if rest := len(hosts) - maxListedHosts; rest > 0 {
		hosts, more = hosts[:maxListedHosts], fmt.Sprintf(" (and %s more; see: rootsfs audit show)", plural(rest, "host"))
	}
	what := plural(times, "connection") + " to hosts without a rule refused"
	n.warning.Wait()
	if n.warned.Load() {
		what = fmt.Sprintf("the command had no network, and was refused %s and look-ups of names", plural(times, "connection"))
	}
	var ceilingErr error
	hosts = slices.DeleteFunc(hosts, func(host string) bool {
		err := n.overCeiling(host)
		ceilingErr = cmp.Or(ceilingErr, err)
		return err != nil
	})
	advice := "to permit them: --net=" + names.ShellWord(strings.Join(hosts, ","))
	switch {
	case ceilingErr != nil && len(hosts) == 0:
		advice = ceilingErr.Error()
	case ceilingErr != nil:
		advice += "; not all: " + ceilingErr.Error()
	}
	a.warn("%s%s; %s", what, more, advice)
}

// maxListedHosts is how many refused hosts printRefused lists.
const maxListedHosts = 8
