package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/consent"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/secret"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// commandNet is the network of a command that does not have the host's network. If no host is
// approved and the owner is not asked, it refuses and reports every connection. A nil *commandNet
// means that no gate carries connections: see newCommandNet.
type commandNet struct {
	gate     *network.Gate
	learn    bool
	refused  tally // HOST or HOST:PORT without a rule that the command tried to reach
	limited  tally // messages about limits that connections have reached
	secrets  []*commandSecret
	trust    *sandbox.Trust // nil: there is no secret
	requests requestLog     // the requests with secrets
	// The session of the run, set before the gate serves.
	name      string
	ceiling   func() *config.Ceiling
	reg       *guard.Registry
	log       *slog.Logger
	questions *consent.Questions

	asks    bool                       // the owner is asked about hosts without a rule
	none    bool                       // no host is approved at the start, and the owner is not asked
	ends    map[network.Rule]time.Time // when rules of the configuration are revoked
	warn    func(format string, args ...any)
	warned  atomic.Bool // see warnFirst
	warning sync.WaitGroup
	missing atomic.Bool // the gate serves no network namespace: see noteReach

	mu     sync.Mutex // guards the field below
	timers map[network.Rule]*time.Timer
}

// defaultNetTimeout is how long a connection waits for the answer about its host.
const defaultNetTimeout = time.Minute

// newCommandNet returns the network of a plan, or nil if the command has the host's network, or
// has neither a network namespace nor hosts.
func newCommandNet(p *runPlan) (*commandNet, error) {
	hasHosts := len(p.net.Rules) > 0 || len(p.secrets) > 0 || p.net.Ask != nil
	if p.box.Net || p.box.Level >= sandbox.Landlock && !hasHosts {
		return nil, nil
	}
	n := &commandNet{learn: p.learn, asks: p.net.Ask != nil, none: !hasHosts, ends: p.netEnds, secrets: p.secrets, timers: map[network.Rule]*time.Timer{}}
	opt := p.net
	opt.ResolveAll, opt.Record = p.learn, n.record
	var err error
	if opt.Services, err = n.serveSecrets(p.secrets); err != nil {
		return nil, err
	}
	if opt.Ask != nil {
		opt.Ask.Put, opt.Ask.Denied, opt.Ask.For = n.ask, n.denied, cmp.Or(p.session.Config.Run.NetTimeout, defaultNetTimeout)
	}
	n.gate = network.New(opt)
	return n, nil
}

// noteReach notes, when the command has been started, whether the gate serves its network.
func (n *commandNet) noteReach() {
	if n != nil {
		n.missing.Store(n.gate.Reach() == "")
	}
}

// box returns the options of the sandbox for the network.
func (n *commandNet) box(s *session.Session, warn func(format string, args ...any)) *sandbox.Network {
	if n == nil {
		return nil
	}
	n.ceiling = s.Ceiling
	n.name, n.reg, n.log, n.questions, n.warn = s.Name(), s.Registry(), s.Log(), s.Consent(), warn
	rules := n.gate.Rules()
	return &sandbox.Network{
		Optional:   n.none,
		Offline:    n.none && !n.learn,
		Listeners:  network.Listeners(rules) + len(n.secrets),
		ResolvConf: network.ResolvConf(),
		Serve: func(sockets map[string][]*os.File) error {
			one := func(name string) *os.File {
				if list := sockets[name]; len(list) > 0 {
					return list[0]
				}
				return nil
			}
			for _, host := range slices.Concat(textsOf(rules), textsOf(n.secrets)) {
				if err := n.reg.NoteFacts(names.OpGrant, guard.Allowed, guard.Facts{Host: host}, "network "+host); err != nil {
					return fmt.Errorf("an approved host cannot be recorded: %w", err)
				}
			}
			for rule, end := range n.ends {
				n.endAfter(rule, time.Until(end))
			}
			err := n.gate.Serve(&network.Sockets{
				Route: one("route"), Netfilter: one("netfilter"), Datagram: one("datagram"),
				Stream4: one("stream4"), Stream6: one("stream6"), Diag: one("diag"), Listeners: sockets["listener"],
			}, n.log)
			if err == nil || !n.none || errors.Is(err, network.ErrEnded) {
				return err
			}
			n.log.Warn("what the command looks for on the network is not seen", "error", err) // every connection is refused
			return nil
		},
	}
}

