package mount

import (
	"strconv"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// answerStale notes that a request of a thread was answered with ESTALE.
func (a *asker) answerStale(tid uint32, node uint64, opcode uint32) {
	in := a.in(node)
	in.Pid, in.Opcode = tid, opcode
	a.m.retries.note(in, fuse.Status(syscall.ESTALE))
}

// lookupTakesRef looks the name f up for a thread, and reports whether the mount has kept a
// reference to the file.
func (a *asker) lookupTakesRef(tid uint32) bool {
	a.Helper()
	in := a.head
	in.Pid, in.Opcode = tid, opLookup
	var out fuse.EntryOut
	a.ok(a.m.raw.Lookup(a.cancel, &in, "f", &out))
	return a.m.retries.find(tid, a.m.nodes.find(out.NodeId)) != nil
}

// The references of a path walk are kept only for the thread that got ESTALE, until its system
// call has reached its target, and never beyond the end of the root.
func TestReferencesOfAWalk(t *testing.T) {
	a := newAsker(t, Audit)
	testkit.Must(t, childfs.WriteFile(a.m.src+"/f", nil, 0o644))
	f := a.node("f")
	if a.lookupTakesRef(1) {
		t.Error("a thread that got no ESTALE has a reference")
	}
	a.answerStale(1, f.NodeId, opOpen)
	if a.lookupTakesRef(2) || !a.lookupTakesRef(1) {
		t.Error("the thread that got ESTALE has no reference, or another thread has one")
	}
	end := a.in(f.NodeId)
	end.Pid, end.Opcode = 1, opOpen
	a.m.retries.note(end, fuse.OK)
	if n := a.m.nodes.find(f.NodeId); a.m.retries.find(1, n) != nil || !a.m.retries.hasOpened(1, n) {
		t.Error("the open(2) has not ended the walk")
	}

	for tid := range uint32(2 * maxRetries) {
		a.answerStale(tid, f.NodeId, opOpen)
		for range 3 {
			a.lookupTakesRef(tid)
		}
	}
	all := 0
	for _, w := range a.m.retries.threads {
		all += len(w.refs)
	}
	if n := len(a.m.retries.threads); n != maxRetries || all > maxRetries*maxWalkRefs {
		t.Errorf("%d threads and %d references, want %d and at most %d", n, all, maxRetries, maxRetries*maxWalkRefs)
	}

	_, err := a.m.reg.Revoke(t.Context(), "code")
	testkit.Must(t, err)
	a.m.retries.mu.Lock()
	for tid, w := range a.m.retries.threads {
		if len(w.refs) > 0 {
			t.Errorf("thread %d has a reference to a file of the root that has ended", tid)
		}
	}
	a.m.retries.mu.Unlock()
	testkit.Until(t, "the expiry of the walks that no request has ended", func() bool { return a.m.retries.active.Load() == 0 })
}

// namesPath recognises from the text of /proc/PID/syscall whether a system call names a file by a
// path.
func TestNamesPath(t *testing.T) {
	const tail = " 0x7ffd00 0x7f0000"
	cwd := " 0xffffffffffffff9c"
	for call, want := range map[string]bool{
		"running": false, "-1" + tail: false, "": false,
		strconv.Itoa(unix.SYS_FCHMOD) + " 0x3 0x1a4 0x0 0x0 0x0 0x0" + tail:           false,
		strconv.Itoa(unix.SYS_FCHMODAT) + cwd + " 0x7f 0x1a4 0x0 0x0 0x0" + tail:      true,
		strconv.Itoa(unix.SYS_FCHMODAT2) + " 0x3 0x7f 0x1a4 0x1000 0x0 0x0" + tail:    false,
		strconv.Itoa(unix.SYS_FCHOWNAT) + " 0x3 0x7f 0x0 0x0 0x1000 0x0" + tail:       false,
		strconv.Itoa(unix.SYS_FCHOWNAT) + " 0x3 0x7f 0x0 0x0 0x0 0x0" + tail:          true,
		strconv.Itoa(unix.SYS_FCHOWNAT) + cwd + " 0x7f 0x0 0x0 0x1000 0x0" + tail:     true,
		strconv.Itoa(unix.SYS_UTIMENSAT) + " 0x3 0x0 0x7f 0x0 0x0 0x0" + tail:         false,
		strconv.Itoa(unix.SYS_UTIMENSAT) + cwd + " 0x7f 0x7f 0x0 0x0 0x0" + tail:      true,
		strconv.Itoa(unix.SYS_FSETXATTR) + " 0x3 0x7f 0x7f 0x1 0x0 0x0" + tail:        false,
		strconv.Itoa(unix.SYS_SETXATTR) + " 0x7f 0x7f 0x7f 0x1 0x0 0x0" + tail:        true,
		strconv.Itoa(unix.SYS_LINKAT) + " 0x3 0x7f" + cwd + " 0x7f 0x1000 0x0" + tail: false,
		strconv.Itoa(unix.SYS_OPENAT) + cwd + " 0x7f 0x401 0x0 0x0 0x0" + tail:        true,
	} {
		if got := namesPath(call); got != want {
			t.Errorf("%q: %v, want %v", call, got, want)
		}
	}
}
