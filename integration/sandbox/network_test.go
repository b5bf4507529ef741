package sandbox

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// netLevels are the levels with a network namespace.
var netLevels = []sandbox.Level{sandbox.Namespaces, sandbox.Bubblewrap}

// hosts is the content of an /etc/hosts. Its names all lead to this machine, except metadata.test,
// which leads to the address of a metadata service.
const hosts = `127.0.0.1 localhost
127.0.0.5 api.test a.wild.test other.test api.example.com evil.example.com
169.254.169.254 metadata.test
127.0.0.9 rebound.test
`

// web serves at 127.0.0.5 and returns the port.
func web(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.5:0")
	testkit.Must(t, err)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s%s %s\n", r.Method, r.Host[:strings.IndexByte(r.Host, ':')], r.URL.Path, b)
	}))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(l.Addr().String())
	testkit.Must(t, err)
	return port
}

// networkOrder returns an order that runs a script with the flag net, on a machine whose /etc/hosts
// is hosts.
func (o *outside) networkOrder(level sandbox.Level, net, script string) order {
	t := o.t
	t.Helper()
	ord := o.command(run{level: level}, []string{net}, "sh")
	ord.Args = append(ord.Args[:len(ord.Args)-1], "sh", "-c", script)
	file := filepath.Join(t.TempDir(), "hosts")
	testkit.Must(t, os.WriteFile(file, []byte(hosts), 0o644))
	if o.mounts == nil {
		o.mounts = map[string]string{}
	}
	o.mounts["/etc/hosts"] = file
	return ord
}

// A program reaches the hosts that --net=HOSTS names, except names that lead to an address of this
// machine or of a metadata service. Such a name is reached only if its address has a rule of its own
// (here api.test at 127.0.0.5). The program can neither resolve nor connect to any other host. This
// holds at each level that has its own network, as root and as a user.
func TestNetworkOfApprovedHosts(t *testing.T) {
	port := web(t)
	// A reset may come before curl has sent the request.
	script := strings.ReplaceAll(`
		get() { curl -sS -m 10 "$@" 2>&1 | sed 's/ after .*//; s/^curl: (55) Send failure/curl: (56) Recv failure/'; }
		get http://api.test:PORT/one
		get -d body http://a.wild.test:PORT/two
		get http://127.0.0.5:PORT/
		get http://evil.test:PORT/
		get http://wild.test:PORT/
		get http://api.test:1/
		get http://metadata.test:PORT/
		get http://rebound.test:PORT/
		get http://169.254.169.254/
		get 'http://[2606:4700::1]/'
	`, "PORT", port)
	reset := "curl: (56) Recv failure: Connection reset by peer\n"
	want := []string{
		"GET api.test/one \n", "POST a.wild.test/two body\n", "GET 127.0.0.5/ \n",
		"curl: (6) Could not resolve host: evil.test\n", "curl: (6) Could not resolve host: wild.test\n",
		reset, reset, reset, reset, reset,
	}
	for _, w := range callers {
		for _, level := range netLevels {
			t.Run(w.name+" "+level.String(), func(t *testing.T) {
				t.Parallel()
				o := newOutside(t, w)
				net := fmt.Sprintf("--net=api.test:%s,*.wild.test,rebound.test,metadata.test,127.0.0.5:%[1]s", port)
				stdout, log, code := o.run(o.networkOrder(level, net, script))
				for i, line := range strings.SplitAfter(stdout, "\n") {
					if i < len(want) && line != want[i] && !(want[i] == reset && strings.HasPrefix(line, "curl: (7) Failed to connect")) {
						t.Errorf("line %d is %q, want %q", i+1, line, want[i])
					}
				}
				if strings.Count(stdout, "\n") != len(want) || code != 0 {
					t.Errorf("exit code %d, the command said\n%s; rootsfs: %s", code, stdout, log)
				}
				audit := o.owner("audit", "show", "--session", sessionName)
				for _, line := range []string{
					"allowed  grant        -  (control, network api.test:" + port + ")",
					"allowed  connect      -  (net, api.test port " + port + ", at 127.0.0.5; program ",
					"refused  connect      -  (Permission, net, evil.test: no rule permits it)",
					"refused  connect      -  (Permission, net, api.test port 1: no rule permits it; program ",
					", net, api.test port " + port + ", at 127.0.0.5; program ", // in the record of a connection's end, after the counts of its bytes
					"the name leads to an address of this machine",
				} {
					if !strings.Contains(audit, line) {
						t.Errorf("not on record: %s\n%s", line, audit)
					}
				}
			})
		}
	}
}

