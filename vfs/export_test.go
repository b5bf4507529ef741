package vfs

import "time"

// HoldReader keeps the hub from reading what the kernel tells it, until release is
// called.
func (h *Hub) HoldReader() (release func()) {
	h.local.in.delivering.Lock()
	return h.local.in.delivering.Unlock
}

// LookedAt is how long ago the file's name was looked at.
func (f *File) LookedAt() time.Duration {
	return time.Since(f.t.began) - time.Duration(f.looked.Load())
}
