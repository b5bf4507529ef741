package vfs_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/integration/hangfs"
	"github.com/rootsfs/rootsfs/vfs"
)

// hangBed is a bed over a source whose requests hang when the test says so.
type hangBed struct {
	*bed
	fs     *hangfs.FS
	closed chan struct{} // receives a value for each source that its last user has closed
}

func newHangBed(t *testing.T, p guard.Policy) *hangBed {
	t.Helper()
	h := &hangBed{bed: &bed{TB: t, src: t.TempDir()}, closed: make(chan struct{}, 10)}
	h.fs = hangfs.Mount(t, t.TempDir(), h.src)
	h.fs.WithoutTmpfile() // so that unfinished files have names
	h.reg = guard.NewRegistry(guard.Config{Opener: closingOpener{vfs.Opener(), h.closed}, Deadline: 100 * time.Millisecond})
	h.t = vfs.New(h.reg)
	h.grant("code", "", p)
	return h
}

// closingOpener sends to closed when a source that it opened is closed.
type closingOpener struct {
	guard.Opener
	closed chan struct{}
}

func (o closingOpener) OpenRoot(path string) (guard.Source, error) {
	s, err := o.Opener.OpenRoot(path)
	return closingSource{s, o.closed}, err
}

type closingSource struct {
	guard.Source
	closed chan struct{}
}

func (s closingSource) Close() error {
	defer func() { s.closed <- struct{}{} }()
	return s.Source.Close()
}

// hang starts the operation op, and returns when the named request of op hangs in the source.
func (h *hangBed) hang(request string, op func() error) (held *hangfs.Held, answer <-chan error) {
	h.Helper()
	held = h.fs.Hold(request)
	got := make(chan error, 1)
	go func() { got <- op() }()
	select {
	case <-held.Entered:
	case err := <-got:
		h.Fatalf("the operation returned %v, and made no %s", err, request)
	}
	return held, got
}

// A write that is refused because its root has ended does not reach the source after
// the revocation has returned without an error.
func TestRefusedWriteDoesNotArrive(t *testing.T) {
	h := newHangBed(t, guard.Policy{})
	h.put("f", "old")
	f := h.open("f", unix.O_RDWR)
	h.fs.Changes()
	held, answer := h.hang("getattr", func() error {
		return second(f.WriteAt(bg, who, [][]byte{[]byte("new")}, 0, vfs.WriteAtOptions{Touch: &vfs.Touch{}}))
	})
	h.revoke("code")
	h.wantKind(<-answer, names.Revoked)
	held.Release()
	<-h.closed
	f.Close()
	if got := h.fs.Changes(); len(got) != 0 {
		t.Errorf("requests that change the source, after the revocation: %v", got)
	}
	h.contents("f", "old")
}

// multiCallOps are operations of several calls, each with the request at which the source hangs.
var multiCallOps = map[string]struct {
	request string
	op      func(h *hangBed) error
}{
	"create": {"create", func(h *hangBed) error {
		_, _, _, err := h.t.Create(bg, who, h.at(""), "new", unix.O_RDWR, 0o666)
		return err
	}},
	"open with O_TRUNC": {"setattr", func(h *hangBed) error {
		_, _, err := h.t.Open(bg, who, h.at("f"), unix.O_WRONLY|unix.O_TRUNC)
		return err
	}},
	"setattr": {"setattr", func(h *hangBed) error {
		mode, now := uint32(0o600), time.Now()
		return second(h.t.Setattr(bg, who, h.at("f"), nil, vfs.Attrs{Mode: &mode, Mtime: &now}))
	}},
	"replace":            {"write", (*hangBed).replace},
	"replace, at fsync":  {"fsync", (*hangBed).replace},
	"replace, at rename": {"rename", (*hangBed).replace},
	"copy": {"copy", func(h *hangBed) error {
		return second(h.t.CopyFile(bg, who, h.path("f"), h.path("new"), vfs.CopyOptions{}))
	}},
	"write a range": {"write", func(h *hangBed) error {
		_, _, err := h.t.WriteRange(bg, who, h.path("f"), []byte("x"), vfs.WriteOptions{Truncate: true})
		return err
	}},
	"make directories": {"mkdir", func(h *hangBed) error {
		_, _, err := h.t.MkdirAll(bg, who, h.path("x/y/z"), 0o777)
		return err
	}},
	"remove a tree": {"unlink", func(h *hangBed) error {
		return h.t.RemovePath(bg, who, h.path("d"), vfs.RemoveOptions{Recursive: true})
	}},
	"unlink to the trash": {"create", func(h *hangBed) error { return h.t.Unlink(bg, who, h.at(""), "f") }},
	"commit an upload": {"fsync", func(h *hangBed) error {
		u := h.begin("new", vfs.IfMatch{})
		h.must(piece(u, "x", 0))
		return second(u.Commit(bg, who))
	}},
}

func (h *hangBed) replace() error {
	return second(h.t.Replace(bg, who, h.at("f"), strings.NewReader("new"), vfs.IfMatch{}))
}

// An operation makes no further call to the source once its root has ended. If one of its
// calls is under way then, the error of the revocation says so.
func TestOperationEndsAtTheCallThatHangs(t *testing.T) {
	for name, c := range multiCallOps {
		t.Run(name, func(t *testing.T) {
			h := newHangBed(t, guard.Policy{Trash: rules.Trash{On: name == "unlink to the trash"}})
			h.put("f", "old")
			h.put("d/a", "")
			h.put("d/b", "")
			held, answer := h.hang(c.request, func() error { return c.op(h) })
			if _, err := h.reg.Revoke(bg, "code"); err == nil || !strings.Contains(err.Error(), "1 call that changes the source has not returned and may still arrive") {
				t.Errorf("the revocation returned %v", err)
			}
			h.wantKind(<-answer, names.Revoked)
			h.fs.Changes()
			held.Release()
			<-h.closed
			if got := h.fs.Changes(); len(got) > 0 {
				t.Errorf("after the revocation: %v", got)
			}
		})
	}
}

// A temporary file that could not be removed because its root had ended is in the journal.
// CleanTemp removes the file when the root is granted again. The same holds for the temporary
// file of an upload.
// An upload that is abandoned while its root lives leaves no file and no journal entry.
func TestJournalKeepsWhatIsLeft(t *testing.T) {
	for name, c := range map[string]func(h *hangBed) (left int){
		"replace": func(h *hangBed) int {
			held, answer := h.hang("write", h.replace)
			_, _ = h.reg.Revoke(bg, "code")
			h.wantKind(<-answer, names.Revoked)
			held.Release()
			return 1
		},
		"upload": func(h *hangBed) int {
			u := h.begin("new", vfs.IfMatch{})
			h.must(piece(u, "x", 0))
			h.revoke("code")
			u.Abort()
			return 1
		},
		"upload that is given up": func(h *hangBed) int {
			h.begin("new", vfs.IfMatch{}).Abort()
			h.revoke("code")
			return 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHangBed(t, guard.Policy{})
			n := &memJournal{b: h.bed, open: map[guard.Path]bool{}}
			h.t.SetJournal(n)
			h.put("f", "old")
			left := c(h)
			<-h.closed
			if got := strings.Count(h.hostNames(), vfs.TempPrefix); got != left || len(n.open) != left {
				t.Errorf("%d temporary names are left, and %v in the journal, want %d", got, n.open, left)
			}
			h.grant("code", "", guard.Policy{})
			for p := range n.open {
				h.must(h.t.CleanTemp(bg, p))
			}
			if got := h.hostNames(); got != "f" {
				t.Errorf("the root holds %s after the journal was cleaned", got)
			}
		})
	}
}
