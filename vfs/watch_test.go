package vfs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// watcher is a receiver of events.
type watcher struct {
	*bed
	w    *watch.Watch
	mu   sync.Mutex // guards the fields below
	list []watch.Event
	more chan struct{}
	hold chan struct{} // not nil: emit waits until it is closed
	busy int           // running calls of emit
}

func (b *bed) hub(o watch.HubOptions) *watch.Hub {
	b.Helper()
	if o.Coalesce == 0 {
		o.Coalesce = time.Millisecond
	}
	h := b.t.NewHub(o)
	b.reg.AddView(h)
	b.Cleanup(func() { b.reg.RemoveView(h); h.Close() })
	return h
}

func (b *bed) watch(h *watch.Hub, rel string, o watch.Options) *watcher {
	b.Helper()
	x := &watcher{bed: b, more: make(chan struct{}, 1)}
	w, err := h.Watch(bg, who, b.at(rel).Path, o, x.emit)
	b.must(err)
	x.w = w
	return x
}

func (x *watcher) emit(_ context.Context, events []watch.Event) {
	x.mu.Lock()
	if x.busy++; x.busy > 1 {
		x.Error("emit is called twice at a time")
	}
	hold := x.hold
	x.list = append(x.list, events...)
	x.mu.Unlock()
	select {
	case x.more <- struct{}{}:
	default:
	}
	if hold != nil {
		<-hold
	}
	x.mu.Lock()
	x.busy--
	x.mu.Unlock()
}

// holdUntil makes the receiver hang until the channel is closed.
func (x *watcher) holdUntil(c chan struct{}) {
	x.mu.Lock()
	x.hold = c
	x.mu.Unlock()
}

func (x *watcher) events() []watch.Event {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.list)
}

// until waits until the events so far satisfy ok. The bound only ends a test that
// has failed.
func (x *watcher) until(what string, ok func([]watch.Event) bool) []watch.Event {
	x.Helper()
	end := time.After(20 * time.Second)
	for {
		if list := x.events(); ok(list) {
			return list
		}
		select {
		case <-x.more:
		case <-end:
			x.Fatalf("%s: there is only %v", what, short(x.events()))
		}
	}
}

func has(kind watch.EventKind, rel string) func([]watch.Event) bool {
	return func(list []watch.Event) bool {
		return slices.ContainsFunc(list, func(e watch.Event) bool { return e.Kind == kind && e.Path.Rel() == rel })
	}
}

func overflowed(list []watch.Event) bool {
	return slices.ContainsFunc(list, func(e watch.Event) bool { return e.Overflow })
}

func short(list []watch.Event) (out []string) {
	for _, e := range list {
		s := e.Kind.String() + " " + e.Path.Rel()
		if e.Overflow {
			s += " overflow"
		}
		if e.Ended {
			s += " ended"
		}
		out = append(out, s)
	}
	return out
}

// settle makes a change and waits for its event, so that everything before it has been
// reported. It returns the earlier events and forgets them.
func (x *watcher) settle(rel string) []watch.Event {
	x.Helper()
	b := x.bed
	name := rel + "/settled"
	b.must(os.Mkdir(b.host(name), 0o755))
	x.until("settling", has(watch.Created, name))
	b.must(os.Remove(b.host(name)))
	list := x.until("settling", has(watch.Deleted, name))
	x.mu.Lock()
	x.list = nil
	x.mu.Unlock()
	return slices.DeleteFunc(list, func(e watch.Event) bool { return e.Path.Rel() == name })
}

