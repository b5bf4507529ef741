package sandbox

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// askingRun is a run with --net-ask, and its owner in another terminal.
type askingRun struct {
	*outside
	stdout string // the path of the file that gets the command's output
	ended  chan error
}

// startAsking starts a shell script with --net-ask.
func (o *outside) startAsking(script string, flags ...string) *askingRun {
	t := o.t
	t.Helper()
	a := &askingRun{outside: o, ended: make(chan error, 1)}
	ord := o.networkOrder(netLevels[0], "--net-ask", script)
	at := len(ord.Args) - 4 // before --
	ord.Args = append(append(append([]string{}, ord.Args[:at]...), flags...), ord.Args[at:]...)
	cmd := o.driver(ord)
	a.stdout = filepath.Join(o.base, "stdout")
	out, err := os.Create(a.stdout)
	testkit.Must(t, err)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	testkit.Must(t, cmd.Start())
	testkit.Must(t, out.Close())
	timer := time.AfterFunc(giveUp, func() { _ = cmd.Process.Kill() })
	go func() { a.ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		timer.Stop()
	})
	return a
}

// ownerInSession runs a command of rootsfs as the owner, with --session, and returns its output.
func (a *askingRun) ownerInSession(args ...string) (string, error) {
	a.t.Helper()
	cmd := a.ownerCommand(append(args, "--session", sessionName)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return string(out), err
}

// question waits for a question about a host.
func (a *askingRun) question(host string) (q broker.Question) {
	a.t.Helper()
	if testkit.Eventually(func() bool {
		if _, err := os.Stat(filepath.Join(a.Session, "control.sock")); err != nil {
			return false
		}
		out, err := a.ownerInSession("consent", "list", "--json")
		var list []broker.Question
		if err != nil || json.Unmarshal([]byte(out), &list) != nil {
			return false
		}
		i := slices.IndexFunc(list, func(q broker.Question) bool { return q.Host != nil && q.Host.Name.Raw() == host })
		if i >= 0 {
			q = list[i]
		}
		return i >= 0
	}) {
		return q
	}
	a.t.Fatalf("no question about %s", host)
	return q
}

// output returns the command's output so far.
func (a *askingRun) output() string {
	a.t.Helper()
	b, err := os.ReadFile(a.stdout)
	testkit.Must(a.t, err)
	return string(b)
}

// end waits for the command's end and returns its output, line by line.
func (a *askingRun) end() []string {
	a.t.Helper()
	if err := <-a.ended; err != nil {
		a.t.Error(err)
	}
	return strings.Split(strings.TrimSuffix(a.output(), "\n"), "\n")
}

// get returns a script that requests a page of each host, and prints the answer or "failed".
func get(port string, hosts ...string) string {
	var b strings.Builder
	for _, h := range hosts {
		fmt.Fprintf(&b, "curl -sS -m 60 http://%s:%s/ 2>/dev/null || echo failed\n", h, port)
	}
	return b.String()
}

// Unmodified programs wait while their owner is asked, and continue after the answer. The
// answer is remembered.
func TestNetworkAsks(t *testing.T) {
	port := web(t)
	eachUser(t, func(t *testing.T, o *outside) {
		// The names resolve to 127.0.0.5, an address that needs its own rule.
		script := get(port, "api.test", "api.test", "other.test", "other.test", "evil.example.com", "10.0.0.1") + `python3 -c '
import urllib.request
print(urllib.request.urlopen("http://api.example.com:` + port + `/", timeout=60).read().decode(), end="")'
`
		a := o.startAsking(script, "--net=127.0.0.5:"+port)
		q := a.question("api.test")
		if q.Kind != broker.HostKind || fmt.Sprint(q.Host.Port) != port || filepath.Base(q.Host.Program.Raw()) != "curl" || len(q.Host.Reached) != 0 {
			t.Errorf("%+v %+v", q, q.Host)
		}
		list, err := a.ownerInSession("consent", "list")
		if want := "1. \"api.test\" port " + port; err != nil || !strings.Contains(list, want) || !strings.Contains(list, "Its program: ") {
			t.Errorf("%v: %s, want %s", err, list, want)
		}
		if out, err := a.ownerInSession("consent", "approve", q.ID[:8]); err != nil || out != "allowed: api.test:"+port+"\n" {
			t.Errorf("%q, %v", out, err)
		}
		q = a.question("other.test")
		if r := q.Host.Reached; len(r) != 1 || r[0].Host != "api.test" || r[0].Received == 0 {
			t.Errorf("reached: %+v", r)
		}
		if out, err := a.ownerInSession("consent", "deny", q.ID); err != nil || out != "denied: other.test:"+port+"\n" {
			t.Errorf("%q, %v", out, err)
		}
		q = a.question("evil.example.com")
		if out, err := a.ownerInSession("consent", "denials"); err != nil || !strings.Contains(out, "other.test:"+port) {
			t.Errorf("%q, %v", out, err)
		}
		_, err = a.ownerInSession("consent", "deny", q.ID, "--remember")
		testkit.Must(t, err)
		_, err = a.ownerInSession("consent", "approve", a.question("api.example.com").ID, "--save", "--for", "1h")
		testkit.Must(t, err)
		lines := a.end()
		want := []string{"GET api.test/ ", "GET api.test/ ", "failed", "failed", "failed", "failed", "GET api.example.com/ "}
		if strings.Join(lines, "\n") != strings.Join(want, "\n") {
			t.Errorf("the command said\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
		conf, err := os.ReadFile(filepath.Join(o.base, "xdg_config_home/rootsfs/config.toml"))
		if want := fmt.Sprintf("[[net]]\nhosts = [\"api.example.com:%s\"]\nsubject = \"%s\"\nfor = \"1h0m0s\"\n", port, sessionName); err != nil || string(conf) != want {
			t.Errorf("%v: %s", err, conf)
		}
		audit := o.owner("audit", "show", "--session", sessionName)
		for _, line := range []string{
			"allowed  grant        -  (control, network api.test:" + port + ": allowed by control)",
			"allowed  grant        -  (control, network api.example.com:" + port + ": allowed by control for 1h0m0s)",
			"network other.test:" + port + ": denied by control",
			"other.test port " + port + ": it was denied, for as long as the session lasts",
			"10.0.0.1 port " + port + ": no rule permits it",
		} {
			if !strings.Contains(audit, line) {
				t.Errorf("not on record: %s\n%s", line, audit)
			}
		}
	})
}

// writeConfig writes the caller's configuration.
func (o *outside) writeConfig(text string) {
	o.t.Helper()
	dir := filepath.Join(o.base, "xdg_config_home/rootsfs")
	testkit.Must(o.t, os.MkdirAll(dir, 0o700))
	testkit.Must(o.t, os.WriteFile(filepath.Join(dir, "config.toml"), []byte(text), 0o600))
	o.own(dir)
	o.own(filepath.Join(dir, "config.toml"))
}

// If nobody answers a question within net_timeout of the configuration, the connection is refused.
// The configuration has ask = true, so the run needs no flag --net-ask.
func TestNetworkAskTimesOut(t *testing.T) {
	port := web(t)
	eachUser(t, func(t *testing.T, o *outside) {
		o.writeConfig("[run]\nnet_timeout = \"1s\"\n[[net]]\nask = true\nhosts = [\"127.0.0.5\"]\n")
		ord := o.networkOrder(netLevels[1], "--net=a.wild.test:"+port, get(port, "a.wild.test", "api.test", "api.test"))
		stdout, log, code := o.run(ord)
		if stdout != "GET a.wild.test/ \nfailed\nfailed\n" || code != 0 || !strings.Contains(log, "to permit them: --net=api.test:"+port) {
			t.Errorf("exit code %d, %q: %s", code, stdout, log)
		}
		audit := o.owner("audit", "show", "--session", sessionName)
		if n := strings.Count(audit, "api.test port "+port+": nobody answered the question about it in time, and no rule permits it"); n != 2 {
			t.Errorf("%d refusals on record:\n%s", n, audit)
		}
	})
}

// If the owner revokes hosts, open questions are answered with no. After all hosts are revoked, the
// owner is not asked about others. If the owner unmounts the session, the command ends too.
func TestNetworkAskEnds(t *testing.T) {
	port := web(t)
	for _, end := range [][]string{{"net", "remove", "other.test"}, {"revoke", "--net"}, {"revoke", "--all"}} {
		t.Run(strings.Join(end, " "), func(t *testing.T) {
			t.Parallel()
			o := newOutside(t, callers[1])
			hosts, want, recorded := []string{"api.test"}, []string{"failed"}, []string{"api.test port " + port + ": the rule was removed"}
			if end[0] == "revoke" {
				hosts, want = append(hosts, "evil.test", "1.1.1.1"), append(want, "failed", "failed")
				recorded = append(recorded, "evil.test: no rule permits it", "1.1.1.1 port "+port+": no rule permits it")
			}
			a := o.startAsking(get(port, hosts...), "--net=other.test,127.0.0.5")
			a.question("api.test")
			if out, err := a.ownerInSession(end...); err != nil {
				t.Errorf("%s, %v", out, err)
			}
			if out, err := a.ownerInSession("consent", "list", "--json"); err == nil && strings.TrimSpace(out) != "[]" {
				t.Errorf("still open: %s", out)
			}
			if lines := a.end(); !slices.Equal(lines, want) {
				t.Errorf("the command said %q", lines)
			}
			audit := o.owner("audit", "show", "--session", sessionName)
			for _, line := range recorded {
				if !strings.Contains(audit, line) {
					t.Errorf("not on record: %s\n%s", line, audit)
				}
			}
		})
	}
	t.Run("unmount", func(t *testing.T) {
		t.Parallel()
		o := newOutside(t, callers[0])
		a := o.startAsking(get(port, "api.test") + "sleep 60")
		a.question("api.test")
		if out, err := a.ownerInSession("revoke", "--all"); err != nil {
			t.Errorf("%s, %v", out, err)
		}
		cmd := a.driver(order{Args: a.rootsfs("unmount", sessionName)})
		cmd.Stderr = os.Stderr
		testkit.Must(t, cmd.Run())
		if err := <-a.ended; err == nil {
			t.Error("the command ended with exit code 0")
		}
	})
}

// A connection to one approved host may name another approved host in its TLS handshake. The connection
// ends when either host is revoked, and net list shows both.
func TestNetworkServerNameEnds(t *testing.T) {
	cert := certificate(t)
	port := answerConns(t, func(c net.Conn) {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}})
		_, _ = io.Copy(s, s)
	})
	rules := []string{"api.test:" + port, "other.test:" + port}
	permitted := append(slices.Clone(rules), "127.0.0.5")
	for i, end := range [][]string{{"net", "remove", rules[0]}, {"net", "remove", rules[1]}, {"revoke", "--net"}} {
		t.Run(strings.Join(end, " "), func(t *testing.T) {
			t.Parallel()
			a := newOutside(t, callers[i%len(callers)]).startAsking(`python3 -c '
import socket, ssl, sys
s = ssl._create_unverified_context().wrap_socket(socket.create_connection(("api.test", sys.argv[1])), server_hostname="other.test")
s.sendall(b"begun"); print(s.recv(5).decode(), flush=True)
try: s.recv(1)
except OSError: pass # a reset is an end, too
print("ended")' `+port, "--net="+strings.Join(permitted, ","))
			testkit.Until(t, "the program has begun", func() bool { return a.output() == "begun\n" })
			var st struct {
				Connections []struct {
					Names []string `json:"server_names"`
					Rules []string `json:"permitted_by"`
				}
			}
			out, err := a.ownerInSession("net", "list", "--json")
			if err == nil {
				err = json.Unmarshal([]byte(out), &st)
			}
			if err != nil || len(st.Connections) != 1 || !slices.Equal(st.Connections[0].Names, []string{"other.test"}) ||
				!slices.Equal(st.Connections[0].Rules, permitted) {
				t.Errorf("listed: %s, %v", out, err)
			}
			if out, err := a.ownerInSession("net", "list"); err != nil || !strings.Contains(strings.Join(strings.Fields(out), " "), " other.test "+strings.Join(permitted, ",")+" ") {
				t.Errorf("listed: %s, %v", out, err)
			}
			if out, err := a.ownerInSession(end...); err != nil {
				t.Errorf("%s, %v", out, err)
			}
			if lines := a.end(); !slices.Equal(lines, []string{"begun", "ended"}) {
				t.Errorf("the command said %q", lines)
			}
		})
	}
}

