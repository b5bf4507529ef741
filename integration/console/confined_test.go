package console

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// prober sends a console the requests that a program can make without the console's secrets, and
// prints how each request ended.
const prober = `
import sys, http.client
port = int(sys.argv[1])
for method, path, host in [("GET", "/api/stream", "127.0.0.1"), ("GET", "/api/history", "127.0.0.1"), ("POST", "/api/revoke", "127.0.0.1"),
                           ("POST", "/api/enter", "127.0.0.1"), ("GET", "/api/history", "evil.example")]:
    try:
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        headers = {"Host": "%s:%d" % (host, port), "Origin": "http://%s:%d" % (host, port), "Content-Type": "application/json"}
        body = None if method == "GET" else "{}"
        c.request(method, path, body, headers)
        print(c.getresponse().status)
    except ConnectionRefusedError:
        print("unreachable")
    except OSError: # closed at once, before or after the request was sent
        print("closed")
`

// A confined server without the network cannot reach the console. A server with the network (--net)
// reaches the console, but the console refuses its requests, because the server lacks the secrets.
// If the server runs as another user, as servers that root starts do, the console closes the
// connection without an answer.
func TestConfinedServer(t *testing.T) {
	t.Parallel()
	need(t, "python3")
	l := newLab(t)
	l.write("box/probe.py", prober)
	cmd := exec.CommandContext(t.Context(), binary, "console", "--json")
	cmd.Env = l.env
	cmd.Stdin = nil
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the console ended with %v", err)
		}
	}()
	var first struct{ URL string }
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&first); err != nil {
		t.Fatal(err)
	}
	address, _, _ := strings.Cut(strings.TrimPrefix(first.URL, "http://"), "/")
	port := address[strings.LastIndexByte(address, ':')+1:]
	reached := "401 401 401 401 403"
	if os.Geteuid() == 0 {
		reached = "closed closed closed closed closed"
	}
	for _, tt := range []struct{ net, want string }{
		{"", "unreachable unreachable unreachable unreachable unreachable"},
		{"--net", reached},
	} {
		args := []string{"run", "--mcp", "off", "--root", "box=" + l.work + "/box:ro"}
		if tt.net != "" {
			args = append(args, tt.net)
		}
		run := exec.CommandContext(t.Context(), binary, append(args, "--", "python3", l.work+"/box/probe.py", port)...)
		run.Env = l.env
		got, err := run.Output()
		if err != nil {
			t.Fatalf("rootsfs %v: %v", args, err)
		}
		if strings.Join(strings.Fields(string(got)), " ") != tt.want {
			t.Errorf("%q: %s, want %s", tt.net, strings.Fields(string(got)), tt.want)
		}
	}
}
