package sandbox

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// If rootsfs's standard input is /dev/null or closed, the command's is /dev/null, at every level.
// If rootsfs's standard input is a file, the command reads a pipe with the content of the file from
// its current position. So the command has no descriptor of the file.
func TestStdin(t *testing.T) {
	eachUser(t, func(t *testing.T, o *outside) {
		for _, r := range runs[1:] {
			o.checkFileAsStdin(r)
			for _, mode := range []int{os.O_RDONLY, os.O_RDWR} {
				null, err := os.OpenFile(os.DevNull, mode, 0)
				testkit.Must(t, err)
				if got, log := o.withStdin(r, null); got != "pipe false, null true, <nil>\n" {
					t.Errorf("%s, /dev/null: %s%s", r.name, got, log)
				}
			}
			// To every Go program, including rootsfs, a closed stream is /dev/null.
			if got, log := o.withStdin(r, nil); got != "pipe false, null true, <nil>\n" {
				t.Errorf("%s, closed: %s%s", r.name, got, log)
			}
		}
	})
}

// checkFileAsStdin runs the hostile program with a file as standard input, and checks that the
// program reads a pipe with the rest of the file. The file belongs to the command's user.
func (o *outside) checkFileAsStdin(r run) {
	t := o.t
	t.Helper()
	path := filepath.Join(o.Dir, "input")
	testkit.Must(t, os.WriteFile(path, []byte("0123456789"), 0o600))
	o.give(path, 0o600)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	testkit.Must(t, err)
	_, err = f.Seek(4, io.SeekStart)
	testkit.Must(t, err)
	if got, log := o.withStdin(r, f); got != "pipe true, null false, <nil>\nread \"456789\", <nil>\n" {
		t.Errorf("%s: the command said %s; rootsfs: %s", r.name, got, log)
	}
}

// withStdin runs the hostile program through rootsfs, whose standard input is stdin, and closes
// stdin afterwards. If stdin is nil, rootsfs's standard input is closed.
func (o *outside) withStdin(r run, stdin *os.File) (stdout, log string) {
	t := o.t
	t.Helper()
	o.resetRoot()
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
	_ = cmd.Run() // the output is checked
	return out.String(), err.String()
}

// If rootsfs's standard input is /dev/null, a confined rg searches the directory, and does not
// search standard input.
func TestSearchWithoutInput(t *testing.T) {
	o := newOutside(t, callers[0])
	o.resetRoot()
	testkit.Must(t, os.WriteFile(filepath.Join(o.root, "found"), []byte("x marks the spot\n"), 0o644))
	args := o.rootsfs("run", "--name", sessionName, "--root", "root="+o.root, "--", "rg", "-c", "marks the")
	stdout, log, code := o.run(order{Args: append([]string{"/bin/sh", "-c", `printf "x marks the spot\n" >` + o.root + `/found; exec "$@" </dev/null`, "sh"}, args...)})
	if !strings.Contains(stdout, "found:1") || code != 0 {
		t.Errorf("exit code %d: %q, %s", code, stdout, log)
	}
}
