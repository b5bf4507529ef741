package sandbox

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// tree makes a plain directory in place of a mount, with the subdirectories dirs. The plain
// directory lies in a private one.
func tree(t *testing.T, dirs ...string) string {
	t.Helper()
	point := filepath.Join(private(t), "mnt")
	for _, d := range append(dirs, "") {
		if err := os.MkdirAll(filepath.Join(point, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return point
}

// output runs a shell script inside and returns what it wrote.
func output(t *testing.T, o Options, script string) (string, Exit) {
	t.Helper()
	_, out, exit := runScript(t, o, script)
	return out, exit
}

// runScript is like output, and also returns the ended process.
func runScript(t *testing.T, o Options, script string) (*Process, string, Exit) {
	t.Helper()
	o.Args = []string{"sh", "-c", script}
	if o.Tree == "" {
		o.Tree = tree(t)
	}
	p, err := Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	p.Stdin().Close()
	go func() { io.Copy(os.Stderr, p.Stderr()); p.Stderr().Close() }()
	out, err := io.ReadAll(p.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	p.Stdout().Close()
	exit, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return p, strings.TrimSpace(string(out)), exit
}

// confining lists the levels that confine.
var confining = []Level{Namespaces, Bubblewrap, Landlock}

// atLevels runs a test at each level. It skips no level that this machine cannot reach, because a
// test that does not run shows nothing.
func atLevels(t *testing.T, levels []Level, f func(t *testing.T, level Level)) {
	for _, level := range levels {
		t.Run(level.String(), func(t *testing.T) { f(t, level) })
	}
}

// private makes a directory that only the test's user may read, and that the command can reach, for
// Options.Private for example.
func private(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "private")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	// The command runs as another user than root, who must be able to reach this directory.
	for d := filepath.Dir(dir); d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A shell inside reads its root and writes to its private directory. It has no capabilities, cannot
// read the host's private files and cannot write to /usr. R113, R131.
func TestShell(t *testing.T) {
	atLevels(t, confining, func(t *testing.T, level Level) {
		point := tree(t, "home/u/code")
		if err := os.WriteFile(filepath.Join(point, "home/u/code/f"), []byte("from the tree"), 0o644); err != nil {
			t.Fatal(err)
		}
		o := Options{Level: level, Tree: point, Roots: []string{"/home/u/code"}, Dir: "/home/u/code", Private: private(t)}
		out, exit := output(t, o, `
			cat f; echo; grep -cE '^Cap(Inh|Prm|Eff|Amb):.0+$' /proc/self/status; grep ^NoNewPrivs /proc/self/status
			exec 2>/dev/null
			cat /etc/shadow && echo seen; cat /root/.profile && echo seen; echo x > /usr/x && echo written; echo x > $TMPDIR/x && echo private
			exit 7`)
		if want := "from the tree\n4\nNoNewPrivs:\t1\nprivate"; out != want {
			t.Errorf("the shell said\n%s\nwant\n%s", out, want)
		}
		if exit != (Exit{Code: 7}) {
			t.Errorf("exit %+v, want code 7", exit)
		}
	})
}

// The channel of Ended is closed when the command ends, whatever processes the command has left
// behind, and when it is killed with its init.
func TestEnded(t *testing.T) {
	atLevels(t, append([]Level{None}, confining...), func(t *testing.T, level Level) {
		for _, tt := range []struct {
			name, script string
			kill         bool
			want         Exit
		}{
			{"by itself", "sleep 300 & exit 3", false, Exit{Code: 3}},
			{"killed", "exec sleep 300", true, Exit{Signal: unix.SIGKILL}},
		} {
			t.Run(tt.name, func(t *testing.T) {
				p, err := Start(context.Background(), Options{Level: level, Private: private(t), Tree: tree(t), Args: []string{"sh", "-c", tt.script}})
				if err != nil {
					t.Fatal(err)
				}
				if tt.kill {
					select {
					case <-p.Ended():
						t.Error("it has ended before it was killed")
					default:
					}
					if err := p.Kill(); err != nil {
						t.Error(err)
					}
				}
				select {
				case <-p.Ended():
				case <-time.After(time.Minute):
					t.Error("Ended is not closed")
				}
				if got, err := p.Wait(); err != nil || got != tt.want {
					t.Errorf("exit %+v, %v; want %+v", got, err, tt.want)
				}
			})
		}
	})
}

// With spare directories, all roots that are granted after the start appear. Without, only
// those appear that are, or lie below, a directory that was bound.
func TestAppears(t *testing.T) {
	o := Options{Level: Namespaces, Tree: tree(t, "home/u/code", "tmp/x", "tmp/a/b/c", "usr/share", "spare"), Roots: []string{"/home/u/code", "/tmp/x", "/tmp/a/b/c", "/home", "/usr/share"}}
	p, _, _ := runScript(t, o, "true")
	r := p.Report()
	for path, want := range map[string]bool{
		"/home/u/other": true, "/srv/x": true, "/home": true, "/tmp/a/y": true, // a root was there from the start
		"/tmp/y": false, "/tmp/a": false, "/tmp/x": false,
		"/no-such-top": false, "/usr/share": false, "/etc/x": false, "/var/lib/x": false, "/run/x": false, "/private/x": false,
	} {
		if got := Appears(path, r); got != want {
			t.Errorf("%s appears: %v, want %v (closed: %q)", path, got, want, r.Closed)
		}
	}
	if notes := strings.Join(r.Notes, " "); !strings.Contains(notes, "do not appear again") || !strings.Contains(notes, "/usr/share.") {
		t.Errorf("notes %q do not tell of /usr/share", r.Notes)
	}
	if err := p.Bind("spare", "/no-such-top"); err == nil || p.CanBind() {
		t.Error("something can be bound without spare directories")
	}
	o.Spare = []string{"spare"}
	p, _, _ = runScript(t, o, "true")
	if r := p.Report(); !Appears("/no-such-top", r) || !Appears("/etc/x", r) || len(r.Notes) > 0 || !p.CanBind() {
		t.Errorf("with spare directories all roots appear, but closed is %q, and the notes %q", r.Closed, r.Notes)
	}
	flat, _, _ := runScript(t, Options{Level: Namespaces, Map: Flat, Tree: tree(t)}, "true")
	if r := flat.Report(); !Appears("/work", r) || !Appears("/usr/share", r) {
		t.Errorf("all roots of a flat tree appear, but closed is %q", r.Closed)
	}
}
