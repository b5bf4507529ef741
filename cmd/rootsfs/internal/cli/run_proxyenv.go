package cli

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
)

// proxyVariables are the variables that name a proxy, as curl, Go, Node and Python read them.
var proxyVariables = []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"}

// ownProxy is a proxy that a variable of the owner names.
type ownProxy struct {
	variable string
	host     network.Rule
	url      string // without the user and the password
	hasUser  bool
	err      error // of a value that names no host
}

// ownProxies returns the proxies that the owner's variables name.
func ownProxies() (list []ownProxy) {
	for _, name := range proxyVariables {
		if text := os.Getenv(name); text != "" {
			p := parseProxy(text)
			p.variable = name
			list = append(list, p)
		}
	}
	return list
}

// parseProxy reads the value of a variable. Never print the field err of the result: its text may
// contain the value, and the value may contain a password.
func parseProxy(text string) (p ownProxy) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return ownProxy{err: err}
	}
	p.hasUser = u.User != nil
	u.User = nil
	p.url = u.String()
	host := u.Hostname()
	if host == "localhost" {
		host = "127.0.0.1" // services of this machine are approved by this address
	}
	port := cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme], "1080")
	p.host, p.err = network.ParseRule(net.JoinHostPort(host, port))
	return p
}

// passProxies passes the proxies of the owner's variables to an agent if their hosts are
// approved, without passwords, and adds notes about the proxies. No preset approves a proxy:
// through a proxy the agent would reach every host.
func (f *runFlags) passProxies(p *runPlan) {
	if f.Agent == "" || f.Net.none {
		return
	}
	noted := map[network.Rule]bool{}
	isPassed := false
	for _, one := range ownProxies() {
		note, isNamed := "", passesOn(p.env, one.variable)
		switch {
		case one.err != nil && isNamed:
		case one.err != nil:
			note = one.variable + " names no proxy that can be approved, and is not passed on"
		case !f.Net.All && !f.unconfined && !slices.ContainsFunc(p.net.Rules, func(r network.Rule) bool { return r.Covers(one.host) }):
			note = one.unapprovedNote()
		default:
			if !isNamed {
				p.env = append(p.env, one.variable+"="+one.url)
				isPassed = true
			}
			note = one.passedNote(isNamed)
		}
		if note != "" && !noted[one.host] {
			p.notes = append(p.notes, note)
		}
		noted[one.host] = true
	}
	if isPassed {
		p.env = append(p.env, "NO_PROXY", "no_proxy")
	}
}

// unapprovedNote returns the note about a proxy that is not approved: how to approve it.
func (p *ownProxy) unapprovedNote() string {
	address := ""
	if p.host.Name != "" {
		address = " (and its address, if that is private)"
	}
	return fmt.Sprintf("%s names %s, which is not approved: write --net=%s to allow it%s; by way of it the agent reaches every host", p.variable, p.host, p.host, address)
}

// passedNote returns the note about an approved proxy, which says what the agent gets. isNamed says
// that --env names the variable, so that the agent also gets a password.
func (p *ownProxy) passedNote(isNamed bool) string {
	without := ""
	if p.hasUser && !isNamed {
		without = fmt.Sprintf(" without its password (--env %s passes that, too)", p.variable)
	}
	return fmt.Sprintf("%s is passed on%s: by way of %s the agent reaches every host", p.variable, without, p.host)
}

// passesOn reports whether a list in the form of --env passes a variable.
func passesOn(list []string, variable string) bool {
	return slices.ContainsFunc(list, func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		prefix, isPrefix := strings.CutSuffix(name, "*")
		return name == variable || isPrefix && strings.HasPrefix(variable, prefix)
	})
}