// ask asks the owner about a host without a rule.
func (n *commandNet) ask(ctx context.Context, q network.Question) error {
	h := broker.Host{
		Name: names.Foreign(q.Host), Port: q.Port, Program: names.Foreign(q.Program.Path), PID: int32(q.Program.PID), Reached: []broker.Reached{}, Others: q.Others,
	}
	for _, r := range q.Reached {
		h.Reached = append(h.Reached, broker.Reached{Host: names.Foreign(r.Host), Port: r.Port, Sent: r.Sent, Received: r.Received})
	}
	// The ceiling may have been lowered since the question was put. The ceiling is checked again
	// after q.Permit, because it may have been lowered during that call.
	checkHost := func() error {
		if err := n.ceiling().CheckHost(q.Rule()); err != nil {
			return fmt.Errorf("%w, and %w", err, network.ErrNoRule)
		}
		return nil
	}
	return n.questions.AskHost(ctx, h, func(length time.Duration) error {
		if err := checkHost(); err != nil {
			return err
		}
		if err := q.Permit(); err != nil {
			return err
		}
		if err := checkHost(); err != nil {
			n.gate.Remove(q.Rule())
			return err
		}
		if length > 0 {
			n.endAfter(q.Rule(), length)
		}
		return nil
	})
}

// errNoSecret refuses a host name that ends like the names of secrets (see secret.IsInside) and
// belongs to no secret of the run.
var errNoSecret = fmt.Errorf("no secret of this run has this name, and %w", network.ErrNoRule)

// denied returns the reason why a host is refused without a question.
func (n *commandNet) denied(host string, port uint16) error {
	if secret.IsInside(host) {
		return errNoSecret
	}
	if err := n.overCeiling(net.JoinHostPort(host, strconv.Itoa(int(port)))); err != nil {
		return fmt.Errorf("%w, and %w", err, network.ErrNoRule)
	}
	return n.questions.HostDenied((&broker.Host{Name: names.Foreign(host), Port: port}).String())
}

// overCeiling returns the ceiling's refusal of a host that is written as for run --net, or nil.
func (n *commandNet) overCeiling(host string) error {
	rule, err := network.ParseRule(host)
	if err != nil || n.ceiling == nil {
		return nil
	}
	return n.ceiling().CheckHost(rule)
}

// endAfter revokes a rule after some time.
func (n *commandNet) endAfter(rule network.Rule, length time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.timers[rule] = time.AfterFunc(length, func() { n.expire(rule) })
}

// stopTimers stops the timers of rules that are revoked before their time has passed.
func (n *commandNet) stopTimers(rules []network.Rule) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range rules {
		if t := n.timers[r]; t != nil {
			t.Stop()
			delete(n.timers, r)
		}
	}
}

// expire revokes a rule whose time has passed.
func (n *commandNet) expire(rule network.Rule) {
	if !slices.Contains(n.gate.Rules(), rule) {
		return // it has been revoked meanwhile
	}
	n.gate.Expire(rule)
	if err := n.reg.NoteFacts(names.OpExpire, guard.Allowed, guard.Facts{Host: rule.String()}, "network "+rule.String()); err != nil {
		n.log.Error("the end of a host's time cannot be recorded", "host", rule.String(), "error", err)
	}
}

// awaitRefusals waits, for a bounded time, until each attempt of the command to reach a host is on
// record: see network.Gate.Settle.
func (n *commandNet) awaitRefusals() {
	if n != nil {
		n.gate.Settle()
	}
}

// close ends every connection, even if there is no session to do it.
func (n *commandNet) close() {
	if n == nil {
		return
	}
	n.mu.Lock()
	for _, t := range n.timers {
		t.Stop()
	}
	n.mu.Unlock()
	n.Close()
}

// Close implements session.Network.
func (n *commandNet) Close() { n.gate.Close() }

// Pause implements session.Network.
func (n *commandNet) Pause() { n.gate.Pause() }

// Resume implements session.Network.
func (n *commandNet) Resume() { n.gate.Resume() }

