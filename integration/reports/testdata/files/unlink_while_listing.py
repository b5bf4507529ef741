# One pass over a directory deletes each entry as it is listed: no entry is skipped.
import os

os.mkdir("d")
for i in range(600):
    open(f"d/{'n' * 60}{i}", "w").close()
listed = 0
with os.scandir("d") as entries:
    for entry in entries:
        listed += 1
        os.unlink(entry.path)
assert listed == 600, f"{listed} of 600 entries were listed"
os.rmdir("d")
