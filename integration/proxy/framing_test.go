package proxy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// tsHost is a host on the TypeScript SDK, with roots of its own. Its arguments are the command line
// of the server. The host ends when the server has ended.
const tsHost = `
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { ListRootsRequestSchema } from "@modelcontextprotocol/sdk/types.js";
const [command, ...args] = process.argv.slice(2);
const host = new Client({ name: "ts-host", version: "1" }, { capabilities: { roots: {} } });
host.setRequestHandler(ListRootsRequestSchema, async () => ({ roots: [{ uri: "file:///home/the-owner" }] }));
host.onerror = () => {};
const ended = new Promise((end) => { host.onclose = end; });
await host.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" }));
await ended;
`

// framer is a server that answers initialize. After notifications/initialized it writes the text in
// its argument, a JSON string, and a ping. From then on it copies each line of its input to standard
// error. It ends at the answer to the ping.
const framer = `
import { createInterface } from "node:readline";
for await (const line of createInterface({ input: process.stdin })) {
  const m = JSON.parse(line);
  if (m.method === "initialize") {
    const result = { protocolVersion: m.params.protocolVersion, capabilities: {}, serverInfo: { name: "s", version: "1" } };
    process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id: m.id, result }) + "\n");
  } else if (m.method === "notifications/initialized") {
    process.stdout.write(JSON.parse(process.argv[2]) + '{"jsonrpc":"2.0","id":"last","method":"ping"}\n');
  } else {
    console.error("the server reads", line);
    if (m.id === "last") process.exit(0);
  }
}
`

// plain is a request for roots. plain and framings are written as the inside of a JSON string.
const plain = `{\"jsonrpc\":\"2.0\",\"id\":666,\"method\":\"roots/list\"}`

// framings are texts in which some hosts find a request for roots.
var framings = map[string]string{
	"plain": plain + `\n`, "CR at both ends": `\r` + plain + `\r\n`, "two lines": `{\"a\":\n` + plain + `\n}\n`,
	"in a string":  `{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":\"\n` + plain + `\n\"}\n`,
	"NBSP, a mark": `\u00a0` + plain + `\n\ufeff` + plain + `\n\u0000` + plain + `\n`, "blanks": ` \t` + plain + ` \r\r\n`,
	"two on a line":            plain + plain + `\n` + plain + `\r` + plain + `\n`,
	"a second key":             `{\"jsonrpc\":\"2.0\",\"id\":666,\"method\":\"ping\",\"method\":\"roots/list\"}\n`,
	"a second key, escaped":    `{\"jsonrpc\":\"2.0\",\"id\":666,\"method\":\"ping\",\"\\u006dethod\":\"roots/list\"}\n`,
	"a second key in capitals": `{\"jsonrpc\":\"2.0\",\"id\":666,\"method\":\"ping\",\"Method\":\"roots/list\"}\n`,
	"a literal, an overflow":   `{\"jsonrpc\":\"2.0\",\"id\":666,\"method\":\"roots/list\",\"x\":[NaN,-Infinity,1e999]}\n`,
	"second in a batch":        `[{\"a\":1},` + plain + `]\n`,
	"in an answer":             `{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"inputRequests\":{\"r\":` + plain + `}}}\n`,
}

// pythonHost reads as the host of the Python SDK does: it decodes UTF-8, splits lines at LF
// alone, and parses each line with the json module. It answers every request for roots, in batches
// and in results, too.
const pythonHost = `
import codecs, json, subprocess, sys
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def say(m):
    try:
        server.stdin.write((json.dumps(m) + "\n").encode())
        server.stdin.flush()
    except BrokenPipeError:
        pass
def act(m):
    if isinstance(m, list):
        return [act(one) for one in m]
    if not isinstance(m, dict):
        return
    inputs = (m.get("result") or m.get("params") or {}).get("inputRequests") or {}
    asked = [m] + list(inputs.values())
    if any(one.get("method") == "roots/list" for one in asked):
        say({"jsonrpc": "2.0", "id": m.get("id"), "result": {"roots": [{"uri": "file:///home/the-owner"}]}})
    elif m.get("method") == "ping":
        say({"jsonrpc": "2.0", "id": m.get("id"), "result": {}})
    elif m.get("id") == 1:
        say({"jsonrpc": "2.0", "method": "notifications/initialized"})
say({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": {"name": "h", "version": "1"}}})
decode, rest = codecs.getincrementaldecoder("utf-8")("strict").decode, ""
while chunk := server.stdout.read1():
    *lines, rest = (rest + decode(chunk)).split("\n")
    for line in lines:
        try:
            m = json.loads(line)
        except ValueError:
            continue
        act(m)
`

// A server behind the proxy does not get the host's own roots with any of the framings. The host
// reads as the host of the Python SDK does.
func TestFraming_PythonHost(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	server := filepath.Join(t.TempDir(), "framer.mjs")
	testkit.Must(t, os.WriteFile(server, []byte(framer), 0o600))
	run := func(argv []string) string {
		cmd := exec.Command("python3", append([]string{"-c", pythonHost}, argv...)...)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), `"last"`) {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	for name, framing := range framings {
		without := run([]string{"node", server, `"` + framing + `"`})
		if (name == "plain" || name == "a second key" || name == "in an answer") && !strings.Contains(without, "the-owner") {
			t.Fatalf("%s: without the proxy, the host sends no roots, so the test proves nothing: %s", name, without)
		}
		if out := run(newProxyRunner(t).command("node", server, `"`+framing+`"`)); strings.Contains(out, "the-owner") {
			t.Errorf("%s: the host sent its roots: %s", name, out)
		}
	}
}

// A server behind the proxy does not get the host's own roots with any of the framings. The host is
// a real one on the TypeScript SDK. Without the proxy, the server gets the roots by a plain
// request.
func TestFraming_TypeScriptHost(t *testing.T) {
	moduleDir := filepath.Dir(needPeers(t).Module())
	script := func(text string) string {
		f, err := os.CreateTemp(moduleDir, "framing-*.mjs") // beside the modules that it imports
		testkit.Must(t, err)
		t.Cleanup(func() { _ = os.Remove(f.Name()) })
		_, err = f.WriteString(text)
		testkit.Must(t, err)
		testkit.Must(t, f.Close())
		return f.Name()
	}
	host, server := script(tsHost), script(framer)
	run := func(argv []string) string {
		cmd := exec.Command("node", append([]string{host}, argv...)...)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), `"last"`) {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if out := run([]string{"node", server, `"` + plain + `\n"`}); !strings.Contains(out, "the-owner") {
		t.Fatalf("without the proxy, the host sends no roots, so the test proves nothing: %s", out)
	}
	for name, framing := range framings {
		if out := run(newProxyRunner(t).command("node", server, `"`+framing+`"`)); strings.Contains(out, "the-owner") {
			t.Errorf("%s: the host sent its roots: %s", name, out)
		}
	}
}
