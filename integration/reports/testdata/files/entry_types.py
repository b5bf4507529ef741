# A listing has the type and the inode number of each entry, and find descends into every
# directory whatever the link count of its parent is.
import os
import stat

os.makedirs("a/b/deep")
os.mkdir("a/c")
open("a/f", "w").close()
os.symlink("x", "a/l")
kinds = {"b": stat.S_IFDIR, "c": stat.S_IFDIR, "f": stat.S_IFREG, "l": stat.S_IFLNK}
with os.scandir("a") as entries:
    for e in entries:
        kind = (
            stat.S_IFDIR if e.is_dir(follow_symlinks=False)
            else stat.S_IFLNK if e.is_symlink()
            else stat.S_IFREG if e.is_file(follow_symlinks=False)
            else 0
        )
        assert kind == kinds.pop(e.name), e
        assert e.inode() == os.lstat(e.path).st_ino, e
assert not kinds, kinds
assert os.popen("find a -type d | wc -l").read().strip() == "4"
