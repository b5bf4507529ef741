package revoke

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount"
)

// After a root was made read-only, every way of writing fails and every way of reading still
// works, for held files and for newly opened ones. Writes fail with EROFS, except for the cases in
// judgeReadOnly. Stores through a writable mapping may succeed, but do not reach the source.
// TestStoresAfterReadOnlyReachNobodyNew checks who sees such stores.
func TestSetReadOnlyIsTotal(t *testing.T) {
	for _, s := range append(settings[:2:2], settings[5:]...) {
		t.Run(s.name, func(t *testing.T) {
			wrong := map[string]int{}
			n := reps(1, 25)
			for range n {
				if !t.Run("rep", func(t *testing.T) { setOnce(t, s, wrong) }) {
					break
				}
			}
			for _, what := range slices.Sorted(maps.Keys(wrong)) {
				t.Errorf("%s (%d of %d)", what, wrong[what], 2*n)
			}
		})
	}
}

// storesOnly are the probes that only use pages of a writable mapping. They may succeed, as
// long as no store reaches the source.
var storesOnly = map[string]bool{"store to a mapping": true, "new writable mapping": true, "load from a writable mapping": true}

func setOnce(t *testing.T, s setting, wrong map[string]int) {
	sc := newScene(t, s, 0)
	if err := sc.hold(); err != nil {
		t.Fatal(err)
	}
	if err := sc.reg.Set(context.Background(), "code", guard.ReadOnly); err != nil {
		t.Fatal(err)
	}
	sc.checkSaved(ending{name: "set ro"})
	before, err := os.ReadFile(filepath.Join(sc.writtenDir(), "mapw"))
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range sc.holders {
		res, err := probeAll(h)
		if err != nil {
			t.Fatalf("holder %d: %v", i, err)
		}
		for _, r := range res {
			judgeReadOnly(r, wrong)
		}
	}
	after, err := os.ReadFile(filepath.Join(sc.writtenDir(), "mapw"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		wrong["a store reached the source of a read-only root"]++
	}
}

func judgeReadOnly(r result, wrong map[string]int) {
	switch r.Kind {
	case reads, path:
		if r.Err != "" {
			wrong[fmt.Sprintf("reading fails: %s: %s", r.Name, r.Err)]++
		}
	case writes, pathW:
		switch {
		case storesOnly[r.Name]:
		case r.Err == "":
			wrong["still writes: "+r.Name]++
		case r.Name == "msync" && r.Errno != 0:
		case r.Name == "punch a hole" && errors.Is(r.Errno, syscall.EIO):
			// The kernel first writes back the stores of the old mapping. This write is refused,
			// and the kernel reports EIO.
		case !errors.Is(r.Errno, syscall.EROFS):
			wrong[fmt.Sprintf("%s: %s, want EROFS", r.Name, r.Err)]++
		}
	}
}

// A mapping made while the root was writable may still accept stores by the process that made it.
// Neither the source nor a process that opens the file afterwards, by any of the file's names, sees
// these stores. A process that had the file open before shares the mapping's pages, so it may see
// the stores. If its reads were refused, descriptors that only read would stop working.
func TestStoresAfterReadOnlyReachNobodyNew(t *testing.T) {
	for _, s := range append(settings[:2:2], settings[5:]...) {
		t.Run(s.name, func(t *testing.T) {
			for range reps(1, 25) {
				storesOnce(t, s)
			}
		})
	}
}

func storesOnce(t *testing.T, s setting) {
	t.Helper()
	src := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(src, "f"), []byte(strings.Repeat("o", fileSize)), 0o666))
	testkit.Must(t, os.Link(filepath.Join(src, "f"), filepath.Join(src, "hard")))
	l := newLab(t, mount.Options{Level: s.level}, grantOf("code", src, guard.ReadWrite))
	writer, reader := start(t, "holder", nil), start(t, "holder", nil)
	var w, old, oldHard int
	writer.call("open", callArg{Path: l.in("code", "f"), Flags: unix.O_RDWR}, &w)
	writer.call("map", callArg{FD: w, Len: fileSize, Flags: unix.PROT_WRITE}, nil)
	reader.call("open", callArg{Path: l.in("code", "f"), Flags: unix.O_RDONLY}, &old)
	reader.call("open", callArg{Path: l.in("code", "hard"), Flags: unix.O_RDONLY}, &oldHard)
	reader.call("map", callArg{FD: old, Len: fileSize}, nil)

	testkit.Must(t, l.reg.Set(context.Background(), "code", guard.ReadOnly))
	const secret = "STORED"
	storeErr := writer.try("store", callArg{Off: 8192, Text: secret}, nil)

	read := func(who, name string, fd int) {
		t.Helper()
		var got string
		err := reader.try("read", callArg{FD: fd, Off: 8192, Len: len(secret)}, &got)
		if err != nil {
			t.Errorf("%s: %s cannot be read: %v", s.name, who, err)
		} else if got == secret && fd != old && fd != oldHard {
			t.Errorf("%s: %s sees what was stored after the root became read-only (%s)", s.name, who, name)
		}
	}
	read("a descriptor from before", "f", old)
	read("a descriptor from before, by another name", "hard", oldHard)
	for _, name := range []string{"f", "hard"} {
		var fd int
		reader.call("open", callArg{Path: l.in("code", name), Flags: unix.O_RDONLY}, &fd)
		read("a descriptor from after", name, fd)
	}
	if storeErr == nil {
		_ = writer.try("msync", nil, nil) // should fail; what counts is the source
	}
	data, err := os.ReadFile(filepath.Join(src, "f"))
	testkit.Must(t, err)
	if bytes.Contains(data, []byte(secret)) {
		t.Errorf("%s: a store reached the source of a read-only root", s.name)
	}

	// The source does not get the stores later either: the root is made writable again, and the
	// mapping ends.
	laterErr := writer.try("store", callArg{Off: 8192, Text: secret}, nil)
	testkit.Must(t, l.reg.Set(context.Background(), "code", guard.ReadWrite))
	if laterErr == nil {
		_ = writer.try("msync", nil, nil)
	}
	var again int
	reader.call("open", callArg{Path: l.in("code", "f"), Flags: unix.O_RDWR}, &again)
	if err := reader.try("write", callArg{FD: again, Off: 0, Text: "new"}, nil); err != nil {
		t.Errorf("%s: the root is writable again, and the file is not: %v", s.name, err)
	}
	writer.stop()
	reader.stop()
	data, err = os.ReadFile(filepath.Join(src, "f"))
	testkit.Must(t, err)
	if bytes.Contains(data, []byte(secret)) || !bytes.HasPrefix(data, []byte("new")) {
		t.Errorf("%s: a store made while the root was read-only reached its source later, or a write did not: %q", s.name, data[:16])
	}
}
