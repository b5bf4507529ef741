package vfs

// HoldReader keeps the hub from reading what the kernel tells it, until release is
// called.
func (h *Hub) HoldReader() (release func()) {
	src, err := h.source()
	if err != nil {
		panic(err)
	}
	src.mu.Lock()
	return src.mu.Unlock
}
