package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
)

// Completion offers files and directories only where an argument may be one, and offers the
// profiles of the configuration. It offers no value of a variable, and no profile whose name a
// shell has to quote.
func TestCompletion(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("ROOTSFS_TEST_TOKEN", "s3cret")
	other := filepath.Join(dir, "other.toml")
	for file, profile := range map[string]string{filepath.Join(dir, "rootsfs", "config.toml"): "review", other: "night"} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("[profile."+profile+"]\nroots = [\"a=/srv/a\"]\n[profile.'a$(id)']\nroots = []\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const (
		files   = ":0\n"
		noFiles = ":4\n"
		dirs    = ":16\n"
	)
	for _, tt := range []struct{ args, want string }{
		{"status", noFiles}, {"roots list", noFiles}, {"config", "ceiling\tShow what this machine allows at most\ncheck\tFind the mistakes of a configuration, and what it grants\nschema\tPrint the JSON Schema of the configuration\n" + noFiles},
		{"mount", dirs}, {"mount --root", files}, {"mount --config", files}, {"mount --for", noFiles}, {"mount --max-file", noFiles}, {"mount --name", noFiles},
		{"mount --cache", "strict\naudit\nmax\n" + noFiles}, {"run --home", dirs}, {"serve --token-file", files}, {"serve --http", noFiles},
		{"mount --profile", "review\n" + noFiles}, {"run --profile", "review\n" + noFiles}, {"serve --profile", "review\n" + noFiles},
		{"mount --config " + other + " --profile", "night\n" + noFiles}, {"config check " + other + " --profile", "night\n" + noFiles},
		{"mount --config " + dir + "/none --profile", noFiles},
		{"help consent", "approve\tAllow what a question asks for, or less\n"}, {"help roots add", noFiles}, {"help nosuch", noFiles},
		{"run --env", noFiles}, {"wrap --env", noFiles}, {"wrap x --server", noFiles},
	} {
		var out bytes.Buffer
		run(append([]string{"__complete"}, append(strings.Fields(tt.args), "")...), cli.Stdio{In: strings.NewReader(""), Out: &out, Err: io.Discard})
		got := out.String()
		exact := strings.HasSuffix(tt.want, files) || strings.HasSuffix(tt.want, noFiles) || strings.HasSuffix(tt.want, dirs)
		if exact && got != tt.want || !strings.Contains(got, tt.want) || strings.Contains(got, "s3cret") {
			t.Errorf("%s: offered %q, want %q", tt.args, got, tt.want)
		}
	}
}