// Each kind of change, by the host or through the tree, is reported as the watch's options ask.
// Special files are not reported. R043, R044.
func TestWatchEvents(t *testing.T) {
	for name, c := range map[string]struct {
		o    watch.Options
		act  func(b *bed)
		want string // in this order
	}{
		"create":               {watch.Options{}, func(b *bed) { b.put("d/new", "") }, "created d/new"},
		"write":                {watch.Options{}, func(b *bed) { b.put("d/old", "more") }, "modified d/old"},
		"attributes":           {watch.Options{}, func(b *bed) { b.must(os.Chmod(b.host("d/old"), 0o600)) }, "modified d/old"},
		"delete":               {watch.Options{}, func(b *bed) { b.must(os.Remove(b.host("d/old"))) }, "deleted d/old"},
		"only created":         {watch.Options{Events: watch.Created | watch.Deleted}, func(b *bed) { b.put("d/old", "more"); b.put("d/new", "") }, "created d/new"},
		"directory":            {watch.Options{}, func(b *bed) { b.must(os.Mkdir(b.host("d/n"), 0o755)) }, "created d/n"},
		"one level":            {watch.Options{}, func(b *bed) { b.put("d/sub/new", "") }, ""},
		"below":                {watch.Options{Recursive: true}, func(b *bed) { b.put("d/sub/new", "") }, "created d/sub/new"},
		"beside":               {watch.Options{Recursive: true}, func(b *bed) { b.put("other/f", "") }, ""},
		"rename":               {watch.Options{}, func(b *bed) { b.must(os.Rename(b.host("d/old"), b.host("d/new"))) }, "deleted d/old; created d/new"},
		"replace":              {watch.Options{}, func(b *bed) { b.must(os.Rename(b.host("d/second"), b.host("d/old"))) }, "deleted d/second; modified d/old"},
		"moved in":             {watch.Options{Recursive: true}, func(b *bed) { b.must(os.Rename(b.host("other"), b.host("d/in"))) }, "created d/in; created d/in/x; created d/in/x/y"},
		"moved out":            {watch.Options{Recursive: true}, func(b *bed) { b.must(os.Rename(b.host("d/sub"), b.host("gone"))); b.put("gone/f", "") }, "deleted d/sub"},
		"tree at once":         {watch.Options{Recursive: true}, func(b *bed) { b.must(os.MkdirAll(b.host("d/1/2/3"), 0o755)) }, "created d/1; created d/1/2; created d/1/2/3"},
		"removed tree":         {watch.Options{Recursive: true}, func(b *bed) { b.must(os.RemoveAll(b.host("d/sub"))) }, "deleted d/sub/f; deleted d/sub"},
		"special":              {watch.Options{}, func(b *bed) { b.must(unix.Mkfifo(b.host("d/fifo"), 0o600)); b.must(os.Remove(b.host("d/fifo"))) }, ""},
		"link":                 {watch.Options{Recursive: true}, func(b *bed) { b.must(os.Symlink("../other", b.host("d/l"))); b.put("other/f", "") }, "created d/l"},
		"itself":               {watch.Options{}, func(b *bed) { b.must(os.Chmod(b.host("d"), 0o700)) }, "modified d"},
		"by the tree":          {watch.Options{}, func(b *bed) { b.must(second(b.t.Mkdir(bg, who, b.at("d"), "n", 0o755))) }, "created d/n"},
		"replaced by the tree": {watch.Options{}, func(b *bed) { replace(b, "d/old") }, "modified d/old"},
		"created by Replace":   {watch.Options{}, func(b *bed) { replace(b, "d/new") }, "created d/new"},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b *bed) {
				for _, f := range []string{"d/old", "d/second", "d/sub/f", "other/x/y"} {
					b.put(f, "")
				}
				h := b.hub(watch.HubOptions{})
				defer h.Close()
				x := b.watch(h, "d", c.o)
				c.act(b)
				var got []string
				for _, e := range short(x.settle("d")) {
					if !slices.Contains(got, e) {
						got = append(got, e)
					}
				}
				if strings.Join(got, "; ") != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			})
		})
	}
}

func replace(b *bed, rel string) {
	b.Helper()
	b.must(second(b.t.Replace(bg, who, b.at(rel), strings.NewReader("new contents"), vfs.IfMatch{Mode: 0o644})))
}

