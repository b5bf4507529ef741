# A database opens its files with O_DIRECT.
import mmap
import os

page = mmap.mmap(-1, 8192)
page.write(b"q" * 8192)
f = os.open("db", os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
assert os.writev(f, [page]) == 8192
back = mmap.mmap(-1, 8192)
assert os.preadv(f, [back], 0) == 8192
assert back[:] == page[:]
with open(os.environ["SRC"] + "/db", "rb") as g:
    assert g.read() == b"q" * 8192
