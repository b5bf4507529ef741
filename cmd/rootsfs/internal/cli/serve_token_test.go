package cli

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

// Each process has its own token file, also if two servers have one name. A server removes only
// its own file, and replaces one that a killed server left.
func TestTokenFiles(t *testing.T) {
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	dir := filepath.Join(state, "rootsfs")
	checkFile := func(path, want string) {
		t.Helper()
		st, err := os.Lstat(path)
		if err != nil || st.Mode() != 0o600 {
			t.Fatalf("%v, %v", st, err)
		}
		if got, err := os.ReadFile(path); string(got) != want+"\n" || err != nil {
			t.Errorf("%s has %q, %v; want %q", path, got, err, want)
		}
	}
	begin := func(file string) (token string, done func()) {
		t.Helper()
		token, path, done, err := new(httpFlags).token("t4")
		if err != nil || path != filepath.Join(dir, file) || len(token) < leastToken {
			t.Fatalf("%q in %s, %v; want %s", token, path, err, file)
		}
		checkFile(path, token)
		return token, done
	}
	first, endFirst := begin("t4.token")
	second, endSecond := begin("t4.2.token")
	_, endThird := begin("t4.3.token")
	checkFile(filepath.Join(dir, "t4.token"), first)
	endFirst()
	checkFile(filepath.Join(dir, "t4.2.token"), second)
	// A path that is free again is used by the next server, while other servers of the name live.
	_, endFirst = begin("t4.token")
	endSecond()
	endThird()
	endFirst()
	for _, leave := range []func(path string) error{
		func(path string) error { return os.WriteFile(path, []byte("of a killed one"), 0o644) },
		func(path string) error { return os.Symlink(filepath.Join(state, "elsewhere"), path) },
		func(path string) error { return os.Symlink(path, path) },
	} {
		if err := leave(filepath.Join(dir, "t4.token")); err != nil {
			t.Fatal(err)
		}
		_, done := begin("t4.token")
		done()
	}
	// A server does not remove a file that replaced its own.
	_, done := begin("t4.token")
	path := filepath.Join(dir, "t4.token")
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	done()
	checkFile(path, "mine")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path + ".old"); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A server that gets no port makes no token.
func TestNoTokenWithoutPort(t *testing.T) {
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	f := &serveFlags{http: httpFlags{addr: taken.Addr().String(), HTTPRequest: control.HTTPRequest{Sessions: 1}}}
	err = new(app).overHTTP(t.Context(), "t4", f, nil)
	if err == nil || !strings.Contains(err.Error(), "address already in use; choose another port") {
		t.Errorf("%v", err)
	}
	if left, err := filepath.Glob(state + "/*/*.token"); len(left) != 0 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