// State implements session.Network.
func (n *commandNet) State() control.NetState {
	st := control.NetState{Hosts: textsOf(n.gate.Rules()), Secrets: textsOf(n.liveSecrets()), Asks: n.gate.IsAsking(), Reach: string(n.gate.Reach()), Connections: []control.NetConnection{}}
	for _, c := range n.gate.Conns() {
		one := control.NetConnection{
			Host: names.Text(c.Host), Port: c.Port, Address: c.Addr.String(), Sent: c.Sent, Received: c.Received, Rate: c.Rate, Began: c.Began,
			ServerNames: []names.Text{}, PermittedBy: textsOf(c.Rules),
		}
		for _, name := range c.ServerNames {
			one.ServerNames = append(one.ServerNames, names.Text(names.Escape(name)))
		}
		for _, s := range n.secrets {
			if c.Service != nil && s.service == c.Service {
				one.PermittedBy = append(one.PermittedBy, s.String())
			}
		}
		st.Connections = append(st.Connections, one)
	}
	t := n.gate.Totals()
	st.Open, st.Opened, st.Refused, st.Failed, st.Sent, st.Received = len(st.Connections), t.Opened, t.Refused, t.Failed, t.Sent, t.Received
	st.Unapproved, st.Requests = n.refused.counts(), n.requests.all()
	return st
}

// parseHosts reads hosts, each of which may be a list with commas.
func parseHosts(hosts []string) (rules []network.Rule, err error) {
	for _, h := range hosts {
		list, err := network.ParseRules(h)
		if err != nil {
			return nil, &guard.Error{Kind: names.Invalid, Err: err}
		}
		rules = append(rules, list...)
	}
	return rules, nil
}

// Add implements session.Network.
func (n *commandNet) Add(hosts []string, record func(host string) error) ([]string, error) {
	if n.missing.Load() {
		return nil, session.ErrNoNetwork
	}
	rules, err := parseHosts(hosts)
	if err != nil {
		return nil, err
	}
	have := n.gate.Rules()
	rules = slices.DeleteFunc(rules, func(r network.Rule) bool { return slices.Contains(have, r) })
	for i, r := range rules {
		if err := record(r.String()); err != nil {
			return textsOf(rules[:i]), err
		}
	}
	return textsOf(rules), n.gate.Add(rules...)
}

// Remove implements session.Network.
func (n *commandNet) Remove(hosts []string) (removed []string, ended int, err error) {
	if hosts == nil {
		return n.removeAll()
	}
	have := n.gate.Rules()
	var secrets []*commandSecret
	hosts = slices.DeleteFunc(slices.Clone(hosts), func(h string) bool {
		s := n.findSecret(h)
		if s != nil {
			secrets = append(secrets, s)
		}
		return s != nil
	})
	rules, err := parseHosts(hosts)
	if err != nil {
		return nil, 0, err
	}
	for _, r := range rules {
		if !slices.Contains(have, r) {
			return nil, 0, &control.Error{Class: control.NoSuch, Text: r.String() + " is not approved; nothing was revoked; see: rootsfs net list"}
		}
	}
	n.stopTimers(rules)
	ended = n.removeSecrets(secrets) + n.gate.Remove(rules...)
	return slices.Concat(textsOf(rules), textsOf(secrets)), ended, nil
}

// removeAll revokes all rules and secrets. It does not list the rules first, because the owner may
// allow another host at any moment.
func (n *commandNet) removeAll() (removed []string, ended int, err error) {
	secrets := n.liveSecrets()
	ended = n.removeSecrets(secrets)
	rules, more := n.gate.RemoveAll()
	n.stopTimers(rules)
	return slices.Concat(textsOf(rules), textsOf(secrets)), ended + more, nil
}

func (n *commandNet) removeSecrets(list []*commandSecret) (ended int) {
	for _, s := range list {
		ended += n.gate.RemoveService(s.service)
	}
	return ended
}

// netValue is the value of --net: the whole network, some hosts, or nothing.
type netValue struct {
	All   bool
	none  bool // the blocks of the configuration add no hosts and no secrets
	Rules []network.Rule
}

// wholeNetwork is the value that pflag sets for a --net without a value.
const wholeNetwork = "all"

func netFlag(fs *pflag.FlagSet, v *netValue, usage string) {
	fs.VarPF(v, "net", "", usage).NoOptDefVal = wholeNetwork
}