// rootsfs reports that a program needs a network: once at the first name or address that the
// program tries, once at the end, and in the output of rootsfs why. Each report names the flag --net
// that would permit the access. This holds at each level with a network namespace, as root and as a
// user. (Each program runs at both levels and as both users, but not with all four combinations.)
// The network stays closed: the program gets no page from this machine's web server.
func TestNoNetworkIsReported(t *testing.T) {
	port := web(t)
	for i, first := range []struct{ name, script, host string }{
		{"a name", "curl -sS -m 10 http://api.test:PORT/ 2>&1; curl -sS -m 10 http://evil.test:PORT/ 2>&1", "api.test"},
		{"Node's fetch", `node -e 'fetch("http://api.test:PORT/").catch((e) => console.log(e.message))'`, "api.test"},
		{"an address", "curl -sS -m 10 http://10.1.2.3:4567/ 2>&1; curl -sS -m 10 http://127.0.0.5:PORT/ 2>&1", "10.1.2.3:4567"},
		{"an IPv6 address", "curl -sS -m 10 'http://[2606:4700::1]:4567/' 2>&1", "[2606:4700::1]:4567"},
	} {
		for j, w := range callers {
			level := netLevels[(i+j)%len(netLevels)]
			t.Run(first.name+" "+w.name+" "+level.String(), func(t *testing.T) {
				t.Parallel()
				o := newOutside(t, w)
				stdout, log, code := o.run(o.networkOrder(level, "--net=false", strings.ReplaceAll(first.script, "PORT", port)))
				if code == 127 || strings.Contains(stdout, "GET ") {
					t.Fatalf("exit code %d, the command said %q", code, stdout)
				}
				host := names.ShellWord(first.host)
				begin := fmt.Sprintf("rootsfs: the command has no network; it looked for %q. To permit that: --net=%s, or, while it runs: rootsfs net add %[2]s --session %s", first.host, host, sessionName)
				if strings.Count(log, "the command has no network") != 1 || !strings.Contains(log, begin) {
					t.Errorf("want once: %s\nrootsfs said: %s", begin, log)
				}
				if end := "rootsfs: the command had no network, and was refused "; strings.Count(log, end) != 1 || !strings.Contains(log, "to permit them: --net=") {
					t.Errorf("want once: %s\nrootsfs said: %s", end, log)
				}
				why, _, code := o.run(order{Args: o.rootsfs("why", "--session", sessionName)})
				if code != 3 || !strings.Contains(why, ": no rule permits it") || !strings.Contains(why, "--net=") {
					t.Errorf("why: exit code %d, %s", code, why)
				}
			})
		}
	}
}

// If both the configuration and the command line set the same limit of the network (here bytes), the
// stricter value holds. When the limit is reached, the connection that reaches it and every later one
// are reset, recorded, and reported at the end.
func TestNetworkLimits(t *testing.T) {
	port := web(t)
	o := newOutside(t, callers[0])
	// A reset may come before curl has checked whether it is connected, or before it has sent the request.
	script := strings.ReplaceAll(`
		get() { curl -sS -m 10 "$@" 2>&1 | sed 's/ after .*//; s/^curl: (7) Failed to connect.*/curl: (56) Recv failure: Connection reset by peer/; s/^curl: (55) Send failure/curl: (56) Recv failure/'; }
		get http://api.test:PORT/small
		head -c 20000 /dev/zero | get --data-binary @- http://api.test:PORT/large | tr -d '\000'
		get http://api.test:PORT/after
		get http://other.test:PORT/other
	`, "PORT", port)
	conf := filepath.Join(t.TempDir(), "limits.toml")
	testkit.Must(t, os.WriteFile(conf, []byte("[run.net_limits]\nbytes = 5000\nbytes_per_second = \"100M\"\n"), 0o600))
	ord := o.networkOrder(sandbox.Namespaces, "--net=api.test,other.test,127.0.0.5", script)
	at := slices.Index(ord.Args, "run") + 1
	ord.Args = slices.Insert(ord.Args, at, "--config", conf, "--net-limit", "connections=100", "--net-limit", "bytes=1G")
	stdout, log, code := o.run(ord)
	reset := "curl: (56) Recv failure: Connection reset by peer\n"
	want := "GET api.test/small \n" + reset + reset + reset
	if stdout != want || code != 0 {
		t.Errorf("exit code %d, the command said\n%s; rootsfs: %s", code, stdout, log)
	}
	reason := "a limit of the network is reached: 5000 bytes were moved"
	if !strings.Contains(log, reason+"; 3 connections ended or refused") {
		t.Errorf("not reported at the end: %s", log)
	}
	audit := o.owner("audit", "show", "--session", sessionName)
	if strings.Count(audit, reason) != 3 {
		t.Errorf("not on record: %s", audit)
	}
}

// At a level without a network namespace, hosts cannot be approved, and nothing starts.
func TestNetworkNeedsNamespaces(t *testing.T) {
	o := newOutside(t, callers[0])
	stdout, log, code := o.run(o.networkOrder(sandbox.Landlock, "--net=api.test", "echo started"))
	if stdout != "" || code == 0 || !strings.Contains(log, "a network of approved hosts needs level namespaces or bubblewrap") {
		t.Errorf("exit code %d, %q: %s", code, stdout, log)
	}
}
