package network

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// searchVar is the environment variable with the path of a resolv.conf. If it is set, this process
// has a mount namespace of its own, and the test runs dialWithSearch.
const searchVar = "ROOTSFS_TEST_SEARCH"

// A name with a dot is looked up without the machine's search domains, because below an
// approved wildcard the program chooses the name. A name without a dot comes from the owner,
// so the search domains complete it.
func TestSearchDomainsCompleteNoDottedName(t *testing.T) {
	if file := os.Getenv(searchVar); file != "" {
		dialWithSearch(t, file)
		return
	}
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("search corp.test\noptions ndots:5\nnameserver 192.0.2.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), searchVar+"="+file)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   unix.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSPC):
		t.Skip("no user namespaces here: ", err)
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	case !strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Skipf("%s", out)
	}
}

// dialWithSearch has a gate dial hosts whose names exist only within the search domain.
func dialWithSearch(t *testing.T, file string) {
	if err := unix.Mount(file, "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
		t.Skip("no resolv.conf can be mounted here: ", err)
	}
	var searched atomic.Int64
	_, port, err := splitPort("h:" + echo(t))
	if err != nil {
		t.Fatal(err)
	}
	r := resolver(new(atomic.Int64), func(name string) []string {
		if strings.HasSuffix(name, ".corp.test") {
			searched.Add(1)
			return []string{"127.0.0.1"}
		}
		return nil
	})
	for _, c := range []struct {
		host      string
		completed bool
	}{{"nx.example.test", false}, {"db.example", false}, {"db", true}} {
		searched.Store(0)
		g := New(Options{Rules: mustRules(t, "*.example.test,db.example,db,127.0.0.1"), Resolver: r})
		out, _, err := g.dial(t.Context(), connTo(target{c.host, port}))
		if got := err == nil; got != c.completed || got != (searched.Load() > 0) {
			t.Errorf("%s: connected %v, names of the search domain asked for: %d: %v", c.host, got, searched.Load(), err)
		}
		var dnsErr *net.DNSError
		if !c.completed && (!errors.As(err, &dnsErr) || !dnsErr.IsNotFound) {
			t.Errorf("%s: %v", c.host, err)
		}
		if out != nil {
			reset(out)
		}
		g.Close()
	}
}
