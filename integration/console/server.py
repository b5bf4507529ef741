# An MCP server for the tests, confined as any other: it sends the lines that the
# test puts into the file "say" of its root, and keeps what it is told in "heard".
import sys, threading, time, os

here = os.path.dirname(os.path.abspath(__file__))

def hear():
    try:
        for line in sys.stdin.buffer:
            try:
                with open(here + "/heard", "ab") as f:
                    f.write(line)
            except OSError:
                pass  # the root is read-only or revoked by now
    finally:
        os._exit(0)  # the host has hung up

threading.Thread(target=hear, daemon=True).start()
said = 0
while True:
    try:
        with open(here + "/say") as f:
            text = f.read()
    except OSError:
        text = ""
    lines = text[said:].rpartition("\n")
    if lines[0]:
        sys.stdout.write(lines[0] + "\n")
        sys.stdout.flush()
        said += len(lines[0]) + 1
    time.sleep(0.25) # each look asks the mount several times
