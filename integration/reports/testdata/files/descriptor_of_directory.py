# A directory that is kept open lists what was made after it was opened, by the program
# and by the host.
import os

src = os.environ["SRC"]
os.mkdir("d")
d = os.open("d", os.O_RDONLY)
assert os.listdir(d) == []
open("d/own", "w").close()
assert os.listdir(d) == ["own"]
open(f"{src}/d/host", "w").close()
assert sorted(os.listdir(d)) == ["host", "own"], os.listdir(d)