// Set implements pflag.Value. The hosts of several flags are put together; the value false drops
// earlier values. The values true and false are from older versions, in which the flag was a
// switch.
func (v *netValue) Set(s string) error {
	switch s {
	case wholeNetwork, "true":
		v.All, v.none = true, false
	case "false":
		*v = netValue{none: true}
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
func (v *netValue) Type() string { return "HOSTS" }

// String implements pflag.Value.
func (v *netValue) String() string {
	if v.All {
		return wholeNetwork
	}
	return strings.Join(textsOf(v.Rules), ",")
}

// textsOf returns hosts or secrets as they are written.
func textsOf[T fmt.Stringer](list []T) []string {
	out := make([]string, len(list))
	for i, one := range list {
		out[i] = one.String()
	}
	return out
}

// planNetwork decides which hosts the command may connect to, and with which secrets.
func (f *runFlags) planNetwork(p *runPlan) error {
	if err := f.planSecrets(p); err != nil {
		return err
	}
	p.net.Rules = slices.Concat(f.Net.Rules, withoutSecretHosts(f.presetNets, p.secrets))
	if !f.Net.All && !f.Net.none {
		p.addConfiguredHosts(p.session.Config.Net, p.blockName, f.Profile)
	}
	isOfPreset := func(r network.Rule) bool { return slices.Contains(f.presetNets, r) && !slices.Contains(f.Net.Rules, r) }
	if err := p.keepToCeiling(isOfPreset); err != nil {
		return err
	}
	p.net.AnyServerName = f.netAnySNI
	if f.netAsk {
		p.net.Ask = &network.Ask{}
	}
	limits, hasNone := f.netLimits.Values, len(p.net.Rules) == 0 && p.net.Ask == nil
	switch {
	case f.netAsk && f.Net.All:
		return usage(errors.New("--net-ask and --net without hosts cannot be combined: --net permits every host"))
	case f.netAnySNI && hasNone:
		return usage(errors.New("--net-any-sni needs --net=HOSTS: without them no server name is looked at"))
	case limits != (network.Limits{}) && (f.Net.All || hasNone && !f.learn):
		return usage(errors.New("--net-limit needs --net=HOSTS: rootsfs does not carry the connections of the whole network"))
	}
	p.net.Limits = config.Stricter(config.NetLimits(), limits, network.Limits(p.session.Config.Run.NetLimits))
	return nil
}

// keepToCeiling refuses hosts and secrets that the ceiling does not allow. Hosts of a preset, which
// the owner did not write, are left out instead.
func (p *runPlan) keepToCeiling(isOfPreset func(network.Rule) bool) error {
	c := p.session.Ceiling
	for _, s := range p.secrets {
		if err := c.CheckSecret(s.Name, s.URL); err != nil {
			return session.CeilingError(err)
		}
	}
	var refused error
	p.net.Rules = slices.DeleteFunc(p.net.Rules, func(r network.Rule) bool {
		err := c.CheckHost(r)
		switch {
		case err == nil:
			return false
		case isOfPreset(r):
			p.notes = append(p.notes, err.Error()+"; the preset's host is left out")
		default:
			refused = cmp.Or(refused, session.CeilingError(err))
		}
		return true
	})
	return refused
}

// addConfiguredHosts adds the hosts that the configuration gives to runs of this name and profile.
// If a block says that the owner is asked about other hosts, the run asks until the latest end of
// such blocks.
func (p *runPlan) addConfiguredHosts(blocks []config.Net, name, profile string) {
	now := time.Now()
	p.netEnds = map[network.Rule]time.Time{}
	for _, b := range blocks {
		end := b.Ends(now)
		if b.Subject != "" && b.Subject != name || b.Profile != "" && b.Profile != profile || !end.IsZero() && !now.Before(end) {
			continue
		}
		if b.Ask && (p.net.Ask == nil || end.IsZero() || !p.net.Ask.Until.IsZero() && end.After(p.net.Ask.Until)) {
			p.net.Ask = &network.Ask{Until: end}
		}
		for _, rule := range b.Hosts {
			if slices.Contains(p.net.Rules, rule) {
				continue
			}
			p.net.Rules = append(p.net.Rules, rule)
			if !end.IsZero() {
				p.netEnds[rule] = end
			}
		}
	}
}
