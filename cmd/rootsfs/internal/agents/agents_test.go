package agents

import (
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/secret"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Every data file is read, and its values are valid.
func TestAll(t *testing.T) {
	want := []string{"aider", "claude-code", "codex", "gemini", "goose", "opencode"}
	if got := Names(); !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	variable := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\*|=.*)?$`)
	host := regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+$`)
	for _, name := range want {
		a, err := read(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if a.Title == "" || a.Command == "" || !strings.HasPrefix(a.Docs, "https://") || len(a.Hosts) == 0 || len(a.Home) == 0 {
			t.Errorf("%s: a title, command, host or home file is missing, or docs is no https address: %+v", name, a)
		}
		if _, err := rules.ParseMode(a.Mode); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, v := range slices.Concat(a.Env, a.Set) {
			if !variable.MatchString(v) {
				t.Errorf("%s: variable %q", name, v)
			}
		}
		for _, h := range a.Hosts {
			if !host.MatchString(h) {
				t.Errorf("%s: host %q", name, h)
			}
		}
		for _, file := range a.Home {
			if !filepath.IsLocal(file) || filepath.Clean(file) != file {
				t.Errorf("%s: home file %q", name, file)
			}
		}
		p := guard.Patterns{Hide: guard.Texts(a.Hide...), Protect: guard.Texts(a.Protect...)}
		if err := p.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range append(want, "") {
		a, _ := Find(name)
		for _, s := range slices.Concat(a.Secrets, secrets) {
			url, err := secret.ParseURL(s.URL)
			err = errors.Join(err, secret.CheckName(s.Name), secret.CheckName(s.Variable))
			if s.Header != "" {
				err = errors.Join(err, secret.CheckHeader(s.Header))
			}
			if err != nil || url.String() != s.URL {
				t.Errorf("%s: secret %+v: %s, %v", name, s, url, err)
			}
		}
	}
	if s, ok := FindSecret("goose", "OPENAI_API_KEY"); !ok || s.Variable != "OPENAI_HOST" {
		t.Errorf("goose's secret is %+v", s)
	}
	if _, ok := Find("nobody"); ok {
		t.Error("Find finds an agent with the name nobody")
	}
}
