package race

import (
	"encoding/json"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
)

// jobVar holds the job of a re-run of this test binary.
const jobVar = "ROOTSFS_RACE_JOB"

func TestMain(m *testing.M) {
	lab.Main(m, map[string]func(string) error{jobVar: runJob})
}

// job is the work of one process of the race until it is told to stop.
type job struct {
	Do       string // swap, work, bare
	Src, Out string // the source and the outside tree
	Root     string // where the operations are done: the root in the mount, or the source
	Board    string // file of the counters
	ID       int
}

func runJob(raw string) error {
	var j job
	if err := json.Unmarshal([]byte(raw), &j); err != nil {
		return err
	}
	b, err := openBoard(j.Board)
	if err != nil {
		return err
	}
	switch j.Do {
	case "swap":
		return newSwapper(j, b).run()
	case "work", "bare":
		return newWorker(j, b).run()
	}
	return fmt.Errorf("no job %q", j.Do)
}

// board is memory that all processes of one race share: the counters, and the flag that ends
// the race.
type board struct {
	Stop      atomic.Int64
	Swaps     atomic.Int64
	BareTries atomic.Int64
	BareLeaks atomic.Int64
	Leaks     atomic.Int64
	// Ops counts the attempts of each operation in ops, Done the attempts that succeeded.
	Ops, Done [64]atomic.Int64
}

// openBoard maps the file of a board; the mapping lives as long as the process.
func openBoard(path string) (*board, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	size := int(unsafe.Sizeof(board{}))
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, err
	}
	m, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*board)(unsafe.Pointer(&m[0])), nil
}

// reportLeak counts a leak, and prints the first few.
func (b *board) reportLeak(format string, args ...any) {
	if b.Leaks.Add(1) <= 20 {
		fmt.Fprintf(os.Stderr, "LEAK: "+format+"\n", args...)
	}
}
