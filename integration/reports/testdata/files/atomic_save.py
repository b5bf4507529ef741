# A program that watches a directory in the mount is told the final name of a file that
# another program in the mount saves by rename.
import ctypes
import os
import select
import struct

IN_MOVED_TO = 0x80
libc = ctypes.CDLL(None)
fd = libc.inotify_init1(os.O_NONBLOCK)
assert libc.inotify_add_watch(fd, b".", IN_MOVED_TO) > 0
if os.fork() == 0:
    with open("app.tmp", "w") as f:
        f.write("1")
    os.rename("app.tmp", "app")
    os._exit(0)
os.wait()
assert select.select([fd], [], [], 30)[0], "no event"
event = os.read(fd, 4096)
_, mask, _, size = struct.unpack_from("iIII", event)
assert mask == IN_MOVED_TO and event[16:16 + size].rstrip(b"\0") == b"app", event
