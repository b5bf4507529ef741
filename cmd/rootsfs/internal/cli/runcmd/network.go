package runcmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/secret"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// commandNet is the network of approved hosts that a run's command has. A nil one is none.
type commandNet struct {
	gate    *network.Gate
	learn   bool
	refused refusedHosts
	limited reachedLimits
	secrets []*commandSecret
	session *session.Session // set before the gate serves
	asks    bool             // about hosts without a rule
	ends    map[network.Rule]time.Time

	mu     sync.Mutex // guards the field below
	timers map[network.Rule]*time.Timer
}

// newCommandNet returns the network of a plan, nil if no hosts were approved and none are to
// be learned or asked about.
func newCommandNet(p *plan) *commandNet {
	if p.box.Net || len(p.net) == 0 && len(p.secrets) == 0 && !p.learn && !p.netAsk {
		return nil
	}
	n := &commandNet{learn: p.learn, asks: p.netAsk, ends: p.netEnds, secrets: p.secrets, timers: map[network.Rule]*time.Timer{}}
	opt := network.Options{Rules: p.net, AnyServerName: p.netAnySNI, ResolveAll: p.learn, Limits: p.netLimits, Services: n.serveSecrets(p.secrets), Record: n.record}
	if p.netAsk {
		opt.Ask = &network.Ask{Put: n.ask, Denied: n.denied, For: p.netTimeout, Until: p.netAskUntil}
	}
	n.gate = network.New(opt)
	return n
}

// box returns what the sandbox is told.
func (n *commandNet) box(s *session.Session) *sandbox.Network {
	if n == nil {
		return nil
	}
	n.session = s
	rules := n.gate.Rules()
	return &sandbox.Network{
		Optional:   len(rules) == 0 && len(n.secrets) == 0 && !n.asks,
		Listeners:  network.Listeners(rules),
		ResolvConf: network.ResolvConf(),
		Serve: func(sockets map[string][]*os.File) error {
			one := func(name string) *os.File {
				if list := sockets[name]; len(list) > 0 {
					return list[0]
				}
				return nil
			}
			for _, host := range slices.Concat(hostTexts(rules), secretTexts(n.secrets)) {
				if err := n.session.Registry().Note(names.OpGrant, "", guard.Allowed, "network "+host); err != nil {
					return fmt.Errorf("an approved host cannot be recorded: %w", err)
				}
			}
			for rule, end := range n.ends {
				n.endAfter(rule, time.Until(end))
			}
			return n.gate.Serve(&network.Sockets{
				Route: one("route"), Netfilter: one("netfilter"), Datagram: one("datagram"),
				Stream4: one("stream4"), Stream6: one("stream6"), Diag: one("diag"), Listeners: sockets["listener"],
			}, n.session.Log())
		},
	}
}

// ask asks about a host that no rule permits.
func (n *commandNet) ask(ctx context.Context, q network.Question) error {
	h := broker.Host{
		Name: q.Host, Port: q.Port, Program: q.Program.Path, PID: int32(q.Program.PID), Reached: []broker.Reached{}, Others: q.Others,
	}
	for _, r := range q.Reached {
		h.Reached = append(h.Reached, broker.Reached(r))
	}
	return n.session.AskHost(ctx, h, func(length time.Duration) error {
		err := q.Permit()
		if err == nil && length > 0 {
			n.endAfter(q.Rule(), length)
		}
		return err
	})
}

// denied returns why a host is refused without a question.
func (n *commandNet) denied(host string, port uint16) error {
	return n.session.HostDenied((&broker.Host{Name: host, Port: port}).String())
}

// endAfter takes a rule back after some time.
func (n *commandNet) endAfter(rule network.Rule, length time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.timers[rule] = time.AfterFunc(length, func() { n.expire(rule) })
}

// stopTimers stops the timers of rules that are taken back before their time is over.
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

// expire takes a rule back whose time is over.
func (n *commandNet) expire(rule network.Rule) {
	if !slices.Contains(n.gate.Rules(), rule) {
		return // it was taken back at this moment
	}
	n.gate.Expire(rule)
	if err := n.session.Registry().Note(names.OpExpire, "", guard.Allowed, "network "+rule.String()); err != nil {
		n.session.Log().Error("the end of a host's time cannot be recorded", "host", rule.String(), "error", err)
	}
}

// close ends every connection, also if the session is not there to do it.
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

// State implements session.Network.
func (n *commandNet) State() control.NetState {
	st := control.NetState{Hosts: hostTexts(n.gate.Rules()), Secrets: secretTexts(n.liveSecrets()), Asks: n.gate.IsAsking(), Reach: string(n.gate.Reach()), Connections: []control.NetConnection{}}
	for _, c := range n.gate.Conns() {
		st.Connections = append(st.Connections, control.NetConnection{
			Host: c.Host, Port: c.Port, Address: c.Addr.String(), Sent: c.Sent, Received: c.Received, Rate: c.Rate, Began: c.Began,
		})
	}
	t := n.gate.Totals()
	st.Open, st.Opened, st.Refused, st.Failed, st.Sent, st.Received = len(st.Connections), t.Opened, t.Refused, t.Failed, t.Sent, t.Received
	st.Unapproved = n.refused.list()
	return st
}

