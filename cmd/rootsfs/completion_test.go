package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The shell is offered what can be meant: files and directories only where they can,
// profiles of the configuration, names of variables without their values; and no word
// that a shell has to quote.
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
		{"status", noFiles}, {"roots list", noFiles}, {"config", "check\tFind the mistakes of a configuration, and what it grants\nschema\tPrint the JSON Schema of the configuration\n" + noFiles},
		{"mount", dirs}, {"mount --root", files}, {"mount --config", files}, {"mount --for", noFiles}, {"mount --max-file", noFiles}, {"mount --name", noFiles},
		{"mount --cache", "strict\naudit\nmax\n" + noFiles}, {"run --home", dirs}, {"serve --token-file", files}, {"serve --http", noFiles},
		{"mount --profile", "review\n" + noFiles}, {"run --profile", "review\n" + noFiles}, {"serve --profile", "review\n" + noFiles},
		{"mount --config " + other + " --profile", "night\n" + noFiles}, {"config check " + other + " --profile", "night\n" + noFiles},
		{"mount --config " + dir + "/none --profile", noFiles},
		{"help consent", "approve\tAllow what a question asks for, or less\n"}, {"help roots add", noFiles}, {"help nosuch", noFiles},
		{"run --env", "ROOTSFS_TEST_TOKEN\n"}, {"wrap --env", "ROOTSFS_TEST_TOKEN\n"},
	} {
		var out bytes.Buffer
		run(append([]string{"__complete"}, append(strings.Fields(tt.args), "")...), stdio{in: strings.NewReader(""), out: &out, err: io.Discard})
		got := out.String()
		exact := strings.HasSuffix(tt.want, files) || strings.HasSuffix(tt.want, noFiles) || strings.HasSuffix(tt.want, dirs)
		if exact && got != tt.want || !strings.Contains(got, tt.want) || strings.Contains(got, "s3cret") {
			t.Errorf("%s: offered %q, want %q", tt.args, got, tt.want)
		}
	}
}

// Whichever function offers a word, none passes that a shell would have to quote, or that
// is a flag where none was begun, or any word twice; what is said of a word hides nothing.
// The last line, which the shells' scripts take for a number and evaluate, always comes.
func TestOffered(t *testing.T) {
	const all = "plain\tsays de\u2800sc\na$(id)1\tx\na;id\nit's\na b\n~root\n=ls\n--yes\tx\na,b\n{a,b}\n\u202ea\nmüller@x:/y+z=1\nplain\tagain\n:4\tx\n:4\n"
	for typed, want := range map[string]string{
		"":   "plain\tsays de\\u{2800}sc\nmüller@x:/y+z=1\n:4\tx\n:4\n",
		"--": "plain\tsays de\\u{2800}sc\n--yes\tx\nmüller@x:/y+z=1\n:4\tx\n:4\n",
	} {
		var out bytes.Buffer
		o := offered{newApp([]string{"__complete", "revoke", typed}, stdio{out: &out}), map[string]bool{}}
		if n, err := io.WriteString(o, all); n != len(all) || err != nil || out.String() != want {
			t.Errorf("%q: offered %q (%d, %v), want %q", typed, out.String(), n, err, want)
		}
	}
}
