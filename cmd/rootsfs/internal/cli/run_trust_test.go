package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Blocks of the configuration apply to the name of a run only if the owner gave the name.
func TestGivenName(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))
	for _, d := range []string{"root", "rw", "kept", "early", "own"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{"agent", "agent.py", "codex"} {
			if err := os.WriteFile(filepath.Join(dir, d, f), nil, 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	for link, to := range map[string]string{"own/planted": "early/agent", "own/link": "own/agent", "early/agent-link": "own/agent"} {
		if err := os.Symlink(filepath.Join(dir, to), filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	d, err := writabledirs.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.NoteWritable(filepath.Join(dir, "early")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flags *runFlags
		args  []string
		path  string
		want  string
	}{
		{&runFlags{}, []string{dir + "/own/agent"}, "", "agent"},
		{&runFlags{}, []string{dir + "/own/link"}, "", "link"},
		{&runFlags{}, []string{"python3", dir + "/own/agent.py"}, "", "agent"},
		{&runFlags{}, []string{"agent"}, dir + "/own", "agent"},
		// An option names the program that the interpreter runs. The last word is an argument of
		// that program.
		{&runFlags{}, []string{"python3", "-c", "import evil", dir + "/own/agent.py"}, "", ""},
		{&runFlags{}, []string{"node", "--import=./evil.js", dir + "/own/agent"}, "", ""},
		{&runFlags{}, []string{"sh", "-c", ". ./evil", dir + "/own/agent"}, "", ""},
		{&runFlags{}, []string{"env", "-S", "python3 evil.py", dir + "/own/agent"}, "", ""},
		{&runFlags{}, []string{dir + "/root/agent"}, "", ""},
		{&runFlags{}, []string{dir + "/rw/agent"}, "", ""},
		{&runFlags{}, []string{dir + "/kept/agent"}, "", ""},
		{&runFlags{}, []string{dir + "/early/agent"}, "", ""},
		{&runFlags{}, []string{dir + "/early/agent-link"}, "", ""},
		{&runFlags{}, []string{dir + "/own/planted"}, "", ""},
		{&runFlags{}, []string{"python3", dir + "/root/agent.py"}, "", ""},
		{&runFlags{}, []string{"python3", "agent.py"}, "", ""},
		{&runFlags{}, []string{"./agent"}, "", ""},
		{&runFlags{}, []string{"agent"}, dir + "/root", ""},
		{&runFlags{}, []string{"agent"}, dir + "/early", ""},
		{&runFlags{}, []string{"npx", "agent"}, dir + "/own", ""},
		{&runFlags{}, []string{"npm", "run", "agent"}, dir + "/own", ""},
		{&runFlags{}, []string{dir + "/own/none"}, "", ""},
		{&runFlags{Agent: "codex"}, []string{dir + "/root/codex"}, "", "codex"},
		{&runFlags{Agent: "codex"}, []string{dir + "/root/agent"}, "", ""},
	} {
		t.Setenv("PATH", c.path)
		p := &runPlan{agent: c.flags.Agent, home: filepath.Join(dir, "kept")}
		p.box.Args, p.session.Config = c.args, &config.Config{}
		p.session.Roots = []guard.Grant{
			{Dir: names.Foreign(filepath.Join(dir, "root")), Policy: guard.Policy{Rights: guard.ReadOnly}},
			{Dir: names.Foreign(filepath.Join(dir, "rw")), Policy: guard.Policy{Rights: guard.ReadWrite}},
		}
		if got := p.givenName(); got != c.want {
			t.Errorf("%q with PATH %q: %q, want %q", c.args, c.path, got, c.want)
		}
		if p.session.Name = "mine"; p.givenName() != "mine" {
			t.Errorf("%q: --name is not the name", c.args)
		}
	}
}