func parseHosts(hosts []string) ([]network.Rule, error) {
	rules := make([]network.Rule, len(hosts))
	for i, h := range hosts {
		var err error
		if rules[i], err = network.ParseRule(h); err != nil {
			return nil, &guard.Error{Kind: names.Invalid, Err: err}
		}
	}
	return rules, nil
}

// New implements session.Network.
func (n *commandNet) New(hosts []string) ([]string, error) {
	rules, err := parseHosts(hosts)
	if err != nil {
		return nil, err
	}
	have := n.gate.Rules()
	return hostTexts(slices.DeleteFunc(rules, func(r network.Rule) bool { return slices.Contains(have, r) })), nil
}

// Add implements session.Network.
func (n *commandNet) Add(hosts []string) error {
	rules, err := parseHosts(hosts)
	if err != nil {
		return err
	}
	return n.gate.Add(rules...)
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
	return slices.Concat(hostTexts(rules), secretTexts(secrets)), ended, nil
}

// removeAll takes back what is permitted when it is, and not when it began: a host may be
// allowed at this moment.
func (n *commandNet) removeAll() (removed []string, ended int, err error) {
	secrets := n.liveSecrets()
	ended = n.removeSecrets(secrets)
	rules, more := n.gate.RemoveAll()
	n.stopTimers(rules)
	return slices.Concat(hostTexts(rules), secretTexts(secrets)), ended + more, nil
}

func (n *commandNet) removeSecrets(list []*commandSecret) (ended int) {
	for _, s := range list {
		ended += n.gate.RemoveService(s.service)
	}
	return ended
}

// refusedHosts returns the hosts without a rule that the command tried to reach, and how often.
func (n *commandNet) refusedHosts() (hosts []string, times int) {
	if n == nil {
		return nil, 0
	}
	for _, r := range n.refused.list() {
		hosts, times = append(hosts, r.Host), times+r.Times
	}
	return hosts, times
}

// record puts on record what became of a connection. Its error refuses it.
func (n *commandNet) record(e network.Event) error {
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
	if errors.Is(e.Reason, network.ErrNoRule) && !secret.IsInside(e.Host) {
		n.refused.add(e)
	}
	if errors.Is(e.Reason, network.ErrLimit) {
		n.limited.add(e.Reason.Error())
	}
	if e.ServerName != "" {
		detail += ", server name " + names.Quote(e.ServerName)
	}
	if e.Reason != nil {
		detail += ": " + e.Reason.Error()
	}
	rec.Detail = detail
	return n.session.Registry().NoteConnection(rec)
}

// refusedHosts are the hosts without a rule that the command tried to reach.
type refusedHosts struct {
	mu    sync.Mutex
	times map[string]int // by HOST or HOST:PORT
	order []string       // the first one first
}

// maxRefusedHosts bounds them.
const maxRefusedHosts = 64

func (h *refusedHosts) add(e network.Event) {
	name := e.Host
	if e.ServerName != "" {
		name = e.ServerName
	}
	if e.Port != 0 {
		name = net.JoinHostPort(name, strconv.Itoa(int(e.Port)))
	}
	if r, err := network.ParseRule(name); err != nil || r.String() != name || !r.IsOneHost() {
		return // a server name that is none: a wildcard or a prefix would be proposed, and permit more
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.times == nil {
		h.times = map[string]int{}
	}
	if h.times[name] == 0 {
		if len(h.order) == maxRefusedHosts {
			return
		}
		h.order = append(h.order, name)
	}
	h.times[name]++
}

// list returns the hosts, the first one first.
func (h *refusedHosts) list() []control.NetUnapproved {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]control.NetUnapproved, len(h.order))
	for i, host := range h.order {
		list[i] = control.NetUnapproved{Host: host, Times: h.times[host]}
	}
	return list
}

// reachedLimits are the limits that connections have reached, and how many of them did.
type reachedLimits struct {
	mu    sync.Mutex
	times map[string]int // by what is said of the limit; there are as many as limits
}

func (r *reachedLimits) add(limit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.times == nil {
		r.times = map[string]int{}
	}
	r.times[limit]++
}

// printLimits tells, at the end, which limits were reached.
func (n *commandNet) printLimits(a *app) {
	if n == nil {
		return
	}
	n.limited.mu.Lock()
	defer n.limited.mu.Unlock()
	for _, limit := range slices.Sorted(maps.Keys(n.limited.times)) {
		a.Warn("%s; %s ended or refused", limit, cli.Plural(n.limited.times[limit], "connection"))
	}
}

// printRefused names, at the end, what the rules of --net did not permit.
func (n *commandNet) printRefused(a *app) {
	hosts, times := n.refusedHosts()
	if len(hosts) == 0 || n.learn {
		return
	}
	more := ""
	if rest := len(hosts) - maxSaidHosts; rest > 0 {
		hosts, more = hosts[:maxSaidHosts], fmt.Sprintf(" (and %s more; see: rootsfs audit show)", cli.Plural(rest, "host"))
	}
	a.Warn("%s to hosts without a rule refused%s; to permit them: --net=%s", cli.Plural(times, "connection"), more, names.ShellWord(strings.Join(hosts, ",")))
}

// maxSaidHosts is how many of them are named.
const maxSaidHosts = 8
