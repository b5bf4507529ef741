"""A server on no SDK at all: lines in, lines out, as a script has them."""
import json
import sys

asked = {}


def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(request, text):
    send({"jsonrpc": "2.0", "id": request, "result": {"content": [{"type": "text", "text": text}]}})


print("a script that greets on standard output", flush=True)
for line in sys.stdin:
    m = json.loads(line)
    method = m.get("method")
    if method == "initialize":
        caps = m["params"]["capabilities"]
        send({"jsonrpc": "2.0", "id": m["id"], "result": {
            "protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}},
            "serverInfo": {"name": "script", "version": json.dumps(caps.get("roots", {}), sort_keys=True)}}})
    elif method == "tools/list":
        schema = {"type": "object"}
        send({"jsonrpc": "2.0", "id": m["id"], "result": {"tools": [
            {"name": name, "inputSchema": schema} for name in ("roots", "read", "echo")]}})
    elif method == "tools/call":
        tool, args = m["params"]["name"], m["params"].get("arguments", {})
        if tool == "echo":
            answer(m["id"], json.dumps(args))
        else:
            key = "ask-%d" % len(asked)
            asked[key] = m["id"]
            if tool == "roots":
                send({"jsonrpc": "2.0", "id": key, "method": "roots/list"})
            else:
                send({"jsonrpc": "2.0", "id": key, "method": "files/read", "params": args})
    elif method is None and m.get("id") in asked:
        answer(asked.pop(m["id"]), json.dumps(m.get("result", m.get("error"))))
    elif method and "id" in m:
        send({"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32601, "message": "no " + method}})