// The two halves of a rename share an id, which no other rename has. A single half has no id. Times
// are UTC.
func TestWatchMoves(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.put("d/a", "")
	b.put("d/sub/x", "")
	b.put("d/s2/y", "")
	h := b.hub(watch.HubOptions{})
	x := b.watch(h, "d", watch.Options{Recursive: true})
	ids := map[string]bool{}
	for _, move := range [][2]string{{"d/a", "d/sub/b"}, {"d/sub/b", "d/sub/c"}, {"d/s2", "d/sub/s3"}, {"d/sub/s3/y", "d/sub/x"}} {
		b.must(os.Rename(b.host(move[0]), b.host(move[1])))
		list := x.settle("d")
		if len(list) < 2 || list[0].Kind != watch.Deleted || list[0].Path.Rel() != move[0] || list[1].Path.Rel() != move[1] {
			t.Fatalf("%v: %v", move, short(list))
		}
		id := list[0].MoveID
		if id == "" || id != list[1].MoveID || ids[id] || len(id) != 20 {
			t.Errorf("%v: ids %q, %q", move, id, list[1].MoveID)
		}
		ids[id] = true
		for _, e := range list {
			if e.Time.Location() != time.UTC || e.Time.IsZero() {
				t.Errorf("time %v", e.Time)
			}
		}
	}
	b.must(os.Rename(b.host("d/sub/c"), b.host("out")))
	b.must(os.Rename(b.host("out"), b.host("d/in")))
	for _, e := range x.settle("d") {
		if e.MoveID != "" {
			t.Errorf("half a rename: %+v", e)
		}
	}
}

// A watch of a file watches the name of the file: it also reports a new file that gets the name.
func TestWatchFile(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("d/f", "")
		b.put("d/other", "")
		h := b.hub(watch.HubOptions{})
		defer h.Close()
		x := b.watch(h, "d/f", watch.Options{})
		b.put("d/other", "not of interest")
		b.put("d/f", "1")
		x.until("written", has(watch.Modified, "d/f"))
		b.must(os.Remove(b.host("d/f")))
		x.until("removed", has(watch.Deleted, "d/f"))
		b.put("d/f", "2")
		list := x.until("made again", has(watch.Created, "d/f"))
		for _, e := range list {
			if e.Path.Rel() != "d/f" {
				t.Errorf("%+v", e)
			}
		}
	})
}

// A root that is a single file can be watched like a file.
func TestWatchFileRoot(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.put("notes", "")
	b.grant("one", "notes", guard.Policy{})
	h := b.hub(watch.HubOptions{})
	p, err := guard.NewPath("one", "")
	b.must(err)
	x := &watcher{bed: b, more: make(chan struct{}, 1)}
	w, err := h.Watch(bg, who, p, watch.Options{Recursive: true}, x.emit)
	b.must(err)
	defer w.Close()
	b.put("beside", "")
	b.put("notes", "text")
	for _, e := range x.until("written", has(watch.Modified, "")) {
		if e.Path != p {
			t.Errorf("%+v", e)
		}
	}
}

// These watches are refused, each with its reason.
func TestWatchRefuses(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.put("d/f", "")
	b.must(unix.Mkfifo(b.host("d/fifo"), 0o600))
	b.must(os.Symlink("/", b.host("d/l")))
	h := b.hub(watch.HubOptions{})
	try := func(rel string) error {
		return second(h.Watch(bg, who, b.at(rel).Path, watch.Options{Recursive: true}, func(context.Context, []watch.Event) {}))
	}
	b.wantKind(try("nothing"), names.NotExist)
	b.wantKind(try("d/fifo"), names.Hidden)
	b.wantKind(try("d/l/etc"), names.Invalid)
	b.wantKind(try("d/f/x"), names.NotDir)
	b.must(b.reg.Set(bg, "code", guard.Read|guard.List))
	b.wantKind(try("d"), names.Permission)
	if recs := b.rec.Of(names.OpWatch); len(recs) != 5 {
		t.Errorf("%d records", len(recs))
	}
	b.must(b.reg.Set(bg, "code", guard.ReadOnly))
	b.must(try("d"))
	b.revoke("code")
	b.wantKind(try("d"), names.Revoked)
	if n, dirs := h.Counts(); n != 0 || dirs != 0 {
		t.Errorf("%d watches on %d directories are left", n, dirs)
	}
	h.Close()
	b.grant("code", "", guard.Policy{})
	b.wantKind(try("d"), names.Internal)
}

