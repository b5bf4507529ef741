package mount

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/incoming"
)

// requestNames are the names, by opcode, of the requests that a step of TestRequestsForEachName may
// make. RELEASE and FORGET are not counted: no program waits for them.
var requestNames = map[uint32]string{
	1: "LOOKUP", 3: "GETATTR", 4: "SETATTR", 9: "MKDIR", 10: "UNLINK", 11: "RMDIR", 12: "RENAME", 13: "LINK", 14: "OPEN", 15: "READ",
	16: "WRITE", 22: "GETXATTR", 27: "OPENDIR", 28: "READDIR", 35: "CREATE", 44: "READDIRPLUS", 45: "RENAME",
}

// requestCounter counts the requests of programs by kind.
type requestCounter struct {
	mu sync.Mutex // guards the field below
	n  map[string]int
}

// countRequests begins to count the requests of programs. The caller must call countRequests before
// it mounts.
func countRequests(t *testing.T) *requestCounter {
	t.Helper()
	c := &requestCounter{n: map[string]int{}}
	before := incoming.Observe
	incoming.Observe = func(h *fuse.InHeader) {
		name := requestNames[h.Opcode]
		if name == "" {
			name = fmt.Sprintf("request %d", h.Opcode)
		}
		c.mu.Lock()
		c.n[name]++
		c.mu.Unlock()
		before(h)
	}
	t.Cleanup(func() { incoming.Observe = before }) // runs after the mount has ended
	return c
}

// take returns the counts since the last call.
func (c *requestCounter) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n = map[string]int{}
	return n
}

const (
	countedNames = 50
	// strayRequests is the largest number of requests of one kind that a step may make besides
	// the requests for each name. At its beginning a step makes such requests for the
	// directories above the names.
	strayRequests = 5
)

// eachName calls f once for each of the countedNames files in dir: with the path of the file, and
// with a second path in dir that belongs to the file.
func eachName(dir string, f func(path, beside string) error) error {
	for i := range countedNames {
		if err := f(filepath.Join(dir, fmt.Sprintf("f%d", i)), filepath.Join(dir, fmt.Sprintf("g%d", i))); err != nil {
			return err
		}
	}
	return nil
}

// writeNew makes a new file and writes a text to it.
func writeNew(path, _ string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString("text")
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func lookAt(path, _ string) error { return second(os.Lstat(path)) }

func readWhole(path, _ string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return second(f.Read(make([]byte, 100)))
}

// countedSteps are the steps of a program that works on all names in a directory, in the order in
// which the program does them. Each step has the requests that it makes for each name. The kernel
// drops the attributes of a directory after each change of a name in it, and those of a file after
// a WRITE, a READ and a RENAME, so it asks for them by a GETATTR. It always looks up a name that
// must be new (O_EXCL, mkdir(2)), and the target of a rename.
var countedSteps = []struct {
	name string
	do   func(dir string) error
	want string // the requests for each name; a kind listed twice means two requests
}{
	{"make files", childfs.In("counted.make", func(dir string) error { return eachName(dir, writeNew) }), "GETATTR LOOKUP CREATE GETXATTR WRITE"},
	{"look at made files", childfs.In("counted.look", func(dir string) error { return eachName(dir, lookAt) }), "GETATTR"},
	{"look at them again", childfs.In("counted.again", func(dir string) error { return eachName(dir, lookAt) }), ""},
	{"read made files", childfs.In("counted.read", func(dir string) error { return eachName(dir, readWhole) }), "OPEN READ"},
	{"read them again", childfs.In("counted.reread", func(dir string) error { return eachName(dir, readWhole) }), "OPEN"},
	{"set their modes", childfs.In("counted.chmod", func(dir string) error {
		return eachName(dir, func(path, _ string) error { return os.Chmod(path, 0o600) })
	}), "SETATTR"},
	{"look at them", childfs.In("counted.looks", func(dir string) error { return eachName(dir, lookAt) }), ""},
	{"list them", childfs.In("counted.list", func(dir string) error { return second(os.ReadDir(dir)) }), ""},
	{"rename files", childfs.In("counted.rename", func(dir string) error { return eachName(dir, unix.Rename) }), "GETATTR LOOKUP RENAME"},
	{"give second names", childfs.In("counted.link", func(dir string) error {
		return eachName(dir, func(path, beside string) error { return os.Link(beside, path) })
	}), "GETATTR LOOKUP LINK"},
	{"remove files", childfs.In("counted.remove", func(dir string) error {
		return eachName(dir, func(path, _ string) error { return os.Remove(path) })
	}), "GETATTR UNLINK"},
	{"make directories", childfs.In("counted.mkdir", func(dir string) error {
		return eachName(dir, func(path, _ string) error { return os.Mkdir(path, 0o755) })
	}), "GETATTR LOOKUP MKDIR"},
	{"look at made directories", childfs.In("counted.lookdir", func(dir string) error { return eachName(dir, lookAt) }), ""},
	{"list made directories", childfs.In("counted.lists", func(dir string) error {
		return eachName(dir, func(path, _ string) error { return second(os.ReadDir(path)) })
	}), "OPENDIR READDIRPLUS READDIRPLUS"},
	{"list them again", childfs.In("counted.relist", func(dir string) error {
		return eachName(dir, func(path, _ string) error { return second(os.ReadDir(path)) })
	}), "OPENDIR"},
	{"remove directories", childfs.In("counted.rmdir", func(dir string) error {
		return eachName(dir, func(path, _ string) error { return os.Remove(path) })
	}), "GETATTR RMDIR"},
}

// A name costs no more requests than the kernel needs: the kernel caches a file that a program has
// made or changed as it caches a file that was looked up. The mount's own changes, which the watch
// of the source reports too, drop nothing from that cache.
func TestRequestsForEachName(t *testing.T) {
	counter := countRequests(t)
	m := newTestMount(t, guard.ReadWrite, nil)
	dir := filepath.Join(m.root, "dir")
	testkit.Must(t, childfs.Mkdir(dir, 0o755))
	for _, step := range countedSteps {
		counter.take()
		testkit.Must(t, step.do(dir))
		want := map[string]int{}
		for kind := range strings.FieldsSeq(step.want) {
			want[kind] += countedNames
		}
		got := counter.take()
		for _, kind := range slices.Sorted(maps.Keys(got)) {
			if got[kind] > want[kind]+strayRequests {
				t.Errorf("to %s: %d %s for %d names, want at most %d", step.name, got[kind], kind, countedNames, want[kind]+strayRequests)
			}
		}
		t.Logf("to %s: %v", step.name, got)
	}
}
