package ahead

import (
	"syscall"
	"testing"
	"unsafe"
)

// What is asked for is in memory afterwards, before anything was allocated there.
func TestPrefault(t *testing.T) {
	const most = 64 << 10
	for range 100 {
		Prefault(most)
		at := uintptr(unsafe.Pointer(frontier)) &^ (pageSize - 1)
		end := (at + heapChunk) &^ (heapChunk - 1)
		if end-at < most {
			_ = make([]byte, heapChunk/2) // there is no room in this chunk: on to the next
			continue
		}
		var there [most / pageSize]byte
		if _, _, errno := syscall.Syscall(syscall.SYS_MINCORE, at, most, uintptr(unsafe.Pointer(&there))); errno != 0 {
			t.Fatal(errno)
		}
		for i, in := range there {
			if in&1 == 0 {
				t.Errorf("page %d of %d is not in memory", i, len(there))
			}
		}
		return
	}
	t.Fatal("no place with room was met")
}

// More than the heap's mapping holds is no error.
func TestPrefaultTooMuch(*testing.T) {
	Prefault(1 << 40)
}
