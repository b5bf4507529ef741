# The working directory keeps its name while the host changes it and what is around it.
import os

src = os.environ["SRC"]
os.makedirs("w/sub")
os.chdir("w/sub")
here = os.getcwd()
for i in range(50):
    open(f"{src}/w/f{i}", "w").close()
    open(f"{src}/w/sub/f{i}", "w").close()
    os.utime(f"{src}/w/sub")
    os.chmod(f"{src}/w/sub", 0o755 - i % 2)
    os.listdir("..")
    os.stat("../sub")
    assert os.getcwd() == here
    assert os.readlink("/proc/self/cwd") == here
