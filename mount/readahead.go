package mount

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// readAheadKiB is how far the kernel reads ahead of a sequential reader. Its
// default of 128 KiB is less than one of our requests, so that every request
// was waited for; with 512 KiB or more the next ones are under way while the
// reader copies (measured: 1,000 MB/s against 500 cold, and no more beyond).
const readAheadKiB = 1024

// readAhead widens the window of this mount. FUSE_INIT can only narrow it
// (process_init_reply in fs/fuse/inode.c takes the smaller value), so the
// backing device's attribute is the one way, and it is root's.
func (m *Mount) readAhead() {
	fd, err := unix.Open("/sys/class/bdi/"+m.Info().Dev+"/read_ahead_kb", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, fmt.Appendf(nil, "%d", readAheadKiB))
		_ = unix.Close(fd)
	}
	if err != nil {
		m.log.Debug("sequential reads are slower than they could be: the read-ahead window stays as it is", "error", err)
	}
}
