package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/agents"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/secret"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// commandSecret is a credential that the command uses without seeing it.
type commandSecret struct {
	*secret.Secret
	credential secret.Credential
	service    *network.Service // set with the network
}

// parseSecretFlags returns the secrets that --secret names, without their credentials.
func (f *runFlags) parseSecretFlags(p *runPlan, blocks []config.Secret) ([]*secret.Secret, error) {
	var list []*secret.Secret
	for _, text := range f.secrets {
		name, url, hasURL := strings.Cut(text, "=")
		if err := secret.CheckName(name); err != nil {
			return nil, usage(fmt.Errorf("--secret: %w", err))
		}
		s, isConfigured, err := f.findSecret(name, blocks)
		if err != nil {
			return nil, err
		}
		if hasURL {
			if s.URL, err = secret.ParseURL(url); err != nil {
				return nil, usage(fmt.Errorf("--secret %s: %w", name, err))
			}
		} else if !isConfigured {
			if err := s.SetDefaultURL(p.judge(), p.ownersEnviron()); err != nil {
				return nil, fmt.Errorf("secret %s: %w", name, err)
			}
			if err := checkDefaultURL(s); err != nil {
				return nil, usage(fmt.Errorf("--secret %s: %w", name, err))
			}
		}
		list = append(list, s)
	}
	return list, nil
}

// findSecret returns a secret of the configuration, or else the secret that package agents has for
// the name. If neither has the name, findSecret returns a secret without a URL.
func (f *runFlags) findSecret(name string, blocks []config.Secret) (s *secret.Secret, isConfigured bool, err error) {
	for _, b := range blocks {
		if b.Name == name {
			return &b.Secret, true, nil
		}
	}
	one, ok := agents.FindSecret(f.Agent, name)
	if !ok {
		return &secret.Secret{Name: name}, false, nil
	}
	url, err := secret.ParseURL(one.URL)
	return &secret.Secret{Name: name, URL: url, Header: one.Header, Variable: one.Variable}, false, err
}

// checkDefaultURL returns an error if it is not certain where the credential of a --secret without
// a URL is to go. This is so if the secret has no default URL, or if the variable for the secret's
// base URL is set to another URL. A repository's settings may have set this variable, so the owner
// has to write the URL.
func checkDefaultURL(s *secret.Secret) error {
	write := "write --secret " + names.ShellWord(s.Name+"=https://HOST")
	if s.URL == (secret.URL{}) {
		return fmt.Errorf("it is not said what it is for: %s, or a [[secret]] block of the configuration", write)
	}
	own := os.Getenv(s.Variable)
	if own != "" && strings.TrimRight(own, "/") != s.URL.String() {
		return fmt.Errorf("the variable %s is set to %s, and the credential would go to %s: %s for the right one", s.Variable, names.Quote(own), s.URL, write)
	}
	return nil
}

// planSecrets finds the secrets of a run: those of --secret, and those of the configuration for
// the name that the owner gave the run.
func (f *runFlags) planSecrets(p *runPlan) error {
	blocks := p.session.Config.Secrets
	list, err := f.parseSecretFlags(p, blocks)
	if err != nil {
		return err
	}
	if len(list) > 0 && f.Net.All {
		return usage(errors.New("--secret needs a network of approved hosts, and --net without a value is the whole network: write --net=HOSTS, or leave it out"))
	}
	for _, b := range blocks {
		isAsked := slices.ContainsFunc(list, func(s *secret.Secret) bool { return s.Name == b.Name })
		if b.Subject != "" && b.Subject == p.blockName && !isAsked && !f.Net.All && !f.Net.none {
			if len(b.Files()) == 0 && len(b.Command) == 0 && p.isPassed(b.Name) {
				return usage(fmt.Errorf("--env %s: this run gets the secret %[1]s of the configuration from this variable, which whoever has written --env, such as a project, may have set: leave --env %[1]s out, or add --secret %[1]s", names.ShellWord(b.Name)))
			}
			list = append(list, &b.Secret)
		}
	}
	if err := secret.CheckAll(list); err != nil {
		return usage(err)
	}
	for _, s := range list {
		p.secrets = append(p.secrets, &commandSecret{Secret: s})
	}
	return nil
}

