package vfs_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// What the audit log cannot take the record of has not happened, and leaves nothing
// open: a full disk cost a descriptor for every opening, until none could be had, also
// when there was room again.
func TestUnrecordedLeavesNothingOpen(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("f", "text")
		file, dir := b.known("f"), b.known("")
		b.rec.Fail(errors.New("no room"))
		for what, f := range map[string]func() error{
			"open":    func() error { _, _, err := b.t.Open(bg, who, file, unix.O_RDWR); return err },
			"create":  func() error { _, _, _, err := b.t.Create(bg, who, dir, "f", unix.O_RDWR, 0o644); return err },
			"tmpfile": func() error { _, _, err := b.t.Tmpfile(bg, who, dir, unix.O_RDWR, 0o644); return err },
			"opendir": func() error { return second(b.t.Opendir(bg, who, dir)) },
		} {
			before := openFDs(t)
			for range 50 {
				if f() == nil {
					t.Fatalf("%s: it is on no record, and worked", what)
				}
			}
			noLeak(t, before, 0)
		}
		b.rec.Fail(nil)
		b.open("f", unix.O_RDWR).Close()
	})
}
