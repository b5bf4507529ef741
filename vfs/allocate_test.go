package vfs_test

import (
	"math"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// R061: fallocate(2) respects the limits of a file's size and of written bytes, whether or not
// the file becomes longer. Giving space back costs nothing.
func TestAllocateIsLimited(t *testing.T) {
	const keep, punch = unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	b := newBed(t, false, guard.Policy{Limits: guard.Limits{MaxFile: 1 << 20, MaxWritten: 3 << 20, BytesInFlight: 4096}})
	b.put("f", "x")
	f := b.open("f", unix.O_RDWR)
	defer f.Close()
	probe, err := os.OpenFile(b.host("f"), os.O_RDWR, 0)
	b.must(err)
	defer probe.Close()
	if unix.Fallocate(int(probe.Fd()), unix.FALLOC_FL_ZERO_RANGE|keep, 0, 1) == unix.EOPNOTSUPP {
		t.Skip("the file system has no fallocate mode to make zeroes") // tmpfs
	}
	for _, tt := range []struct {
		what        string
		mode        uint32
		off, length int64
		want        guard.Kind
		written     int64 // afterwards
	}{
		{"longer than a file may be", 0, 0, 1<<20 + 1, names.Quota, 0},
		{"longer than a file may be, without growing", keep, 0, 1<<20 + 1, names.Quota, 0},
		{"beyond the size", keep, 1 << 20, 1, names.Quota, 0},
		{"within", keep, 0, 1 << 20, 0, 1 << 20},
		{"growing", 0, 0, 1 << 20, 0, 2 << 20},
		{"zeroes", unix.FALLOC_FL_ZERO_RANGE, 0, 1 << 19, 0, 5 << 19},
		{"inserting", unix.FALLOC_FL_INSERT_RANGE, 0, 4096, names.Quota, 5 << 19},
		{"more than is left", keep, 0, 1 << 20, names.Quota, 5 << 19},
		{"a hole anywhere", punch, 0, 1 << 30, 0, 5 << 19},
		{"no length", keep, 0, 0, names.Invalid, 5 << 19},
		{"past the largest offset", keep, math.MaxInt64, 2, names.Invalid, 5 << 19},
		{"an unknown mode", 1 << 30, 0, 10, names.IO, 5 << 19},
	} {
		err := f.Allocate(bg, who, tt.mode, tt.off, tt.length)
		if got := names.Reason(err); (tt.want != 0 || err != nil) && got != tt.want {
			t.Errorf("%s: %v (%v), want %v", tt.what, err, got, tt.want)
		}
		if st, _ := b.reg.Lookup("code"); st.Written != tt.written {
			t.Errorf("%s: %d bytes are charged, want %d", tt.what, st.Written, tt.written)
		}
	}
}
