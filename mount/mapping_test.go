//go:build linux

package mount

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/childfs"
)

// mapping is a mapping of a file of this process's mount, in the child process. A page fault in
// this process would wait for the mount, and meanwhile block what the mount needs to answer. This is
// the lock of the address space, which is needed to create threads and to allocate memory, or a
// processor of Go's runtime, for which the garbage collector waits.
type mapping struct {
	t        *testing.T
	id       int
	unmapped bool
}

// pages has the mappings of the child.
var pages struct {
	mu  sync.Mutex // guards the field below
	all [][]byte
}

func pageOf(id int) []byte {
	pages.mu.Lock()
	defer pages.mu.Unlock()
	return pages.all[id]
}

var (
	mapPage = childfs.In("mapPage", func(fd, size, prot int) (int, error) {
		page, err := unix.Mmap(fd, 0, size, prot, unix.MAP_SHARED)
		pages.mu.Lock()
		defer pages.mu.Unlock()
		pages.all = append(pages.all, page)
		return len(pages.all) - 1, err
	})
	// loadPage and storePage make the kernel read and write the mapping, so that a page that
	// cannot be loaded is an error instead of a signal.
	loadPage = childfs.In("loadPage", func(id int) error {
		return withPipe(func(r, w int) error { return second(unix.Write(w, pageOf(id))) })
	})
	storePage = childfs.In("storePage", func(id int, text string) error {
		return withPipe(func(r, w int) error {
			if _, err := unix.Write(w, []byte(text)); err != nil {
				return err
			}
			return second(unix.Read(r, pageOf(id)))
		})
	})
	unmapPage = childfs.In("unmapPage", func(id int) error { return unix.Munmap(pageOf(id)) })
)

func withPipe(f func(r, w int) error) error {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(ends[0])
	defer unix.Close(ends[1])
	return f(ends[0], ends[1])
}

// mapFile makes a shared mapping of the beginning of an open file. The mapping keeps the file
// open.
func mapFile(t *testing.T, f *childfs.File, size, prot int) *mapping {
	t.Helper()
	id, err := mapPage(int(f.Fd()), size, prot)
	if err != nil {
		t.Fatalf("mapping the file: %v", err)
	}
	m := &mapping{t: t, id: id}
	t.Cleanup(m.unmap)
	return m
}

// load reads the mapping. It returns an error if a page cannot be loaded.
func (m *mapping) load() error { return loadPage(m.id) }

// store writes to the mapping.
func (m *mapping) store(text string) error { return storePage(m.id, text) }

// unmap ends the mapping.
func (m *mapping) unmap() {
	if m.unmapped {
		return
	}
	m.unmapped = true
	if err := unmapPage(m.id); err != nil {
		m.t.Errorf("unmapping a file: %v", err)
	}
}
