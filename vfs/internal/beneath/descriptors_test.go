package beneath

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// A failure to open /proc/self/fd because descriptors are short is not remembered. The next
// call tries again, and an open descriptor is kept.
func TestProcFDRecoversFromPressure(t *testing.T) {
	procDir.mu.Lock()
	have, open, calls := procDir.fd, openProc, 0
	procDir.fd = 0
	procDir.mu.Unlock()
	openProc = func() (int, error) {
		if calls++; calls == 1 {
			return -1, unix.EMFILE
		}
		return open()
	}
	defer func() {
		procDir.mu.Lock()
		if have != 0 {
			_ = unix.Close(procDir.fd)
			procDir.fd = have
		}
		openProc = open
		procDir.mu.Unlock()
	}()
	if _, err := procFD(); !errors.Is(err, unix.EMFILE) {
		t.Fatalf("without descriptors: %v", err)
	}
	for range 2 {
		if _, err := procFD(); err != nil {
			t.Fatalf("with descriptors again: %v", err)
		}
	}
	if calls != 2 {
		t.Errorf("opened %d times", calls)
	}
}
