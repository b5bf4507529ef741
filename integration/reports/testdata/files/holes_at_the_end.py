# SEEK_DATA at the end of a file and in its last hole is ENXIO; a copier that is given an
# offset instead never ends.
import errno
import os

f = os.open("sparse", os.O_RDWR | os.O_CREAT)
os.truncate(f, 1 << 20)
os.pwrite(f, b"x" * 4096, 65536)
for offset in (69632, 1 << 20):
    try:
        got = os.lseek(f, offset, os.SEEK_DATA)
    except OSError as e:
        assert e.errno == errno.ENXIO, e
    else:
        raise SystemExit(f"SEEK_DATA at {offset} gave {got}")
assert os.system("cp --sparse=auto sparse copy") == 0
with open("sparse", "rb") as a, open("copy", "rb") as b:
    assert a.read() == b.read(), "the copy differs"
