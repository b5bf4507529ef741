package writabledirs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard/rules"
)

// newTestJudge returns a Judge and makes four directories: root is about to be writable, early was
// writable once, own and rootless never were.
func newTestJudge(t *testing.T) (j *Judge, dir string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))
	t.Setenv("HOME", dir)
	for _, d := range []string{"root", "early", "own", "rootless"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, d, "tool"), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"own/to-own": "own/tool", "own/to-root": "root/tool", "own/to-early": "early/tool",
		"root/to-own": "own/tool", "early/to-own": "own/tool", "early/dir": "own", "to-root": "root",
	} {
		if err := os.Symlink(filepath.Join(dir, to), filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, first := range map[string]string{"own/by-line": dir + "/early/tool", "own/by-env": "/usr/bin/env early-tool",
		"own/by-script": "/bin/sh " + dir + "/early/tool", "own/by-option": "/usr/bin/perl -I" + dir + "/early", "own/by-split": "/usr/bin/env -S perl -I" + dir + "/early",
		"own/by-own": "/usr/bin/env -S perl -I" + dir + "/own"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!"+first+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "early", "early-tool"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := open(t).NoteWritable(filepath.Join(dir, "early")); err != nil {
		t.Fatal(err)
	}
	return NewJudge(filepath.Join(dir, "to-root")), dir
}

// isRefused reports whether an error is a Judge's refusal of a file or of a link.
func isRefused(err error) bool {
	return errors.As(err, new(*Error)) || errors.As(err, new(*rules.LinkError))
}

// File refuses a path in a directory that programs can write. It also refuses a path that passes a
// link in such a directory, or a link that leads into one. ReadFile reads no file that File
// refuses.
func TestFile(t *testing.T) {
	j, dir := newTestJudge(t)
	for path, refused := range map[string]bool{
		"own/tool": false, "own/to-own": false, "own/none": false, "rootless/tool": false, "own": false,
		"root/tool": true, "early/tool": true, "early/none": true, "root": true, "to-root/tool": true,
		"own/to-root": true, "own/to-early": true, "root/to-own": true, "early/to-own": true, "early/dir/tool": true,
		"own/../early/tool": true,
	} {
		if err := j.File(filepath.Join(dir, path)); isRefused(err) != refused || err != nil && !refused {
			t.Errorf("%s: %v, want refused: %v", path, err, refused)
		}
	}
	if text, err := j.ReadFile(filepath.Join(dir, "early/tool")); !isRefused(err) || text != nil {
		t.Errorf("ReadFile: %q, %v", text, err)
	}
}

// Program refuses a program if confined programs can write it, or a file or directory that its
// first line names. It also refuses a relative path, and a program that it finds in a relative
// directory of PATH.
func TestProgram(t *testing.T) {
	j, dir := newTestJudge(t)
	t.Chdir(filepath.Join(dir, "own"))
	path := os.Getenv("PATH")
	for _, c := range []struct {
		name, first string // first directories of PATH
		want        string // of the error
	}{
		{dir + "/own/tool", "", ""},
		{"tool", dir + "/own", ""},
		{"sh", "", ""},
		{dir + "/early/tool", "", "programs can write"},
		{dir + "/own/by-line", "", "programs can write"},
		{dir + "/own/by-env", dir + "/early", "programs can write"},
		{dir + "/own/by-script", "", "programs can write"},
		{dir + "/own/by-option", "", "programs can write"},
		{dir + "/own/by-split", "", "programs can write"},
		{dir + "/own/by-own", "", ""},
		{"tool", dir + "/root", "programs can write"},
		{"tool", dir + "/early:" + dir + "/own", "programs can write"},
		{"./tool", "", "is a relative path: write it in full"},
		{"own/tool", "", "is a relative path: write it in full"},
		{"tool", ".", "by a relative directory of PATH"},
		{"no-such-program", "", "not found"},
	} {
		t.Setenv("PATH", c.first+":"+path)
		if c.first == "" {
			t.Setenv("PATH", path)
		}
		got, err := j.Program(c.name)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || err == nil && !filepath.IsAbs(got) {
			t.Errorf("%s with PATH %s: %q, %v, want %q", c.name, c.first, got, err, c.want)
		}
	}
}

// Command refuses an argument that holds the path of a file that programs can write. The argument
// can be the path itself, an option or a script for a shell.
func TestCommand(t *testing.T) {
	_, dir := newTestJudge(t)
	if err := os.Mkdir(filepath.Join(dir, "a root, mine"), 0o755); err != nil {
		t.Fatal(err)
	}
	j := NewJudge(filepath.Join(dir, "root"), filepath.Join(dir, "a root, mine"))
	t.Setenv("BESIDE", dir)
	for _, c := range []struct {
		arg     string
		refused bool
	}{
		{dir + "/own/tool", false}, {"tool", false}, {"github/token", false}, {"op://vault/item", false}, {"/no/such/place", false}, {"/dev/null/x", false},
		{dir + "/early/tool", true}, {"--file=" + dir + "/root/tool", true}, {"cat " + dir + "/early/tool | head -1", true},
		// a root whose own name has characters that separate words
		{dir + "/a root, mine/tool", true}, {"--file=" + dir + "/a root, mine/tool", true}, {"exec '" + dir + "/a root, mine/tool'", true},
		{"exec " + dir + `/a\ root\,\ mine/tool`, true}, {`sh "` + dir + `"/early/tool`, true},
		{`exec "$HOME"/early/tool`, true}, {`exec "${HOME}/early/tool"`, true}, {`"$HOME/own"/tool`, false},
		// behind the letters of an option, and behind characters that curl and others put
		// before a file
		{"-I" + dir + "/early", true}, {"-I" + dir + "/own", false}, {"-Wl,-rpath," + dir + "/early", true}, {"@" + dir + "/root/x", true},
		{"-d@" + dir + "/root/x", true}, {"--data=@" + dir + "/root/x", true}, {"owner" + dir + "/root/x", false},
		// after a shell has expanded a variable
		{"exec $BESIDE/early/tool", true}, {`exec "${BESIDE}/early/tool"`, true}, {"${BESIDE:-x}/early/tool", true}, {"${BESIDE:-x}/own/tool", false},
		{"-I$BESIDE/early", true}, {"$BESIDE/own/../early/tool", true}, {"$UNSET/own/tool", false},
		{"PATH=/bin:" + dir + "/root/ x", true}, {`"` + dir + `/early/tool"`, true}, {"~/early/tool", true}, {"exec $HOME/early/tool", true}, {"${HOME}/early", true},
	} {
		_, err := j.Command([]string{"sh", "-c", c.arg})
		if isRefused(err) != c.refused || err != nil && !c.refused {
			t.Errorf("%s: %v, want refused: %v", c.arg, err, c.refused)
		}
	}
}

// Environ removes relative directories, and directories that confined programs can write, from
// PATH. It leaves out the variables that drop names. It also leaves out every variable but PATH and
// HOME with a path that confined programs can write.
func TestEnviron(t *testing.T) {
	j, dir := newTestJudge(t)
	t.Setenv("PATH", strings.Join([]string{dir + "/root", ".", dir + "/own", "", dir + "/early/dir", dir + "/to-root", "/usr/bin"}, ":"))
	t.Setenv("DROPPED", "x")
	t.Setenv("LEFT", "y")
	t.Setenv("PYTHONPATH", dir+"/own:"+dir+"/early")
	t.Setenv("LD_PRELOAD", dir+"/to-root/lib.so")
	t.Setenv("NODE_OPTIONS", "--require="+dir+"/root/x.js")
	t.Setenv("NODE_PATH", dir+"/own")
	t.Setenv("PWD", dir+"/root")
	t.Setenv("PERL5OPT", "-I"+dir+"/early -MEvil")
	t.Setenv("BESIDE", dir)
	t.Setenv("BASH_ENV", "${BESIDE:-x}/early/env")
	env := j.Environ(func(name string) bool { return name == "DROPPED" })
	for text, want := range map[string]bool{"PATH=" + dir + "/own:/usr/bin": true, "DROPPED=x": false, "LEFT=y": true,
		"PYTHONPATH=" + dir + "/own:" + dir + "/early": false, "LD_PRELOAD=" + dir + "/to-root/lib.so": false,
		"NODE_OPTIONS=--require=" + dir + "/root/x.js": false, "NODE_PATH=" + dir + "/own": true, "PWD=" + dir + "/root": false,
		"PERL5OPT=-I" + dir + "/early -MEvil": false, "BASH_ENV=${BESIDE:-x}/early/env": false, "BESIDE=" + dir: true} {
		if slices.Contains(env, text) != want {
			t.Errorf("%s is there: %v\n%q", text, !want, env)
		}
	}
}

// If the list of the directories that were writable cannot be read, File refuses even a file that
// lies in none of them.
func TestUnknown(t *testing.T) {
	j, dir := newTestJudge(t)
	list := filepath.Join(dir, "state", "rootsfs", "writable")
	if err := errors.Join(os.Remove(list), os.Mkdir(list, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := j.File(filepath.Join(dir, "own/tool")); !isRefused(err) || !strings.Contains(err.Error(), "is not known") {
		t.Error(err)
	}
}
