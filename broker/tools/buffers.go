package tools

import "sync"

// buffers are memory of long texts, and of the frames that carry them, used again:
// the system's work for new memory costs as much as all else that is done with it
// (a quarter of reading 1 MB, measured).
var buffers sync.Pool // of *[]byte

// What is shorter is cheap to make, what is longer too rare to keep; bytes.
const (
	minBuffer = 128 << 10
	maxBuffer = 16 << 20
)

// lend returns n bytes, of which it does not matter what is in them. It has no
// error.
func lend(n int64) ([]byte, error) {
	if n >= minBuffer {
		if b, ok := buffers.Get().(*[]byte); ok && int64(cap(*b)) >= n {
			return (*b)[:n], nil
		}
	}
	return make([]byte, n), nil
}

// giveBack takes memory that nobody uses any more, whoever made it.
func giveBack(b []byte) {
	if cap(b) >= minBuffer && cap(b) <= maxBuffer {
		buffers.Put(&b)
	}
}
