# What is written after a rename, through an open file or below a renamed directory,
# reaches the new name; a directory that is not empty is not replaced.
import errno
import os

src = os.environ["SRC"]
with open("a", "w") as f:
    f.write("one")
with open("a", "r+") as f:
    os.rename("a", "b")
    f.write("two")
with open(f"{src}/b") as f:
    assert f.read() == "two"
os.mkdir("d")
os.rename("d", "e")
open("e/new", "w").close()
assert os.listdir(f"{src}/e") == ["new"]
assert not os.path.exists("d") and not os.path.exists(f"{src}/d")
os.mkdir("full")
open("full/x", "w").close()
try:
    os.rename("e", "full")
except OSError as e:
    assert e.errno == errno.ENOTEMPTY, e
else:
    raise SystemExit("a full directory was replaced")
for i in range(100):
    with open("tmp", "w") as f:
        f.write(str(i))
    os.rename("tmp", "now")
    with open("now") as f:
        assert f.read() == str(i)
    if i % 2:
        os.unlink("now")
