package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/network"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/secret"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// secretsOf plans the secrets of a run.
func secretsOf(t *testing.T, f *runFlags, blocks ...config.Secret) (*runPlan, error) {
	t.Helper()
	p := &runPlan{env: f.env, blockName: "my-agent"}
	p.session.Config = &config.Config{Secrets: blocks}
	return p, f.planSecrets(p)
}

func secretBlock(t *testing.T, name, url, subject string) config.Secret {
	t.Helper()
	u, err := secret.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	return config.Secret{Secret: secret.Secret{Name: name, URL: u, Header: "x-own"}, Subject: subject}
}

// The flag decides about a secret first, then the configuration, then a preset. The
// configuration gives a run only the secrets that are meant for the run.
func TestPlanSecrets(t *testing.T) {
	t.Setenv("OPENAI_BASE_URL", "")
	for _, c := range []struct {
		agent string
		flags []string
		want  string
	}{
		{"", nil, "MINE=https://mine.test"},
		{"", []string{"MINE=https://other.test/v1"}, "MINE=https://other.test/v1 x-own"},
		{"", []string{"FORGE_TOKEN"}, "FORGE_TOKEN=https://forge.test x-own"},
		{"", []string{"ANTHROPIC_API_KEY"}, "ANTHROPIC_API_KEY=https://api.anthropic.com x-api-key ANTHROPIC_BASE_URL"},
		{"goose", []string{"OPENAI_API_KEY"}, "OPENAI_API_KEY=https://api.openai.com  OPENAI_HOST"},
		{"", []string{"OPENAI_API_KEY=https://gateway.test"}, "OPENAI_API_KEY=https://gateway.test  OPENAI_BASE_URL"},
	} {
		f := &runFlags{secrets: c.flags, Agent: c.agent}
		p, err := secretsOf(t, f, secretBlock(t, "MINE", "https://mine.test", "my-agent"), secretBlock(t, "FORGE_TOKEN", "https://forge.test", ""), secretBlock(t, "THEIRS", "https://theirs.test", "editor"))
		if err != nil || len(p.secrets) == 0 {
			t.Errorf("%q: %v", c.flags, err)
			continue
		}
		s := p.secrets[0]
		if got := s.String() + " " + s.Header + " " + s.Variable; !strings.HasPrefix(got, c.want) {
			t.Errorf("%q: %q, want %q", c.flags, got, c.want)
		}
		if last := p.secrets[len(p.secrets)-1]; last.Name != "MINE" || len(p.secrets) > 2 {
			t.Errorf("%q: %q", c.flags, textsOf(p.secrets))
		}
	}
	if p, err := secretsOf(t, &runFlags{Net: netValue{none: true}}, secretBlock(t, "MINE", "https://mine.test", "my-agent")); err != nil || len(p.secrets) != 0 {
		t.Errorf("--net=false: %q, %v", textsOf(p.secrets), err)
	}
}

// A project can make `rootsfs wrap` write --env, by setting variables in its own file. So a secret
// of the configuration does not come from a variable that --env passes, unless --secret names the
// secret.
func TestPassedVariableIsNoSecret(t *testing.T) {
	for _, passed := range []string{"MINE", "MI*"} {
		f, p := &runFlags{}, &runPlan{blockName: "my-agent", passed: []string{passed}}
		p.session.Config = &config.Config{Secrets: []config.Secret{secretBlock(t, "MINE", "https://mine.test", "my-agent")}}
		if err := f.planSecrets(p); err == nil || !strings.Contains(err.Error(), "leave --env MINE out") {
			t.Errorf("--env %s: %v, %q", passed, err, textsOf(p.secrets))
		}
		f.secrets = []string{"MINE"}
		if err := f.planSecrets(p); err != nil || len(p.secrets) != 1 {
			t.Errorf("--secret MINE --env %s: %v, %q", passed, err, textsOf(p.secrets))
		}
	}
}

