package sandbox

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// flood is a Python program that makes COUNT connections to the host at PORT, and sends the beginning
// of a TLS hello on each. It prints three lines. The first is the answer to a request before the
// connections. The second comes when at most 256 connections have not been reset: whether there are
// any, and the answer to a further request. The third is the answer to a request after the program
// has closed the connections.
const flood = `
import os, resource, select, socket, sys, time, urllib.request
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
host, port, wanted = "api.example.com", PORT, COUNT
def ask():
    try: return urllib.request.urlopen("https://%s:%d/hello" % (host, port), timeout=20).read().decode().strip()
    except OSError: return "refused"
print(ask(), flush=True)
live, poll = {}, select.poll()
def drop():
    for fd, _ in poll.poll(0):
        poll.unregister(fd)
        live.pop(fd).close()
for _ in range(wanted):
    s = socket.socket()
    try:
        s.connect((host, port))
        s.send(b"\x16\x03\x01\x02\x00\x01")
    except OSError:
        s.close()
        continue
    live[s.fileno()] = s
    poll.register(s, select.POLLIN | select.POLLHUP | select.POLLERR)
    drop()
while len(live) > 256:
    time.sleep(0.01)
    drop()
print(len(live) > 0, ask())
for s in live.values():
    s.close()
while ask() == "refused":
    time.sleep(0.01)
print(ask())`

// A program that makes many connections to the host of a secret can hold at most 256 of them. Further
// connections are refused, and a refusal is on record. The host answers again when the program has
// closed its connections.
func TestSecretConnectionsAreBounded(t *testing.T) {
	if tool := missing([]string{"python3"}); tool != "" {
		t.Skipf("this machine has no %s", tool)
	}
	a := serveAPI(t, http.HandlerFunc(everythingAPI))
	count := "400"
	if lab.Soak() {
		count = "10000"
	}
	eachNetLevel(t, func(t *testing.T, o *outside, level sandbox.Level) {
		ord := o.secretOrder(a, "python3 -c '"+strings.NewReplacer("PORT", a.port, "COUNT", count).Replace(flood)+"'", "api")
		ord.setLevel(level)
		stdout, log, code := o.run(ord)
		if stdout != "hello\nTrue refused\nhello\n" || code != 0 {
			t.Errorf("exit code %d, the program said\n%s; rootsfs: %s", code, stdout, log)
		}
		audit := o.owner("audit", "show", "--session", sessionName)
		lines := slices.DeleteFunc(strings.Split(audit, "\n"), func(line string) bool {
			return !strings.Contains(line, "the program holds 256 connections that are answered here already")
		})
		if len(lines) == 0 {
			t.Errorf("no refusal is on record:\n%s", fmt.Sprintf("%.2000s", audit))
		}
	})
}
