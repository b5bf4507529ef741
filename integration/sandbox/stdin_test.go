package sandbox

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// Standard input that is a file or /dev/null, or closed, reaches the command as that, at
// every level, and a file of the host's cannot be changed by it: only at level Landlock, as
// a user, by what its descriptor allows. Issue 17, item 21.
func TestStdin(t *testing.T) {
	for _, w := range everybody {
		t.Run(w.name, func(t *testing.T) {
			o := newOutside(t, w)
			for _, r := range runs[1:] {
				o.stdinIsFile(r)
				for _, mode := range []int{os.O_RDONLY, os.O_RDWR} {
					null, err := os.OpenFile(os.DevNull, mode, 0)
					must(t, err)
					if got, log := o.withStdin(r, null); got != "regular false, null true, <nil>\n" {
						t.Errorf("%s, /dev/null: %s%s", r.name, got, log)
					}
				}
				// What is closed is /dev/null to every program of Go's, rootsfs among them.
				if got, log := o.withStdin(r, nil); got != "regular false, null true, <nil>\n" {
					t.Errorf("%s, closed: %s%s", r.name, got, log)
				}
			}
		})
	}
}

// stdinIsFile runs the hostile program with a file of the command's own user.
func (o *outside) stdinIsFile(r run) {
	t := o.t
	t.Helper()
	path := filepath.Join(o.Dir, "input")
	must(t, os.WriteFile(path, []byte("0123456789"), 0o600))
	o.give(path, 0o600)
	before, err := os.Stat(path)
	must(t, err)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	_, err = f.Seek(4, io.SeekStart)
	must(t, err)
	got, log := o.withStdin(r, f)
	said, worked, _ := strings.Cut(got, "worked:")
	want := "regular true, null false, <nil>\nread \"456789\", <nil>\nopened again: \"0123456789\", <nil>\nsought: \"123456789\", <nil>, <nil>\n"
	if said != want {
		t.Errorf("%s: the command said %s, want %s; rootsfs: %s", r.name, got, want, log)
	}
	hole := r.level == sandbox.Landlock && o.who.uid != 0
	if worked != "" && !hole {
		t.Errorf("%s: these work: %s", r.name, worked)
	}
	if strings.Contains(worked, "open") || strings.Contains(worked, "write") || strings.Contains(worked, "link") {
		t.Errorf("%s: these work: %s", r.name, worked)
	}
	after, err := os.Stat(path)
	must(t, err)
	text, err := os.ReadFile(path)
	must(t, err)
	if string(text) != "0123456789" || !hole && (after.Mode() != before.Mode() || !after.ModTime().Equal(before.ModTime())) {
		t.Errorf("%s: the file was changed: %q, %v, %v", r.name, text, after.Mode(), after.ModTime())
	}
}

// withStdin runs the hostile program with a standard input, which it closes; nil: with none.
func (o *outside) withStdin(r run, stdin *os.File) (stdout, log string) {
	t := o.t
	t.Helper()
	o.plant()
	ord := o.command(r, nil, "hostile", "-stdin")
	if stdin == nil {
		ord.Args = append([]string{"/bin/sh", "-c", `exec "$@" <&-`, "sh"}, ord.Args...)
	}
	cmd := o.driver(ord)
	var out, err strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &err
	if stdin != nil {
		cmd.Stdin = stdin
		defer stdin.Close()
	}
	_ = cmd.Run() // what it said is looked at
	return out.String(), err.String()
}

// rg searches the directory and not standard input, as outside. Issue 17, item 21.
func TestSearchWithoutInput(t *testing.T) {
	o := newOutside(t, everybody[0])
	o.plant()
	must(t, os.WriteFile(filepath.Join(o.root, "found"), []byte("x marks the spot\n"), 0o644))
	args := o.rootsfs("run", "--name", sessionName, "--root", "root="+o.root, "--", "rg", "-c", "marks the")
	stdout, log, code := o.run(order{Args: append([]string{"/bin/sh", "-c", `printf "x marks the spot\n" >` + o.root + `/found; exec "$@" </dev/null`, "sh"}, args...)})
	if !strings.Contains(stdout, "found:1") || code != 0 {
		t.Errorf("exit code %d: %q, %s", code, stdout, log)
	}
}
