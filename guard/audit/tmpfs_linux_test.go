package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// R084 holds on a file system that is really full.
func TestR084FullTmpfs(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a tmpfs needs root")
	}
	o := options(t)
	o.Dir = filepath.Join(t.TempDir(), "full")
	if err := os.Mkdir(o.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", o.Dir, "tmpfs", 0, "size=64k,mode=700"); err != nil {
		t.Skip("cannot mount a tmpfs: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(o.Dir, 0); err != nil {
			t.Error("unmount: ", err)
		}
	})
	l := mustOpen(t, o)
	written := 0
	for {
		err := l.Record(refusal(t, fmt.Sprint("denied", written)))
		if err == nil {
			written++
			continue
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		break
	}
	if got := len(entriesTorn(t, o)); written < 50 || got != written+1 {
		t.Fatalf("%d refusals answered, %d lines", written, got)
	}
	// Two records have no room and are summed up later: the one that ended the loop, and this one.
	if err := l.Record(refusal(t, "denied too")); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("refusal on a full disk: %v", err)
	}
	if err := unix.Mount("tmpfs", o.Dir, "tmpfs", unix.MS_REMOUNT, "size=1m,mode=700"); err != nil {
		t.Fatal(err)
	}
	mustRecord(t, l, refusal(t, "again"))
	mustClose(t, l)
	got := entries(t, o)
	if n := len(got); n != written+3 || got[n-2].Path != "again" || got[n-1].Op != opSummed || got[n-1].Count != 2 {
		t.Errorf("%d lines, want %d", n, written+3)
	}
	mustVerify(t, o)
}

// entriesTorn reads a session whose last line may be incomplete.
func entriesTorn(t *testing.T, o Options) (list []Entry) {
	files, err := Files(o.Dir, o.Session)
	if err != nil {
		t.Fatal(err)
	}
	err = Read(files, Filter{}, func(e Entry) error { list = append(list, e); return nil })
	var damage *DamageError
	if err != nil && !errors.As(err, &damage) {
		t.Fatal(err)
	}
	return list
}
