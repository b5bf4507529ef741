# A name is bytes: each of these is made, listed as it was made, and opened again.
import os

names = [
    b"a\xff\xfeb", b"new\nline", b"tab\t", b" lead", b"trail ", b"trail.", b"back\\slash", b'q"uote',
    b"-rf", b"*", b"CON", b"a:b", "e\u0301".encode(), "\u00e9".encode(), b"\xed\xa0\x80",
]
for n in names:
    with open(n, "wb") as f:
        f.write(n)
for n in names:
    with open(n, "rb") as f:
        assert f.read() == n
assert sorted(os.listdir(b".")) == sorted(names), os.listdir(b".")
assert sorted(os.listdir(os.environb[b"SRC"])) == sorted(names)
