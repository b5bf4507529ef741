package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// house is a directory with the records of several sessions.
type house struct {
	t   *testing.T
	dir string
}

func newHouse(t *testing.T) house { return house{t, t.TempDir()} }

func (h house) anchor(session string) (string, error) {
	return filepath.Join(h.dir, "anchors", session), nil
}

func (h house) options(session string) Options {
	anchor, _ := h.anchor(session)
	return Options{Dir: filepath.Join(h.dir, "audit"), Session: session, Anchor: anchor, MaxBytes: 4000}
}

// fill makes records of a session until they take a number of files, and dates the files a
// number of days back.
func (h house) fill(session string, files int, days int) {
	h.t.Helper()
	l := mustOpen(h.t, h.options(session))
	for i := 0; ; i++ {
		mustRecord(h.t, l, refusal(h.t, fmt.Sprint("f", i)))
		if h.count(session) >= files {
			break
		}
	}
	mustClose(h.t, l)
	list, _ := Files(filepath.Join(h.dir, "audit"), session)
	at := time.Now().AddDate(0, 0, -days)
	for _, f := range list {
		if err := os.Chtimes(f, at, at); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h house) count(session string) int {
	list, err := Files(filepath.Join(h.dir, "audit"), session)
	if err != nil {
		h.t.Fatal(err)
	}
	return len(list)
}

// prune prunes, and returns the sessions of the files that are gone.
func (h house) prune(p pruning) (gone []string) {
	h.t.Helper()
	p.dir, p.anchor = filepath.Join(h.dir, "audit"), h.anchor
	deleted, err := prune(p)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, path := range deleted {
		n, _ := nameOf(path)
		gone = append(gone, n.session)
	}
	return gone
}

// bytes returns the size of the files of a session, or of all sessions for "".
func (h house) bytes(session string) (n int64) {
	h.t.Helper()
	list, err := Files(filepath.Join(h.dir, "audit"), session)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, f := range list {
		info, err := os.Stat(f)
		if err != nil {
			h.t.Fatal(err)
		}
		n += info.Size()
	}
	return n
}

func (h house) verify(session string) Report {
	h.t.Helper()
	return mustVerify(h.t, h.options(session))
}

// Files that are too old are removed, even all files of a session. Verify reports the number of
// removed records, and a session without records continues its chain.
func TestPruneByAge(t *testing.T) {
	h := newHouse(t)
	h.fill("old", 3, 100)
	h.fill("new", 3, 1)
	was := h.verify("old")
	gone := h.prune(pruning{maxAge: DefaultMaxAge})
	if len(gone) != 3 || gone[0] != "old" || h.count("old") != 0 || h.count("new") != 3 {
		t.Errorf("%q", gone)
	}
	if got := h.verify("old"); got.Pruned != was.To || got.Files != 0 {
		t.Errorf("%+v", got)
	}
	if got := h.verify("new"); got.Pruned != 0 {
		t.Errorf("%+v", got)
	}
	mustClose(t, mustOpen(t, h.options("old")))
	if got := h.verify("old"); got.Pruned != was.To || got.From != was.To+1 {
		t.Errorf("%+v, before %+v", got, was)
	}
}

// If the records take too much room, the largest session loses its oldest files, and the other
// sessions keep theirs.
func TestPruneBySize(t *testing.T) {
	h := newHouse(t)
	h.fill("small", 2, 50) // the oldest
	h.fill("large", 12, 1)
	all := h.bytes("")
	if gone := h.prune(pruning{maxTotal: 1 << 40}); len(gone) != 0 || h.bytes("") != all {
		t.Errorf("without need: %q", gone)
	}
	gone := h.prune(pruning{maxTotal: all / 2})
	if len(gone) < 3 || h.bytes("") > all/2 || h.count("small") != 2 || gone[0] != "large" {
		t.Errorf("%q, %d of %d left", gone, h.bytes(""), all)
	}
	if got := h.verify("large"); got.Pruned == 0 || got.From != got.Pruned+1 {
		t.Errorf("%+v", got)
	}
	// A file that somebody else removes is damage, also after pruning.
	files, _ := Files(filepath.Join(h.dir, "audit"), "large")
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	if got, err := Verify(filepath.Join(h.dir, "audit"), "large", h.options("large").Anchor); err != nil || got.OK {
		t.Errorf("a removed file: %+v, %v", got, err)
	}
}

// A live session loses no records. For any amount of its records, those of ended sessions keep
// half of the room.
func TestPruneSparesLiveSessions(t *testing.T) {
	h := newHouse(t)
	h.fill("ended", 2, 1)
	l := mustOpen(t, h.options("live"))
	for i := range 200 {
		mustRecord(t, l, refusal(t, fmt.Sprint("f", i)))
	}
	live := h.bytes("live")
	if gone := h.prune(pruning{maxTotal: 2*h.bytes("ended") + 1000}); len(gone) != 0 || live == 0 {
		t.Errorf("%q", gone)
	}
	if gone := h.prune(pruning{maxTotal: 1, maxAge: time.Nanosecond}); h.count("ended") != 0 || h.bytes("live") != live {
		t.Errorf("%q", gone)
	}
	mustRecord(t, l, refusal(t, "goes on"))
	mustClose(t, l)
	if got := h.verify("live"); got.Pruned != 0 {
		t.Errorf("%+v", got)
	}
}

// Sessions prune when they begin, but do not examine the directory each time.
func TestPruneAtStart(t *testing.T) {
	h := newHouse(t)
	h.fill("old", 3, 100)
	o := h.options("new")
	o.MaxAge, o.AnchorOf = DefaultMaxAge, h.anchor
	var told []string
	o.Pruned = func(path string) { told = append(told, path) }
	mustClose(t, mustOpen(t, o))
	if h.count("old") != 3 || len(told) != 0 {
		t.Errorf("pruned %v although the directory was looked at just now", told)
	}
	stamp := filepath.Join(o.Dir, stampName)
	if err := os.Chtimes(stamp, time.Time{}, time.Now().Add(-maintainDelay)); err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, o))
	if h.count("old") != 0 || len(told) != 3 {
		t.Errorf("pruned %v", told)
	}
	h.verify("old")
	h.verify("new")
}

// The bounds are those at the time of a deletion, and not of the session's start.
//
// ceiling: records.days by change
func TestPruneByTheBoundsOfNow(t *testing.T) {
	h := newHouse(t)
	h.fill("old", 3, 100)
	o := h.options("new")
	o.MaxAge, o.AnchorOf = DefaultMaxAge, h.anchor
	days := time.Duration(120)
	o.Bounds = func() (time.Duration, int64) { return days * 24 * time.Hour, 0 }
	prune := func() int {
		stamp := filepath.Join(o.Dir, stampName)
		if err := os.Chtimes(stamp, time.Time{}, time.Now().Add(-maintainDelay)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		mustClose(t, mustOpen(t, o))
		return h.count("old")
	}
	if n := prune(); n != 3 {
		t.Errorf("%d files are left, which the bounds keep", n)
	}
	days = 90
	if n := prune(); n != 0 {
		t.Errorf("%d files are left, which the bounds do not keep", n)
	}
}
