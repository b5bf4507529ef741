package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker"
)

// askingRun is a run whose command asks for hosts, and its owner in another terminal.
type askingRun struct {
	*outside
	stdout bytes.Buffer
	ended  chan error
}

// asking starts a shell script with --net-ask.
func (o *outside) asking(script string, flags ...string) *askingRun {
	t := o.t
	t.Helper()
	a := &askingRun{outside: o, ended: make(chan error, 1)}
	ord := o.shell(netLevels[0], "--net-ask", script)
	at := len(ord.Args) - 4 // before --
	ord.Args = append(append(append([]string{}, ord.Args[:at]...), flags...), ord.Args[at:]...)
	cmd := o.driver(ord)
	cmd.Stdout, cmd.Stderr = &a.stdout, os.Stderr
	must(t, cmd.Start())
	timer := time.AfterFunc(giveUp, func() { _ = cmd.Process.Kill() })
	go func() { a.ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		timer.Stop()
	})
	return a
}

// owner runs a command of rootsfs as the owner.
func (a *askingRun) owner(args ...string) (string, error) {
	a.t.Helper()
	cmd := a.driver(order{Args: a.rootsfs(append(args, "--session", sessionName)...)})
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return string(out), err
}

// question waits for one about a host.
func (a *askingRun) question(host string) (q broker.Question) {
	a.t.Helper()
	for end := time.Now().Add(giveUp); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(a.Session, "control.sock")); err != nil {
			continue
		}
		out, err := a.owner("consent", "list", "--json")
		var list []broker.Question
		if err != nil || json.Unmarshal([]byte(out), &list) != nil {
			continue
		}
		for _, q := range list {
			if q.Host != nil && q.Host.Name == host {
				return q
			}
		}
	}
	a.t.Fatalf("no question about %s", host)
	return q
}

// end waits for the command's end and returns what it printed, line by line.
func (a *askingRun) end() []string {
	a.t.Helper()
	if err := <-a.ended; err != nil {
		a.t.Error(err)
	}
	return strings.Split(strings.TrimSuffix(a.stdout.String(), "\n"), "\n")
}

// get is a script that asks for each URL, and prints the answer, or that it failed.
func get(port string, hosts ...string) string {
	var b strings.Builder
	for _, h := range hosts {
		fmt.Fprintf(&b, "curl -sS -m 60 http://%s:%s/ 2>/dev/null || echo failed\n", h, port)
	}
	return b.String()
}

// Unmodified programs wait while their owner is asked, and go on with the answer, which is
// remembered.
func TestNetworkAsks(t *testing.T) {
	port := web(t)
	for _, w := range everybody {
		t.Run(w.name, func(t *testing.T) {
			o := newOutside(t, w)
			// The names lead to 127.0.0.5, which needs a rule of its own.
			script := get(port, "api.test", "api.test", "other.test", "other.test", "evil.example.com", "10.0.0.1") + `python3 -c '
import urllib.request
print(urllib.request.urlopen("http://api.example.com:` + port + `/", timeout=60).read().decode(), end="")'
`
			a := o.asking(script, "--net=127.0.0.5:"+port)
			q := a.question("api.test")
			if q.Kind != broker.HostKind || fmt.Sprint(q.Host.Port) != port || filepath.Base(q.Host.Program) != "curl" || len(q.Host.Reached) != 0 {
				t.Errorf("%+v %+v", q, q.Host)
			}
			list, err := a.owner("consent", "list")
			if want := "1. \"api.test\" port " + port; err != nil || !strings.Contains(list, want) || !strings.Contains(list, "Its program: ") {
				t.Errorf("%v: %s, want %s", err, list, want)
			}
			if out, err := a.owner("consent", "approve", q.ID[:8]); err != nil || out != "allowed: api.test:"+port+"\n" {
				t.Errorf("%q, %v", out, err)
			}
			q = a.question("other.test")
			if r := q.Host.Reached; len(r) != 1 || r[0].Host != "api.test" || r[0].Received == 0 {
				t.Errorf("reached: %+v", r)
			}
			if out, err := a.owner("consent", "deny", q.ID); err != nil || out != "denied: other.test:"+port+"\n" {
				t.Errorf("%q, %v", out, err)
			}
			q = a.question("evil.example.com")
			if out, err := a.owner("consent", "denials"); err != nil || !strings.Contains(out, "other.test:"+port) {
				t.Errorf("%q, %v", out, err)
			}
			_, err = a.owner("consent", "deny", q.ID, "--remember")
			must(t, err)
			_, err = a.owner("consent", "approve", a.question("api.example.com").ID, "--save", "--for", "1h")
			must(t, err)
			lines := a.end()
			want := []string{"GET api.test/ ", "GET api.test/ ", "failed", "failed", "failed", "failed", "GET api.example.com/ "}
			if strings.Join(lines, "\n") != strings.Join(want, "\n") {
				t.Errorf("the command said\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
			}
			conf, err := os.ReadFile(filepath.Join(o.base, "xdg_config_home/rootsfs/config.toml"))
			if want := fmt.Sprintf("[[net]]\nhosts = [\"api.example.com:%s\"]\nsubject = \"%s\"\nfor = \"1h0m0s\"\n", port, sessionName); err != nil || string(conf) != want {
				t.Errorf("%v: %s", err, conf)
			}
			audit, _, _ := o.run(order{Args: o.rootsfs("audit", "show", "--session", sessionName)})
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
}
