package revoke

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount"
)

// A write is answered while the source hangs. When the source continues, the write's own
// bytes are written and not the bytes of later requests, although go-fuse uses a request's
// buffer again after the answer. The source hangs when an append to a file with a size limit asks
// for the file's size, before anything is written.
func TestEarlyAnswerKeepsItsBytes(t *testing.T) {
	const (
		writers = 6
		length  = 4096
	)
	top, local := t.TempDir(), t.TempDir()
	slow := newSlow(t, top)
	g := grantOf("hang", top, guard.ReadWrite)
	g.Policy.Limits = guard.Limits{MaxFile: 1 << 30, Timeout: time.Second}
	l := newLab(t, mount.Options{}, g, grantOf("local", local, guard.ReadWrite))
	slow.releaseAtEnd()
	var all [writers]*child
	for i := range all {
		name := fmt.Sprintf("slow%d", i)
		a := callArg{Path: l.in("hang", name), Flags: unix.O_WRONLY | unix.O_APPEND, Text: strings.Repeat(string(rune('A'+i)), length)}
		all[i] = start(t, "holder", nil)
		all[i].call("open", a, &a.FD)
		slow.call("block", "getattr "+name, nil)
		testkit.Must(t, all[i].send("write", a))
		slow.await("getattr "+name, 1)
	}
	for i, c := range all {
		if err := c.receive("write", nil); err == nil {
			t.Fatalf("writer %d was not answered early", i)
		}
	}
	other := start(t, "holder", nil)
	for i := range 100 {
		a := callArg{Path: l.in("local", fmt.Sprint(i)), Flags: unix.O_WRONLY | unix.O_CREAT, Text: strings.Repeat("#", length)}
		other.call("open", a, &a.FD)
		other.call("write", a, nil)
	}
	slow.call("release", "*", nil)
	for i := range all {
		name := fmt.Sprintf("slow%d", i)
		want := append(bytes.Repeat([]byte("s"), fileSize), bytes.Repeat([]byte{byte('A' + i)}, length)...)
		got := sizedFile(t, filepath.Join(top, name), len(want))
		for at := range want {
			if got[at] != want[at] {
				t.Errorf("%s: byte %d is %q, want %q", name, at, got[at], want[at])
				break
			}
		}
	}
}

// sizedFile waits until a file has at least size bytes, and returns its content.
func sizedFile(t *testing.T, path string, size int) []byte {
	t.Helper()
	var got []byte
	if !testkit.Eventually(func() bool {
		var err error
		got, err = os.ReadFile(path)
		testkit.Must(t, err)
		return len(got) >= size
	}) {
		t.Fatalf("%s has %d bytes, want %d", path, len(got), size)
	}
	return got
}
