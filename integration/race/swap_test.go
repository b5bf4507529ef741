package race

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// swapper rearranges the source.
type swapper struct {
	b        *board
	src, out string
	swaps    []func() bool
}

func newSwapper(j job, b *board) *swapper {
	s := &swapper{b: b, src: j.Src, out: j.Out}
	// Each comment says what the first name is, and after the semicolon what the second name is.
	s.swaps = []func() bool{
		s.exchange("a/dl", "a/dl.alt"),   // directory; link out of the root by ..
		s.exchange("a/fl", "a/fl.alt"),   // file; absolute link to a secret
		s.exchange("p1/p2", "p1/alt"),    // parent of the files in use; link out of the root by ..
		s.exchange("a/abs", "a/abs.alt"), // directory; absolute link out of the root
		s.exchange("a/il", "a/il.alt"),   // directory; link to another directory of the root
		s.exchange("a/ifl", "a/ifl.alt"), // file; link to another file of the root
		s.exchange("a/ff", "a/ff.alt"),   // file; FIFO
		s.leave,
	}
	return s
}

func (s *swapper) in(name string) string { return filepath.Join(s.src, name) }

func (s *swapper) exchange(x, y string) func() bool {
	x, y = s.in(x), s.in(y)
	return func() bool {
		return unix.Renameat2(unix.AT_FDCWD, x, unix.AT_FDCWD, y, unix.RENAME_EXCHANGE) == nil
	}
}

// leave moves a directory out of the root, and puts a link to the directory's new parent in the old
// place for a moment. Then it moves the directory back.
func (s *swapper) leave() bool {
	here, there := s.in("m/out"), filepath.Join(s.out, "park", "visitor")
	if err := os.Rename(here, there); err != nil {
		return false
	}
	// The link leads to the canaries beside the visitor, not to the visitor.
	linked := os.Symlink(filepath.Dir(there), here) == nil
	if linked {
		_ = os.Remove(here)
	}
	return os.Rename(there, here) == nil
}

func (s *swapper) run() error {
	defer s.settle()
	for round := 0; s.b.Stop.Load() == 0; round++ {
		if round%64 == 0 {
			// Now and then the swaps pause, so that the caches fill with names that then
			// change.
			time.Sleep(2 * time.Millisecond)
		}
		for _, swap := range s.swaps {
			if swap() {
				s.b.Swaps.Add(1)
			}
		}
	}
	return nil
}

// settle moves the visitor back into the root if the last round has left it outside.
func (s *swapper) settle() {
	there := filepath.Join(s.out, "park", "visitor")
	if _, err := os.Lstat(there); err == nil {
		_ = os.Remove(s.in("m/out"))
		_ = os.Rename(there, s.in("m/out"))
	}
}
