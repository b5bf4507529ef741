package sandbox

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// tree is a plain directory that stands in for a mount, in a private directory.
func tree(t *testing.T, dirs ...string) string {
	t.Helper()
	point := filepath.Join(t.TempDir(), "mnt")
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
	return strings.TrimSpace(string(out)), exit
}

// The whole way, thin: a shell inside sees its root, its identity and nothing of
// the host's. R113, R131.
func TestShell(t *testing.T) {
	point := tree(t, "home/u/code")
	if err := os.WriteFile(filepath.Join(point, "home/u/code/f"), []byte("from the tree"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, exit := output(t, Options{Level: Namespaces, Tree: point, Dir: "/home/u/code"}, `
		cat f; echo; pwd; grep -c ^Cap...:.0000000000000000$ /proc/self/status; grep ^NoNewPrivs /proc/self/status
		cat /etc/shadow /proc/1/status /root/.profile 2>/dev/null && echo seen; echo x > /usr/x 2>/dev/null && echo written; echo x > /tmp/x && echo private; exit 7`)
	if want := "from the tree\n/home/u/code\n5\nNoNewPrivs:\t1\nprivate"; out != want {
		t.Errorf("the shell said\n%s\nwant\n%s", out, want)
	}
	if exit != (Exit{Code: 7}) {
		t.Errorf("exit %+v, want code 7", exit)
	}
}
