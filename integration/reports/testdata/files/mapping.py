# A mapping shows what the host wrote after it was mapped: by itself where the source is
# watched, and at --cache strict when a program in the mount looks at the file again.
import mmap
import os
import time

src = os.environ["SRC"]
with open("m", "wb") as f:
    f.write(b"a" * 8192)
f = open("m", "r+b")
m = mmap.mmap(f.fileno(), 0)
m[0:3] = b"xyz"
m.flush()
with open(f"{src}/m", "rb") as g:
    assert g.read(3) == b"xyz"
assert m[4096:4100] == b"aaaa"
with open(f"{src}/m", "r+b") as g:
    g.seek(4096)
    g.write(b"HOST")
for _ in range(500):
    if os.environ["CACHE"] == "strict":
        with open("m", "rb") as g:
            assert g.read()[4096:4100] == b"HOST", "a read gave old bytes"
    if m[4096:4100] == b"HOST":
        break
    time.sleep(0.01)
else:
    raise SystemExit("the mapping keeps what the host replaced")
