package runcmd

import (
	"errors"
	"strings"

	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
)

// NetValue is the value of --net: the whole network, some hosts, or nothing.
type NetValue struct {
	All   bool
	none  bool // also none of the configuration's hosts
	Rules []network.Rule
}

// wholeNetwork is the value of --net without one.
const wholeNetwork = "all"

func netFlag(fs *pflag.FlagSet, v *NetValue, usage string) {
	fs.VarPF(v, "net", "", usage).NoOptDefVal = wholeNetwork
}

// Set implements pflag.Value. Hosts add up; true and false are what the flag took when it was
// a switch.
func (v *NetValue) Set(s string) error {
	switch s {
	case wholeNetwork, "true":
		v.All, v.none = true, false
	case "false":
		*v = NetValue{none: true}
	default:
		rules, err := network.ParseRules(s)
		if err != nil {
			return err
		}
		v.Rules = append(v.Rules, rules...)
	}
	if v.All && len(v.Rules) > 0 {
		return errors.New("--net is given with hosts and without: leave out the one without, or the hosts")
	}
	return nil
}

// Type implements pflag.Value.
func (v *NetValue) Type() string { return "HOSTS" }

// String implements pflag.Value.
func (v *NetValue) String() string {
	if v.All {
		return wholeNetwork
	}
	return strings.Join(hostTexts(v.Rules), ",")
}

func hostTexts(rules []network.Rule) []string {
	out := make([]string, len(rules))
	for i, r := range rules {
		out[i] = r.String()
	}
	return out
}

// limitNet adds the limits of all connections to approved hosts.
func (f *Flags) limitNet(p *plan) error {
	limits := f.netLimits.Values
	if limits != (network.Limits{}) && (f.Net.All || len(p.net) == 0 && !p.learn && !p.netAsk) {
		return cli.Usage(errors.New("--net-limit needs --net=HOSTS: rootsfs does not carry the connections of the whole network"))
	}
	p.netLimits = append(p.netLimits, network.Limited{Limits: limits})
	if conf := p.session.Config; conf != nil {
		p.netLimits = append(p.netLimits, network.Limited{Limits: network.Limits(conf.Run.NetLimits)})
	}
	return nil
}
