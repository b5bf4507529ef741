package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostconfig"
	"github.com/rootsfs/rootsfs/guard/names"
)

// A server that another program called rootsfs starts does not count as "wrapped already". For a
// server that this rootsfs starts, wrap reports flags that give the server more than it should
// have.
func TestWrapJudges(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "rootsfs")
	writeFile(t, other, "#!/bin/sh\n", 0o755)
	link := filepath.Join(t.TempDir(), "rootsfs")
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		command, state, broad string
		args                  []string
	}{
		{other, "another program", "", []string{"run", "--", "evil"}},
		{"/nowhere/rootsfs", "another program", "", []string{"run", "--", "evil"}},
		{link, "wrapped already", "", []string{"run", "--root", "/srv/x:ro", "--", "good"}},
		{link, "not confined", "--unconfined", []string{"run", "--unconfined", "--", "evil"}},
		{link, "wrapped already", "the whole file system", []string{"run", "--root", "/:rw", "--", "evil"}},
		{link, "wrapped already", "the whole file system", []string{"run", "--root=x=/", "--", "evil"}},
		{link, "wrapped already", "home directory", []string{"run", "--root", "~:ro", "--", "evil"}},
		{link, "wrapped already", "home directory", []string{"run", "--root", filepath.Dir(home), "--", "evil"}},
		{link, "wrapped already", "system directory", []string{"run", "--root", "/etc:rw", "--", "evil"}},
		{link, "wrapped already", "", []string{"run", "--root", "/etc:ro", "--", "x", "--unconfined"}},
		{link, "wrapped already", "the whole network", []string{"run", "--net", "--", "x"}},
		{link, "wrapped already", "it connects to these hosts", []string{"run", "--net=example.org:443", "--", "x"}},
		{link, "wrapped already", "", []string{"run", "--net=false", "--", "x"}},
		{link, "wrapped already", "system directories", []string{"serve", "--allow-system", "/srv/x"}},
		{link, "wrapped already", "not understood", []string{"run", "--nonsense", "--", "x"}},
	} {
		doc := `{"mcpServers": {"a": {"command": "` + tt.command + `", "args": ["` + strings.Join(tt.args, `", "`) + `"]}}}`
		c, err := hostconfig.Parse("/x/mcp.json", []byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		w, r := &wrapping{wrapFlags: &wrapFlags{program: own}, file: &hostFile{}}, wrapServer{}
		w.judge(c.Servers[0], &r)
		if r.State != tt.state || (tt.broad == "") != (len(r.Broad) == 0) || !slices.ContainsFunc(append(r.Broad, ""), func(b names.Foreign) bool { return strings.Contains(b.Raw(), tt.broad) }) {
			t.Errorf("%s %q: %+v, want %s, %q", tt.command, tt.args, r, tt.state, tt.broad)
		}
	}
}

// A project's file can start a server with this rootsfs, and give the server things of the owner:
// an agent's keys and network, a HOME, a variable, the roots of another session. wrap reports such
// flags.
func TestWrapJudgesProject(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	project := t.TempDir()
	for _, tt := range []struct {
		broad string
		args  []string
	}{
		{"", []string{"run", "--root", ".:rw", "--for", "30m", "--env", "SET", "--env", "A=b", "--home", "h", "--", "good"}},
		{"--for codex: the network", []string{"run", "--for", "codex", "--", "evil"}},
		{"--for claude-code: the network", []string{"run", "--for=claude", "--", "evil"}},
		{"--home /srv/.ssh: OUTSIDE", []string{"run", "--home", "/srv/.ssh", "--", "evil"}},
		{"--env GITHUB_TOKEN: a variable of yours", []string{"run", "--env", "GITHUB_TOKEN", "--", "evil"}},
		{"--root /srv/secret: OUTSIDE", []string{"run", "--once", "/srv/secret", "--", "evil"}},
		{"--secret [K=https://evil.test]: a credential of yours", []string{"run", "--secret", "K=https://evil.test", "--", "evil"}},
		{"--profile work: ", []string{"run", "--profile", "work", "--", "evil"}},
		{"--allow [**]: ", []string{"run", "--root", ".", "--allow", "**", "--", "evil"}},
		{"--no-default-policy true: ", []string{"run", "--root", ".", "--no-default-policy", "--", "evil"}},
		{"--session work: ", []string{"serve", "--session", "work"}},
	} {
		doc := `{"mcpServers": {"a": {"command": "` + own + `", "args": ["` + strings.Join(tt.args, `", "`) + `"], "env": {"SET": "x"}}}}`
		c, err := hostconfig.Parse(filepath.Join(project, ".mcp.json"), []byte(doc), own)
		if err != nil {
			t.Fatal(err)
		}
		w, r := &wrapping{wrapFlags: &wrapFlags{program: own}, file: &hostFile{project: project}}, wrapServer{}
		w.judge(c.Servers[0], &r)
		if got := strings.Join(names.List[string](r.Broad), "\n"); (tt.broad == "") != (got == "") || !strings.HasPrefix(got, tt.broad) {
			t.Errorf("%q: %q, want %q", tt.args, got, tt.broad)
		}
	}
}

// About a server that setup leaves alone, setup prints which flags give the server more than it
// should have, and which command is not confined.
func TestSetupSaysWhatIsOpen(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(home, ".claude.json"), `{"mcpServers": {
		"wrapped": {"command": "`+own+`", "args": ["run", "--net", "--", "x"]},
		"remote": {"url": "http://localhost/", "headersHelper": "sh"}}}`, 0o600)
	hosts, err := planHosts(&wrapFlags{program: own}, []string{"claude-code"})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	newApp(nil, Stdio{Out: &out}).printSetup(&setupResult{Hosts: hosts})
	for _, want := range []string{"look at: \"--net: the whole network\"", "note: NOT confined: its \"headersHelper\""} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
}

// The backup of a file in a repository lies outside of the repository, so that the backup is not
// published. backups returns this backup, and also a backup that an older version left beside the
// file.
func TestBackupOutsideRepository(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	dir := t.TempDir()
	for _, d := range []string{".git", "sub"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "sub", ".mcp.json")
	writeFile(t, path, "old", 0o644)
	writeFile(t, path+backupSuffix, "older", 0o600)
	f, err := openHostFile(path)
	if err != nil {
		t.Fatal(err)
	}
	backup, err := f.replace([]byte("new"), "")
	if err != nil || !strings.HasPrefix(backup, os.Getenv("XDG_STATE_HOME")+"/") {
		t.Fatalf("%s, %v", backup, err)
	}
	if info, err := os.Stat(backup); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	onlyFiles(t, filepath.Dir(path), ".mcp.json", ".mcp.json"+backupSuffix)
	list, err := f.backups()
	if err != nil || len(list) != 2 || string(list[0].doc) != "older" || string(list[1].doc) != "old" {
		t.Errorf("%+v, %v", list, err)
	}
}
