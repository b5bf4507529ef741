# Times that are set while a written file is open stay after it is closed (cp -p), and
# times before 1970 and after 2038 are kept to the nanosecond.
import os

src = os.environ["SRC"]
with open("t", "wb") as f:
    f.write(b"x" * 300000)
    f.flush()
    os.utime("t", ns=(10**18 + 1, 10**18 + 123456789))
assert os.stat("t").st_mtime_ns == 10**18 + 123456789, os.stat("t")
assert os.stat(f"{src}/t").st_mtime_ns == 10**18 + 123456789
year = 365 * 86400 * 10**9
for t in (-1, -40 * year - 5, 2**31 * 10**9 + 1, 2**33 * 10**9 + 999999999):
    os.utime("t", ns=(t, t))
    want = os.stat(f"{src}/t").st_mtime_ns
    assert os.stat("t").st_mtime_ns == want == t, (t, os.stat("t").st_mtime_ns, want)
