# A reader that keeps a log open sees each line that the host appends (tail -f).
import os
import time

src = os.environ["SRC"]
with open(f"{src}/log", "w") as f:
    f.write("start\n")
log = open("log")
assert log.read() == "start\n"
for i in range(20):
    with open(f"{src}/log", "a") as f:
        f.write(f"{i}\n")
    got = ""
    for _ in range(500):
        got += log.read()
        if got:
            break
        time.sleep(0.01)
    assert got == f"{i}\n", (i, got)
