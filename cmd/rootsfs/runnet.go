package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// netValue is the value of --net: the whole network, some hosts, or nothing.
type netValue struct {
	all   bool
	rules []network.Rule
}

// wholeNetwork is the value of --net without one.
const wholeNetwork = "all"

func netFlag(fs *pflag.FlagSet, v *netValue, usage string) {
	fs.VarPF(v, "net", "", usage).NoOptDefVal = wholeNetwork
}

// Set implements pflag.Value. Hosts add up; true and false are what the flag took when it was
// a switch.
func (v *netValue) Set(s string) error {
	switch s {
	case wholeNetwork, "true":
		v.all = true
	case "false":
		*v = netValue{}
	default:
		rules, err := network.ParseRules(s)
		if err != nil {
			return err
		}
		v.rules = append(v.rules, rules...)
	}
	if v.all && len(v.rules) > 0 {
		return errors.New("--net is given with hosts and without: leave out the one without, or the hosts")
	}
	return nil
}

// Type implements pflag.Value.
func (v *netValue) Type() string { return "HOSTS" }

// String implements pflag.Value.
func (v *netValue) String() string {
	if v.all {
		return wholeNetwork
	}
	words := make([]string, len(v.rules))
	for i, r := range v.rules {
		words[i] = r.String()
	}
	return strings.Join(words, ",")
}

// netText says which network a command has.
func netText(all bool, hosts []string) string {
	switch {
	case all:
		return "the host's network"
	case len(hosts) > 0:
		return "a network of " + plural(len(hosts), "approved host") + " (" + strings.Join(hosts, ", ") + ")"
	}
	return "no network"
}

// network returns how the command's network is served; nil if no hosts were approved.
func (r *runner) network() *sandbox.Network {
	if len(r.plan.net) == 0 {
		return nil
	}
	return &sandbox.Network{
		Loopback:   network.LoopbackSockets(r.plan.net),
		ResolvConf: network.ResolvConf(),
		Serve: func(sockets map[string][]*os.File) error {
			one := func(name string) *os.File {
				if list := sockets[name]; len(list) > 0 {
					return list[0]
				}
				return nil
			}
			for _, rule := range r.plan.net {
				if err := r.s.Registry().Note(names.OpGrant, "", guard.Allowed, "network "+rule.String()); err != nil {
					return fmt.Errorf("an approved host cannot be recorded: %w", err)
				}
			}
			r.gate = network.New(network.Options{Rules: r.plan.net, AnyServerName: r.plan.netAnySNI, Record: r.recordConnection, Log: r.s.Log()})
			return r.gate.Serve(&network.Sockets{
				Route: one("route"), Netfilter: one("netfilter"), Datagram: one("datagram"),
				Stream4: one("stream4"), Stream6: one("stream6"), Loopback: sockets["loopback"],
			})
		},
	}
}

// recordConnection puts on record what became of a connection. Its error refuses it.
func (r *runner) recordConnection(e network.Event) error {
	rec := guard.Record{Time: e.Began, Op: names.OpConnect, Verdict: guard.Allowed, Read: e.Received, Written: e.Sent, Duration: e.Duration}
	detail := e.Host
	if e.Port != 0 {
		detail = fmt.Sprintf("%s port %d", e.Host, e.Port)
	}
	if e.Addr.IsValid() && e.Addr.Addr().String() != e.Host {
		detail += ", at " + e.Addr.Addr().String()
	}
	switch e.State {
	case network.Ended:
		rec.Op, rec.Time = names.OpDisconnect, e.Began.Add(e.Duration)
	case network.Refused:
		rec.Verdict, rec.Kind = guard.Refused, names.Permission
	case network.Failed:
		rec.Verdict, rec.Kind = guard.Failed, names.IO
	}
	if e.ServerName != "" {
		detail += ", server name " + names.Quote(e.ServerName)
	}
	if e.Reason != nil {
		detail += ": " + e.Reason.Error()
	}
	rec.Detail = detail
	return r.s.Registry().NoteConnection(rec)
}
