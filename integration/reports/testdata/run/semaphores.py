# Semaphores, queues and shared memory between processes need /dev/shm.
import multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import shared_memory

with mp.Semaphore():
    pass
q = mp.Queue()
p = mp.Process(target=q.put, args=(1,))
p.start()
assert q.get() == 1
p.join()
m = shared_memory.SharedMemory(create=True, size=1 << 20)
m.buf[0] = 1
m.close()
m.unlink()
with ProcessPoolExecutor(2) as pool:
    assert list(pool.map(abs, [-1, -2])) == [1, 2]
