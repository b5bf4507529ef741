# A script runs right after it was written; a program that runs cannot be written to, and
# can be replaced by rename.
import errno
import os
import shutil
import subprocess

for _ in range(50):
    with open("script", "w") as f:
        f.write("#!/bin/sh\nexit 3\n")
    os.chmod("script", 0o755)
    assert subprocess.run(["./script"]).returncode == 3
    os.unlink("script")
shutil.copy("/bin/cat", "program")
p = subprocess.Popen(["./program"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
p.stdin.write(b"up\n")
p.stdin.flush()
assert p.stdout.readline() == b"up\n"  # it runs by now
try:
    open("program", "r+b")
except OSError as e:
    assert e.errno == errno.ETXTBSY, e
else:
    raise SystemExit("a running program was opened for writing")
shutil.copy("/bin/true", "next")
os.rename("next", "program")
assert subprocess.run(["./program"]).returncode == 0
p.stdin.close()
assert p.wait() == 0
