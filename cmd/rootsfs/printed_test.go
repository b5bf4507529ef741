package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

const punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

// pastedWords returns arguments that a printed command may contain:
//   - words with a special meaning for a shell
//   - each ASCII punctuation character: alone, doubled, and before and after a letter
//   - pairs of such characters that begin with !, ", $, ', \ or `, between letters
func pastedWords() []string {
	list := []string{
		punctuation, "a$(id>PWNED)1", "a`id>PWNED`", "';id>PWNED;'", `\';id>PWNED;\'`, "a\nid>PWNED\nb", "!!", "a!b", "!-1:p", "'!!'", `'\''!!`,
		"=ls", "~root", "a b", "a  b", " ", "müller", "日本", "a\u202e\x1b]0;x\ab", "a\xff", `\`, `\\`, `\n`, "{a,b}", "**", "$HOME", "%self", "#x", "-n", "a\u2800%s",
	}
	for _, a := range punctuation {
		list = append(list, string(a), "x"+string(a), string(a)+"x", string(a)+string(a))
	}
	for _, a := range `!"$'\` + "`" {
		for _, b := range punctuation {
			list = append(list, "x"+string(a)+string(b)+"y")
		}
	}
	return list
}

// A printed command can be pasted into sh, bash, zsh and fish, at their prompts and in scripts:
// the program gets the intended words, and nothing else runs.
func TestPastedCommandsAreTheirWords(t *testing.T) {
	dir := t.TempDir()
	argv := filepath.Join(dir, "argv")
	stub := "#!/bin/sh\nfor a; do printf '%s\\0' \"$a\"; done >>\"" + argv + "\"\n"
	if err := os.WriteFile(filepath.Join(dir, "rootsfs"), []byte(stub), 0o755); err != nil {
		t.Fatal(err)
	}
	work, runtime := filepath.Join(dir, "work"), filepath.Join(dir, "run") // fish refuses a runtime directory that others can read
	for _, d := range []string{work, runtime} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	env := append(os.Environ(), "PATH="+dir+":/usr/bin:/bin", "HOME="+dir, "XDG_RUNTIME_DIR="+runtime, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir, "TERM=xterm", "HISTFILE=", "LC_ALL=C.UTF-8", "PS1=> ")
	list := pastedWords()
	var want, script strings.Builder
	for i := 0; i < len(list); i += 24 { // the shells start a program for each line
		line := "rootsfs roots renew"
		want.WriteString("roots\x00renew\x00")
		for _, word := range list[i:min(i+24, len(list))] {
			line += " " + names.ShellWord(word)
			want.WriteString(word + "\x00")
		}
		script.WriteString(line + "\n")
	}
	check := func(t *testing.T, seen string) {
		got, err := os.ReadFile(argv)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want.String() {
			g, w := strings.Split(string(got), "\x00"), strings.Split(want.String(), "\x00")
			for i := range min(len(g), len(w)) {
				if g[i] != w[i] {
					t.Fatalf("word %d of %d (want %d) is %q, want %q\n%s", i, len(g), len(w), g[i], w[i], seen)
				}
			}
			t.Fatalf("%d words, want %d", len(g), len(w))
		}
		_ = os.Remove(argv)
		if left, _ := os.ReadDir(work); len(left) > 0 {
			t.Errorf("something else ran and left %v", left)
		}
	}
	for _, sh := range []struct{ name, start, setPrompt string }{
		{"sh", "sh", ""}, {"bash", "bash --norc --noprofile", "PS1='> '"}, {"zsh", "zsh -f", "PS1='> '"}, {"fish", "fish --no-config", "function fish_prompt; end"},
	} {
		t.Run(sh.name, func(t *testing.T) {
			start := strings.Fields(sh.start)
			if _, err := exec.LookPath(start[0]); err != nil && os.Getenv("CI") == "" {
				t.Skip(err)
			}
			cmd := exec.Command(start[0], append(start[1:], "-c", script.String())...)
			cmd.Dir, cmd.Env = work, env
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
			check(t, "in a script")

			p := startPty(t, work, env, append(start, "-i"))
			p.send(sh.setPrompt + "\r")
			for i, line := range strings.Split(strings.TrimSpace(script.String()), "\n") {
				p.send(line + "\r")
				p.send(fmt.Sprintf("echo D\"\"ONE%d.\r", i))
				p.await(fmt.Sprintf("DONE%d.", i))
			}
			check(t, p.seen.String())
		})
	}
}

// The commands that run --learn proposes, and those in errors, can be pasted even if a server
// or a repository chose the names of the files.
func TestPrintedCommandsRun(t *testing.T) {
	if err := mountpoint.CheckFUSE(); err != nil {
		t.Skip("real mounts are needed: ", err)
	}
	const evil = "$(id>PWNED);id>PWNED;`id>PWNED` #'\"\\&<>()*?[]{}|~^%+@!!"
	dir := t.TempDir()
	env, work := shellHome(t, dir)
	root := filepath.Join(work, evil)
	out := filepath.Join(dir, evil)
	for _, d := range []string{root, out} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	printed := func(args ...string) string {
		cmd := exec.Command(filepath.Join(dir, "bin", "rootsfs"), args...)
		cmd.Dir, cmd.Env = work, env
		text, _ := cmd.CombinedOutput() // some of the commands fail
		return string(text)
	}
	text := printed("run", "--learn", "--root", "r="+root+":ro", "--", "sh", "-c", `echo >"$1/$3" 2>/dev/null; ls "$2"`, "sh", root, out, evil)
	startServe(t, env, work, []string{"serve", "--root", evil + "=" + root})
	text += printed("roots", "add", "another="+root)
	want := []string{
		"run\n--root\nr=" + root + ":", "run\n--root\n" + out + ":ro\n", "roots\nset\n" + evil + "\n",
	}
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(strings.TrimPrefix(line, "rootsfs: "), "\n")
		if flag, ok := strings.CutPrefix(line, "  --root "); ok {
			lines = append(lines, "rootsfs run --root "+flag)
		}
		if _, set, ok := strings.Cut(line, "rootsfs roots set "); ok {
			lines = append(lines, "rootsfs roots set "+strings.TrimSuffix(set, " MODE"))
		}
	}
	if len(lines) != len(want) {
		t.Fatalf("%d commands in what was printed:\n%s", len(lines), text)
	}
	stub := filepath.Join(dir, "stub")
	if err := os.MkdirAll(stub, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(stub, "rootsfs"), []byte("#!/bin/sh\nprintf '%s\\n' \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, sh := range []string{"sh", "bash", "zsh", "fish"} {
		if _, err := exec.LookPath(sh); err != nil && os.Getenv("CI") == "" {
			continue
		}
		for i, line := range lines {
			cmd := exec.Command(sh, "-c", line)
			cmd.Dir, cmd.Env = work, append(env, "PATH="+stub+":"+os.Getenv("PATH"))
			got, err := cmd.CombinedOutput()
			if err != nil || !strings.HasPrefix(string(got), want[i]) {
				t.Errorf("%s ran %s: %v, the words %q, want %q", sh, line, err, got, want[i])
			}
		}
	}
	if list, _ := os.ReadDir(work); len(list) != 1 {
		t.Errorf("something else ran: %v", list)
	}
}