// If the limit of watched directories is reached when a watch begins, the watch is refused and
// nothing of it remains. If the limit is reached later, the receiver is told to look again, and the
// watch continues in the directories that it has.
func TestWatchLimit(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	for i := range 10 {
		b.put(fmt.Sprintf("d/%d/f", i), "")
	}
	b.put("small/f", "")
	h := b.hub(watch.HubOptions{MaxEach: 5})
	_, err := h.Watch(bg, who, b.at("d").Path, watch.Options{Recursive: true}, func(context.Context, []watch.Event) { t.Error("an event") })
	var limit *watch.LimitError
	if !errors.Is(err, names.Quota) || !errors.As(err, &limit) || limit.Limit != 5 {
		t.Errorf("%v", err)
	}
	if n, dirs := h.Counts(); n != 0 || dirs != 0 {
		t.Errorf("%d watches on %d directories", n, dirs)
	}
	x := b.watch(h, "small", watch.Options{Recursive: true})
	b.must(os.MkdirAll(b.host("small/1/2/3/4/5/6"), 0o755))
	x.until("overflow", overflowed)
	b.put("small/g", "")
	x.until("going on", has(watch.Created, "small/g"))
	if _, dirs := h.Counts(); dirs != 5 {
		t.Errorf("%d directories are watched", dirs)
	}
	x.w.Close()
	if n, dirs := h.Counts(); n != 0 || dirs != 0 {
		t.Errorf("%d watches on %d directories", n, dirs)
	}
}

// Many modifications cause few events, and the last state is reported. R142, R143.
func TestWatchCoalesces(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.put("d/f", "")
	const window = 300 * time.Millisecond
	h := b.hub(watch.HubOptions{Coalesce: window})
	begin := time.Now()
	x := b.watch(h, "d", watch.Options{})
	for i := range 100 {
		b.put("d/f", strings.Repeat("x", i))
		b.put("d/new", strings.Repeat("x", i))
	}
	list := x.until("both", func(list []watch.Event) bool {
		return has(watch.Modified, "d/f")(list) && has(watch.Created, "d/new")(list)
	})
	// All events fall into one window, or on a slow machine into a few. In each window a file
	// is reported once, and a new file twice.
	if most := 6 * (2 + int(time.Since(begin)/window)); len(list) > most {
		t.Errorf("%d events of 200 writes, want at most %d", len(list), most)
	}
	b.contents("d/f", strings.Repeat("x", 99))
}

// A receiver that hangs loses events, is told so, and then gets further ones. Others are not
// delayed.
func TestWatchSlowReceiver(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.put("slow/sub/f", "")
	b.put("quick/f", "")
	h := b.hub(watch.HubOptions{})
	slow, quick := b.watch(h, "slow", watch.Options{Recursive: true}), b.watch(h, "quick", watch.Options{})
	release := make(chan struct{})
	slow.holdUntil(release)
	b.put("slow/first", "")
	slow.until("the first", has(watch.Created, "slow/first"))
	many(b, "slow/many", 6000)
	b.must(os.Mkdir(b.host("slow/fresh"), 0o755))
	b.put("quick/g", "")
	quick.until("the quick one", has(watch.Created, "quick/g"))
	if overflowed(slow.events()) {
		t.Error("the loss was reported while the receiver is busy")
	}
	slow.holdUntil(nil)
	close(release)
	slow.until("overflow", overflowed)
	b.put("slow/fresh/x", "")
	b.put("slow/many/x", "")
	slow.until("going on", func(list []watch.Event) bool {
		return has(watch.Created, "slow/fresh/x")(list) && has(watch.Created, "slow/many/x")(list)
	})
	if overflowed(quick.events()) {
		t.Error("the quick receiver lost events too")
	}
}
