package beneath

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// isPolled reports whether an epoll instance of this process watches a descriptor.
func isPolled(t *testing.T, fd uintptr) bool {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // the descriptor of the listing, which is closed
		}
		for line := range strings.Lines(string(text)) {
			var target uintptr
			if n, _ := fmt.Sscanf(line, "tfd: %d", &target); n == 1 && target == fd {
				return true
			}
		}
	}
	return false
}

// Changes of a watched directory, most of which are this process's own, wake no thread while
// nobody reads the events: the runtime's poller does not have the descriptor. Close ends a Read
// that waits, and an event that came before is read.
func TestInotifyIsNotPolled(t *testing.T) {
	n, err := NewInotify()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := n.Add(int(d.Fd()), NotifyMask); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "new"), 0o755); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	events, err := n.Read(buf)
	if err != nil || len(events) != 1 || events[0].Name != "new" || events[0].Mask != unix.IN_CREATE|unix.IN_ISDIR {
		t.Errorf("read %v, %v", events, err)
	}
	if isPolled(t, n.f.Fd()) {
		t.Error("the poller watches the descriptor")
	}
	done := make(chan error)
	go func() {
		_, err := n.Read(buf)
		done <- err
	}()
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err == nil {
		t.Error("a closed instance was read")
	}
	if n.f.Close() == nil {
		t.Error("the descriptor is open after Close")
	}
}