// A program that connects to 200 unapproved hosts leaves only 16 questions open. Malformed names and
// addresses, loopback addresses and private addresses cause none. Meanwhile the program still reaches
// its approved host.
func TestNetworkAskFlood(t *testing.T) {
	port := web(t)
	o := newOutside(t, callers[1])
	script := `python3 - <<'END'
import socket
for odd in ["a b.test", "x\x1b[2J.test", "\u202etest", "a" * 70 + ".test", "-x.test", "1.2.3.4.5", "127.0.0.1", "10.0.0.1", "fd00::1"]:
    try:
        s = socket.create_connection((odd, 80), 1)
        if s.recv(1): print("odd", ascii(odd))
    except (OSError, UnicodeError):
        pass
held = []
for i in range(200):
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex((socket.gethostbyname("%d.%s.example.com" % (i, "x" * 60)), 80 + i % 7))
    held.append(s)
END
` + get(port, "api.test") + "echo flooded; sleep 60\n"
	a := o.startAsking(script, "--net=api.test:"+port+",127.0.0.5")
	testkit.Until(t, "the program has tried all hosts", func() bool { return strings.Contains(a.output(), "flooded") })
	out, err := a.ownerInSession("consent", "list", "--json")
	var list []broker.Question
	testkit.Must(t, json.Unmarshal([]byte(out), &list))
	if err != nil || len(list) != 16 {
		t.Errorf("%d questions wait, %v", len(list), err)
	}
	for _, q := range list {
		if !strings.HasSuffix(q.Host.Name.Raw(), strings.Repeat("x", 60)+".example.com") {
			t.Errorf("%+v", q.Host)
		}
	}
	if out, err := a.ownerInSession("consent", "deny", "--all"); err != nil || strings.Count(out, "denied: ") != len(list) {
		t.Errorf("%q, %v", out, err)
	}
	if output := a.output(); output != "GET api.test/ \nflooded\n" {
		t.Errorf("the command said %q", output)
	}
	cmd := a.driver(order{Args: a.rootsfs("unmount", sessionName)})
	testkit.Must(t, cmd.Run())
	<-a.ended
	audit := o.owner("audit", "show", "--session", sessionName)
	// The program does not wait for its connections, so some may not be refused before the session ends.
	const questions, notRefused = 16, 15
	if n := strings.Count(audit, "the program caused too many questions"); n < 200-questions-notRefused {
		t.Errorf("%d refusals are on record", n)
	}
}