// withoutSecretHosts returns a preset's rules without the rules that name the host of a secret: the
// agent must reach this host through the secret, not with another credential. Rules with a wildcard
// stay.
func withoutSecretHosts(rules []network.Rule, list []*commandSecret) []network.Rule {
	return slices.DeleteFunc(slices.Clone(rules), func(r network.Rule) bool {
		return slices.ContainsFunc(list, func(s *commandSecret) bool { return r.Name == s.URL.Host })
	})
}

// readSecrets reads the credentials. The command gets the variables of the credentials with
// placeholders. No root contains the files of the credentials: see config.Config.ReservedPaths.
func (f *runFlags) readSecrets(ctx context.Context, p *runPlan) error {
	if len(p.secrets) == 0 {
		return nil
	}
	judge, env := p.judge(), []string(nil)
	if slices.ContainsFunc(p.secrets, func(s *commandSecret) bool { return !s.IsInVariable() }) {
		env = p.ownersEnviron() // each variable is judged, which takes a while
	}
	var err error
	if p.certificates, err = judge.CertificateFiles(); err != nil {
		return err
	}
	for _, s := range p.secrets {
		if s.credential, err = s.Read(ctx, judge, env); err != nil {
			return err
		}
		if from := s.credential.From(); from != "" {
			p.notes = append(p.notes, fmt.Sprintf("the secret %s is for %s, and from %s", s.Name, s.URL, names.Escape(from)))
		}
		if s.credential.IsShort() {
			p.notes = append(p.notes, fmt.Sprintf("the secret %s is so short that it is not looked for in the bodies of answers: a host that repeats it tells it to the command", s.Name))
		}
		p.session.Keep = append(p.session.Keep, config.ReservedSecretFiles(s.Secret)...)
		variable, _ := s.BaseURL()
		p.env = slices.DeleteFunc(p.env, func(e string) bool {
			name, _, _ := strings.Cut(e, "=")
			return name == variable || slices.Contains(s.Variables(), name)
		})
	}
	for _, s := range p.secrets {
		p.env = append(p.env, s.Environ(s.credential)...) // the later one counts, also against PREFIX*
	}
	return nil
}

// secretFiles returns the files of HOME with the placeholders.
func (p *runPlan) secretFiles() []secret.HomeFile {
	var list []*secret.Secret
	var credentials []secret.Credential
	for _, s := range p.secrets {
		list, credentials = append(list, s.Secret), append(credentials, s.credential)
	}
	return secret.HomeFiles(list, credentials)
}

// secretIn returns the secret whose credential a file's text holds, nil for none.
func (p *runPlan) secretIn(text string) *commandSecret {
	i := slices.IndexFunc(p.secrets, func(s *commandSecret) bool { return s.credential.InFile(text) })
	if i < 0 {
		return nil
	}
	return p.secrets[i]
}

// checkLeaks returns an error if the command would get a credential itself: in a file of HOME, in a
// variable or in a word of its command line.
func (p *runPlan) checkLeaks(box *sandbox.Options) error {
	for _, f := range p.secretFiles() {
		if s := p.secretIn(string(f.Data)); s != nil {
			return usage(fmt.Errorf("another entry of your ~/%s would give the command the credential of --secret %s: remove the entry", f.Path, s.Name))
		}
	}
	for _, s := range p.secrets {
		for _, e := range box.Env {
			if name, value, _ := strings.Cut(e, "="); s.credential.In(value) {
				return usage(fmt.Errorf("the variable %s would give the command the credential of --secret %s: leave it out of --env", names.Escape(name), s.Name))
			}
		}
		for i, arg := range box.Args {
			if s.credential.In(arg) {
				return usage(fmt.Errorf("word %d of the command holds the credential of --secret %s: let the command take it from %s, which holds a placeholder", i+1, s.Name, s.Name))
			}
		}
	}
	return nil
}

