package hostconfig

import (
	"slices"
	"strings"
	"testing"
)

// A program that fetches packages is found behind launchers. The name of such a program among
// other arguments does not count.
func TestFetcherOf(t *testing.T) {
	for line, want := range map[string]string{
		"npx -y x": "npx", "/usr/bin/npx x": "npx", "server npx": "", "node npx": "", "": "",
		"env A=1 -u B npx x": "npx", "/usr/bin/env -i -C /tmp uvx x": "uvx", "env -S|npx -y x": "npx", "env --split-string=A=1|npx": "", "env A=1 server": "", "env": "",
		"bash -lc|npx -y x": "npx", "sh -c|exec npx x": "npx", "bash -l -c|cd /x && . ~/.nvm/nvm.sh; A=1 exec npx x": "npx", "zsh -ic|if true; then uvx x; fi": "uvx",
		"bash -c|echo npx": "", "bash -lc|'npx' x": "npx", "bash script.sh npx": "", "bash -c -l|npx x": "npx", "fish -c|nvm use 20; npx x": "npx", "sh -c|echo 'a; npx'": "", "bash -lc|exec mise exec -- npx x": "npx",
		"mise exec -- npx x": "npx", "mise exec node@20 -- npx": "npx", "mise x node@20 npx": "npx", "mise install npx": "", "/home/u/.local/bin/mise -q exec -- server": "",
		"fnm exec --using=20 npx": "npx", "fnm exec --using 20 npx": "npx", "volta run --node 20 npx": "npx", "nvm exec 20 npx": "npx", "asdf exec npx": "npx", "proto run npx": "npx", "pyenv exec pipx run x": "pipx",
		"corepack pnpm dlx x": "pnpm", "corepack enable": "", "npm exec x": "npm", "nohup npx": "npx", "timeout 30 npx": "npx", "timeout -k 5 30 uvx x": "uvx", "nice -n 5 npx": "npx", "sudo -u x npx": "npx", "cmd /c npx": "npx", "cmd npx": "",
		"direnv exec /x npx": "npx", "op run --env-file x -- npx y": "npx", "conda run -n e uvx x": "uvx", "dotenv -e .env -- npx x": "npx", "stdbuf -oL npx": "npx",
		"nix run nixpkgs#x": "nix", "nix shell nixpkgs#nodejs -c npx x": "nix", "env nix-shell -p nodejs --run x": "nix-shell", "docker run x": "", "uv run x": "uv",
		"env env env env env env env env env env npx": "",
	} {
		// A bar begins an argument with spaces, up to the next bar.
		before, after, _ := strings.Cut(line, "|")
		words := strings.Fields(before)
		if after != "" {
			words = append(words, strings.Split(after, "|")...)
		}
		if got := FetcherOf(words); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// inValue finds the paths inside of a value. A value that is a path as a whole has none inside of it.
func TestInValue(t *testing.T) {
	for text, want := range map[string]string{
		"/a/b": "", "word": "", "a=b": "", "https://host/path": "", "postgres://u:p@host/db": "", "redis://localhost:6379": "", "--x": "", "a:b": "", "http://localhost:80/x": "",
		"file:///a%20b": "/a b", "file:/a": "/a", "file://localhost/a": "/a", "sqlite:///a/b.db": "/a/b.db", "sqlite:////a/b.db?mode=ro": "/a/b.db", "jdbc:sqlite:/a.db": "/a.db", "sqlite:~/a.db": "~/a.db", "duckdb:/a": "/a", "sqlite://./a.db": "./a.db",
		"docs=/a": "/a", "db=sqlite:///a": "/a", "docs=a": "", "@/a": "/a", "/a,/b": "/a /b", "a=/a;b=/b": "/a /b", "/a:/b:c": "/a /b", "/a:ro": "/a", "~/a:~/b": "~/a ~/b",
		`["/a", "~/b"]`: "/a ~/b", `{"dir": "/a"}`: "/a", "${HOME}/a,/b": "${HOME}/a /b", "{env:HOME}/a": "", "/a, x": "/a", "${HOME}/a": "", "/a\n/b": "/a /b",
	} {
		var got []string
		for _, p := range inValue(text) {
			got = append(got, p.path)
		}
		if !slices.Equal(got, strings.Fields(want)) && strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %s", text, got, want)
		}
	}
}
