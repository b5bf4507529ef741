package transport

import (
	"fmt"
	"log"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// goFUSE is go-fuse's server, for comparison.
const goFUSE Kind = "go-fuse"

// serveGoFUSE serves a mount with go-fuse's server.
func serveGoFUSE(device *os.File, fs fuse.RawFileSystem) error {
	s, err := fuse.NewServer(fs, fmt.Sprintf("/dev/fd/%d", device.Fd()), &fuse.MountOptions{
		MaxWrite: 512 << 10, Name: "t", MaxBackground: 64, Logger: log.Default(), DisableSplice: true,
	})
	if err != nil {
		return err
	}
	fmt.Println(goFUSE, nil)
	go obey(nil, fs.(*testFS))
	s.Serve()
	runtime.KeepAlive(device)
	return nil
}

// cpuTime returns the processor time that this process has used.
func cpuTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// lastCreated numbers the files that the benchmarks create, so that each name is new.
var lastCreated atomic.Int64

// benchCalls are the calls that the benchmarks make, with the number of requests that
// each takes. Nothing is cached. RELEASE is not waited for.
var benchCalls = []struct {
	name     string
	requests int
	call     func(dir string, fd int) error
}{
	{"lookup", 1, func(dir string, _ int) error {
		if err := unix.Access(dir+"/absent", unix.F_OK); err != unix.ENOENT {
			return fmt.Errorf("an absent name: %w", err)
		}
		return nil
	}},
	{"getattr", 1, func(_ string, fd int) error {
		var st unix.Stat_t
		return unix.Fstat(fd, &st)
	}},
	{"open,release", 4, func(dir string, _ int) error { // LOOKUP, OPEN, FLUSH, RELEASE
		fd, err := unix.Open(dir+"/fa", unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}},
	{"create,release", 4, func(dir string, _ int) error { // LOOKUP, CREATE, FLUSH, RELEASE
		fd, err := unix.Open(dir+"/new"+strconv.FormatInt(lastCreated.Add(1), 10), unix.O_WRONLY|unix.O_CREAT, 0o600)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}},
}

// BenchmarkRequests measures a file system that answers at once: the requests a second of 1 to
// 32 threads, and the processor time of the server for each request.
func BenchmarkRequests(b *testing.B) {
	for _, c := range benchCalls {
		for _, threads := range []int{1, 2, 4, 8, 32} {
			for _, kind := range []Kind{IOUring, Plain, goFUSE} {
				b.Run(fmt.Sprintf("%s/%d/%s", c.name, threads, kind), func(b *testing.B) {
					s := startServer(b, string(kind))
					if !strings.HasPrefix(s.kind, string(kind)+" ") {
						b.Fatalf("served by %s", s.kind)
					}
					fd, err := unix.Open(s.path("fb"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
					testkit.Must(b, err)
					defer unix.Close(fd)
					before := s.number("cpu")
					b.ResetTimer()
					callFrom(b, threads, func() error { return c.call(s.dir, fd) })
					b.StopTimer()
					n := float64(b.N * c.requests)
					b.ReportMetric(n/b.Elapsed().Seconds()/1000, "krequests/s")
					b.ReportMetric(float64(s.number("cpu")-before)/n/1000, "cpu-us/request")
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	}
}

// callFrom makes b.N calls from a number of threads.
func callFrom(b *testing.B, threads int, call func() error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads)) // a call occupies a processor of the runtime for a while
	var all sync.WaitGroup
	var n atomic.Int64
	for range threads {
		all.Go(func() {
			for n.Add(1) <= int64(b.N) {
				if err := call(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// number asks the server for the number that verb names.
func (s *testServer) number(verb string) int {
	n, err := strconv.Atoi(s.ask(verb))
	testkit.Must(s.t, err)
	return n
}