// serveSecrets makes the services of the secrets: one for each secret, under the host name of the
// secret's base URL, and one (see secret.Door) for each HOST:PORT of the secrets' URLs.
func (n *commandNet) serveSecrets(list []*commandSecret) (services []*network.Service, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	var secrets []*secret.Secret
	doors, proxies, slots := map[string]*network.Service{}, map[*network.Service][]*secret.Proxy{}, secret.NewSlots()
	for _, s := range list {
		secrets = append(secrets, s.Secret)
		s.service = &network.Service{Name: s.Inside(), Host: s.URL.Host, Port: s.URL.Port}
		proxy := secret.NewProxy(s.Secret, s.credential, secret.Options{
			Reserve: func(ctx context.Context, r secret.Request) (int64, error) {
				n.requests.add(r, true)
				return n.reg.ReserveConnection(ctx, requestRecord(s.URL, r))
			},
			Record: func(r secret.Request) error {
				n.requests.add(r, false)
				return n.reg.NoteConnection(requestRecord(s.URL, r))
			},
			Dial:  func(ctx context.Context) (net.Conn, error) { return n.gate.Dial(ctx, s.service) },
			Live:  func() bool { return n.gate.IsLive(s.service) },
			Slots: slots,
		})
		s.service.Serve = proxy.Serve
		services = append(services, s.service)
		door := doors[s.URL.Authority()]
		if door == nil {
			door = &network.Service{Name: s.URL.Host, InsidePort: s.URL.Port}
			doors[s.URL.Authority()] = door
			services = append(services, door)
		}
		door.For, proxies[door] = append(door.For, s.service), append(proxies[door], proxy)
	}
	authority, err := secret.NewAuthority(secrets)
	if err != nil {
		return nil, err
	}
	n.trust = sandbox.NewTrust(authority.PEM(), secret.AuthorityHash)
	for service, list := range proxies {
		door, err := secret.NewDoor(authority, list)
		if err != nil {
			return nil, err
		}
		service.Serve = door.Serve
	}
	return services, nil
}

// liveSecrets returns the secrets that were not revoked.
func (n *commandNet) liveSecrets() (list []*commandSecret) {
	live := n.gate.Services()
	for _, s := range n.secrets {
		if slices.Contains(live, s.service) {
			list = append(list, s)
		}
	}
	return list
}

// findSecret returns the live secret that `net list` shows as this text, or nil.
func (n *commandNet) findSecret(text string) *commandSecret {
	for _, s := range n.liveSecrets() {
		if text == s.String() || text == s.Name+"=" {
			return s
		}
	}
	return nil
}

// requestRecord returns the audit record of a request with the secret whose URL is u.
func requestRecord(u secret.URL, r secret.Request) guard.Record {
	rec := guard.Record{Time: r.Began, Op: names.OpRequest, Verdict: guard.Allowed, Read: r.Received, Written: r.Sent, Duration: r.Duration, Room: r.Room}
	rec.Facts = guard.Facts{Host: u.Host, Port: u.Port, Secret: r.Secret, Method: r.Method.Raw(), URLPath: r.Path.Raw(), Status: r.Status, SecretRule: r.Permit}
	detail := fmt.Sprintf("%s %s, at %s, secret %s", r.Method, names.QuoteShort(r.Path), r.Host, r.Secret)
	if r.Method == "" {
		detail = fmt.Sprintf("the TLS handshake, at %s, secret %s", r.Host, r.Secret)
	}
	if r.Status != 0 {
		detail += fmt.Sprintf(", status %d", r.Status)
	}
	switch {
	case r.Refused != nil:
		rec.Verdict, rec.Kind = guard.Refused, names.Permission
		detail += ": " + r.Refused.Error()
	case r.Failed != nil:
		rec.Verdict, rec.Kind = guard.Failed, names.IO
		detail += ": " + r.Failed.Error()
	}
	rec.Detail = detail
	return rec
}
