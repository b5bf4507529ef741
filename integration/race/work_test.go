package race

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The names that the swapper exchanges, and names below them.
var (
	dirs = []string{"a/dl", "a/dl/sub", "p1/p2", "p1/p2/p3", "m/out", "m/out/sub", "a/il", "a/abs"}
	// parents are the directories that contain f and victim at first, inside and outside.
	parents = []string{"a/dl", "a/dl/sub", "p1/p2/p3", "m/out", "m/out/sub", "a/il", "a/abs"}
	files   = []string{"a/dl/f", "a/dl/sub/f", "a/fl", "a/ff", "p1/p2/p3/f", "m/out/f", "m/out/sub/f", "a/il/f", "a/ifl", "a/abs/f"}
	// links are the exchanged names, which are links at times. The operation readlink uses them.
	links = []string{"a/dl", "a/dl.alt", "a/fl", "a/fl.alt", "p1/p2", "p1/alt", "a/abs", "a/abs.alt", "m/out", "a/il.alt", "a/ifl.alt"}
)

// worker does operations under root until it is told to stop.
type worker struct {
	b          *board
	id         int
	root, src  string
	bare       bool
	outside    map[uint64]string // paths of the canaries, by inode number
	innerInode uint64            // inode number of inner/f
	rnd        *rand.Rand
	op         string
}

func newWorker(j job, b *board) *worker {
	w := &worker{b: b, id: j.ID, root: j.Root, src: j.Src, bare: j.Do == "bare", outside: map[uint64]string{}, rnd: rand.New(rand.NewPCG(1, uint64(j.ID)))}
	_ = filepath.WalkDir(j.Out, func(p string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && !strings.Contains(p, "/park/visitor") && unix.Lstat(p, &st) == nil && st.Uid == canaryUID {
			w.outside[st.Ino] = p
		}
		return nil
	})
	return w
}

func (w *worker) run() error {
	debug.SetPanicOnFault(true) // another worker may truncate a file that is mapped here
	st, err := os.Lstat(w.p("inner/f"))
	if err != nil {
		return err
	}
	w.innerInode = inodeOf(st)
	if len(w.outside) < 15 {
		return fmt.Errorf("only %d canaries are known", len(w.outside))
	}
	for w.b.Stop.Load() == 0 {
		if w.bare {
			if w.b.BareTries.Add(1) > 20_000 {
				time.Sleep(time.Millisecond) // these tries suffice; leave the processors to the others
			}
			_ = w.read()
			continue
		}
		// A round does every operation once, in a random order.
		for _, i := range w.rnd.Perm(len(ops)) {
			w.try(i)
		}
	}
	return nil
}

// try does one operation. It may fail, because names come and go, but must return.
func (w *worker) try(i int) {
	defer func() {
		if p := recover(); p != nil {
			if _, fault := p.(interface{ Addr() uintptr }); !fault {
				panic(p)
			}
		}
	}()
	w.op = ops[i].name
	w.b.Ops[i].Add(1)
	if ops[i].do(w) == nil {
		w.b.Done[i].Add(1)
	}
}

func (w *worker) p(rel string) string { return filepath.Join(w.root, rel) }

func (w *worker) pick(list []string) string { return list[w.rnd.IntN(len(list))] }

func (w *worker) file() string   { return w.p(w.pick(files)) }
func (w *worker) dir() string    { return w.p(w.pick(dirs)) }
func (w *worker) parent() string { return w.p(w.pick(parents)) }

// own returns the path of a name that only this worker uses, in an exchanged directory.
func (w *worker) own(kind string) string {
	return filepath.Join(w.parent(), fmt.Sprintf("%s-%d", kind, w.id))
}

func (w *worker) leak(format string, args ...any) {
	if w.bare {
		w.b.BareLeaks.Add(1)
		return
	}
	w.b.reportLeak(w.op+": "+format, args...)
}

// checkBytes looks for a canary in bytes that came from the root.
func (w *worker) checkBytes(path string, b []byte) {
	if strings.Contains(string(b), canary) {
		w.leak("%s: content or name of a canary: %.60q", path, b)
	}
}

// checkAttributes checks attributes for those of a canary.
func (w *worker) checkAttributes(path string, st *unix.Stat_t) {
	if p, ok := w.outside[st.Ino]; ok || st.Uid == canaryUID || st.Mtim.Sec == canaryTime {
		w.leak("%s: attributes of a canary %s: ino %d uid %d mtime %d", path, p, st.Ino, st.Uid, st.Mtim.Sec)
	}
}

// checkFile looks for a canary in an open file: in its attributes, its first bytes and its extended
// attribute canaryAttr.
func (w *worker) checkFile(path string, fd int) {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil {
		w.checkAttributes(path, &st)
	}
	buf := make([]byte, 256)
	if n, err := unix.Pread(fd, buf, 0); err == nil {
		w.checkBytes(path, buf[:n])
	}
	if n, err := unix.Fgetxattr(fd, canaryAttr, buf); err == nil {
		w.checkBytes(path, buf[:n])
	}
}

// with opens a file, runs f on its descriptor and closes it. O_NONBLOCK lets the race end even if
// the open reaches the FIFO of the source. Such an open is a leak.
func (w *worker) with(path string, flags int, f func(fd int) error) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o666)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
		w.leak("%s: a FIFO of the source was opened", path)
	}
	return f(fd)
}

// read opens a file and examines it. Bare opens are this operation without rootsfs, and must leak.
func (w *worker) read() error {
	path := w.file()
	return w.with(path, unix.O_RDONLY, func(fd int) error { w.checkFile(path, fd); return nil })
}
