# A signal ends the wait for a lock, and the wait leaves no lock behind that nobody holds.
import fcntl
import os
import signal


class Interrupted(Exception):
    pass


def interrupt(*_):
    raise Interrupted


signal.signal(signal.SIGALRM, interrupt)
for lock in (fcntl.flock, fcntl.lockf):
    open("l", "w").close()
    r, w = os.pipe()
    holder = os.fork()
    if holder == 0:
        f = os.open("l", os.O_RDWR)
        lock(f, fcntl.LOCK_EX)
        os.write(w, b"x")
        signal.pause()
    os.read(r, 1)
    f = os.open("l", os.O_RDWR)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        lock(f, fcntl.LOCK_EX)
    except Interrupted:
        pass
    else:
        raise SystemExit(f"{lock.__name__} got a lock that another process holds")
    os.close(f)
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    f = os.open("l", os.O_RDWR)
    lock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the lock is free