func TestPlanSecretsRefuses(t *testing.T) {
	t.Setenv("OPENAI_BASE_URL", "https://evil.test/v1")
	for want, f := range map[string]*runFlags{
		"it is not said what it is for": {secrets: []string{"FOO"}},
		"does not name a variable":      {secrets: []string{"a-b=https://a.test"}},
		"write https://":                {secrets: []string{"FOO=http://a.test"}},
		"would both have":               {secrets: []string{"FOO=https://a.test", "FOO=https://b.test"}},
		"--net without a value":         {secrets: []string{"FOO=https://a.test"}, Net: netValue{All: true}},
		`OPENAI_BASE_URL is set to "https://evil.test/v1", and`: {secrets: []string{"OPENAI_API_KEY"}},
	} {
		if _, err := secretsOf(t, f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", f.secrets, err, want)
		}
	}
}

// Whatever --env says, the command gets a placeholder and never the credential. No root may
// contain the file of a credential.
func TestReadSecrets(t *testing.T) {
	const value = "v4lue-of-foo"
	t.Setenv("FOO", value)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("another-credential\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &runFlags{secrets: []string{"FOO=https://a.test"}, env: []string{"FOO", "F*", "FOO=x", "FOO_BASE_URL=y", "BAR=z", "TERM"}}
	p, err := secretsOf(t, f, config.Secret{Secret: secret.Secret{Name: "BAR", File: file}, Subject: "my-agent"})
	if err == nil {
		err = f.readSecrets(context.Background(), p)
	}
	want := []string{"F*", "TERM", "FOO=rootsfs-placeholder-", "FOO_BASE_URL=http://foo.secret.internal", "BAR=*******-**********", "BAR_BASE_URL=http://bar.secret.internal"}
	for i, e := range p.env {
		if name, text, ok := strings.Cut(e, "=rootsfs-placeholder-"); ok && len(text) > 20 { // the rest is random
			p.env[i] = name + "=rootsfs-placeholder-"
		}
		if text, ok := strings.CutPrefix(e, "BAR="); ok && text != "another-credential" { // it has the same shape
			p.env[i] = "BAR=" + regexp.MustCompile("[a-z]").ReplaceAllString(text, "*")
		}
	}
	if err != nil || !slices.Equal(p.env, want) {
		t.Fatalf("%q, %v", p.env, err)
	}
	if keep := p.session.Config.ReservedPaths(); len(keep) < 2 || keep[len(keep)-1].Path != file {
		t.Errorf("kept from roots: %+v", keep)
	}
	for want, box := range map[string]sandbox.Options{
		"":                               {Env: p.env, Args: []string{"curl", "x"}},
		"the variable OTHER":             {Env: []string{"OTHER=Bearer " + value}},
		"word 2 of the command":          {Args: []string{"curl", "-Hx:another-credential"}},
		"the credential of --secret FOO": {Env: []string{"OTHER=" + value}},
	} {
		err := p.checkLeaks(&box)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), value)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A preset's rules that name a secret's host are left out, with and without a port. A rule with a
// wildcard stays.
func TestWithoutSecretHosts(t *testing.T) {
	rules, err := network.ParseRules("api.a.test,api.a.test:443,b.test,*.a.test")
	if err != nil {
		t.Fatal(err)
	}
	got := textsOf(withoutSecretHosts(rules, []*commandSecret{{Secret: &secret.Secret{URL: secret.URL{Host: "api.a.test"}}}}))
	if !slices.Equal(got, []string{"b.test", "*.a.test"}) {
		t.Errorf("left are %q", got)
	}
}

// A host with a name like that of a secret is refused, and the owner is not asked.
func TestNoQuestionAboutSecrets(t *testing.T) {
	if err := new(commandNet).denied("other-token.secret.internal", 80); !errors.Is(err, network.ErrNoRule) {
		t.Errorf("%v", err)
	}
}
