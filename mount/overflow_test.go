package mount

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// lockedLog is a log that can be read while it is written.
type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// holdNoise opens the directory "noise", in which loseEvents causes events: the mount watches a
// directory as long as a program has it open.
func (m *testMount) holdNoise(t *testing.T) {
	t.Helper()
	f, err := childfs.Open(filepath.Join(m.root, "noise"))
	testkit.Must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	_, err = f.Readdirnames(0)
	testkit.Must(t, err)
}

// loseEvents runs change while the kernel's queue of the source's events overflows, so that the
// kernel drops the events of change and all others of that time. Nobody reads the queue
// meanwhile.
func (m *testMount) loseEvents(t *testing.T, change func()) {
	t.Helper()
	b, err := childfs.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	testkit.Must(t, err)
	room, err := strconv.Atoi(strings.TrimSpace(string(b)))
	testkit.Must(t, err)
	// The reader of the queue has the first event, and waits for this lock.
	d := m.Mount.delivery
	d.mu.Lock()
	defer d.mu.Unlock()
	noise := filepath.Join(m.src, "noise")
	testkit.Must(t, childfs.WriteFile(filepath.Join(noise, "0"), nil, 0o644))
	for i := range room { // two events each: too many even if the reader has taken a full buffer
		testkit.Must(t, os.Rename(filepath.Join(noise, strconv.Itoa(i)), filepath.Join(noise, strconv.Itoa(i+1))))
	}
	testkit.Must(t, childfs.Remove(filepath.Join(noise, strconv.Itoa(room))))
	change()
}

// After lost events of the source the kernel keeps no cache that may be stale: contents,
// attributes, names, absent names and listings, also of files that a program holds open. The
// same holds when events are lost again.
func TestCoherentAfterLostEvents(t *testing.T) {
	var log lockedLog
	m := newTestMount(t, guard.ReadWrite, func(o *Options, _ *guard.Grant) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	host := func(name string) string { return filepath.Join(m.src, name) }
	seen := func(name string) string { return filepath.Join(m.root, name) }
	for _, d := range []string{"noise", "d", "d/e", "held"} {
		testkit.Must(t, childfs.Mkdir(host(d), 0o755))
		testkit.Must(t, childfs.WriteFile(host(d+"/f"), []byte("one"), 0o644))
		testkit.Must(t, childfs.WriteFile(host(d+"/g"), []byte("one"), 0o644))
	}
	testkit.Must(t, childfs.WriteFile(host("f"), []byte("one"), 0o644))
	m.holdNoise(t)
	dir, err := childfs.SysOpen(seen("held"), unix.O_PATH|unix.O_DIRECTORY, 0)
	testkit.Must(t, err)
	defer childfs.SysClose(dir)
	held, err := childfs.Open(seen("d/f"))
	testkit.Must(t, err)
	defer held.Close()
	// at looks a path up below the held directory, without that directory's name.
	at := func(name string) (st unix.Stat_t, err error) {
		err = childfs.SysFstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		return st, err
	}
	for round, text := range []string{"two", "one", "two", "one"} {
		// The kernel learns these, and must forget them.
		for _, d := range []string{"", "d/", "d/e/", "held/"} {
			_ = contents(seen(d + "f"))
			_, _ = childfs.Stat(seen(d + "g"))
			_, _ = childfs.Stat(seen(d + "new"))
			_, _ = childfs.ReadDir(seen(d))
		}
		_, _ = at("late")
		_, _ = at("g")
		late := round%2 == 0
		m.loseEvents(t, func() {
			for _, d := range []string{"", "d/", "d/e/", "held/"} {
				testkit.Must(t, childfs.WriteFile(host(d+"f"), []byte(text), 0o644)) // of equal size
			}
			if late {
				testkit.Must(t, childfs.WriteFile(host("held/late"), nil, 0o644))
				testkit.Must(t, childfs.Rename(host("d/g"), host("d/new")))
				testkit.Must(t, childfs.Remove(host("held/g")))
				testkit.Must(t, childfs.Chmod(host("d/e/g"), 0o600))
			} else {
				testkit.Must(t, childfs.Remove(host("held/late")))
				testkit.Must(t, childfs.Rename(host("d/new"), host("d/g")))
				testkit.Must(t, childfs.WriteFile(host("held/g"), nil, 0o644))
				testkit.Must(t, childfs.Chmod(host("d/e/g"), 0o644))
			}
		})
		is := func(name string) bool { _, err := childfs.Lstat(seen(name)); return err == nil }
		below := func(name string) bool { _, err := at(name); return err == nil }
		testkit.Until(t, "names below the held directory", func() bool { return below("late") == late && below("g") != late })
		for _, d := range []string{"", "d/", "d/e/", "held/"} {
			testkit.Until(t, "contents in "+d, func() bool { return contents(seen(d+"f")) == text })
		}
		testkit.Until(t, "contents of an open file", func() bool {
			b := make([]byte, 3)
			_, _ = held.ReadAt(b, 0)
			return string(b) == text
		})
		testkit.Until(t, "a rename", func() bool { return is("d/new") == late && is("d/g") != late })
		testkit.Until(t, "attributes", func() bool {
			st, err := childfs.Stat(seen("d/e/g"))
			return err == nil && (st.Mode() == 0o600) == late
		})
		testkit.Until(t, "a listing", func() bool {
			var list []string
			es, err := childfs.ReadDir(seen("held"))
			for _, e := range es {
				list = append(list, e.Name())
			}
			want := "f g"
			if late {
				want = "f late"
			}
			return err == nil && strings.Join(list, " ") == want
		})
	}
	if !strings.Contains(log.String(), "max_queued_events") {
		t.Error("no events were lost")
	}
}

// After lost events the kernel does not treat a new name in a directory as absent. The same holds
// if the kernel dropped the directory's name after earlier lost events, and only a program that has
// the directory open still reaches it.
func TestHeldDirectoryAfterLostEvents(t *testing.T) {
	m := newTestMount(t, guard.ReadWrite, nil)
	for _, d := range []string{"noise", "held", "held/in"} {
		testkit.Must(t, childfs.Mkdir(filepath.Join(m.src, d), 0o755))
		testkit.Must(t, childfs.WriteFile(filepath.Join(m.src, d, "f"), nil, 0o644))
	}
	m.holdNoise(t)
	dir, err := childfs.SysOpen(filepath.Join(m.root, "held"), unix.O_PATH|unix.O_DIRECTORY, 0)
	testkit.Must(t, err)
	defer childfs.SysClose(dir)
	is := func(name string) bool {
		var st unix.Stat_t
		return childfs.SysFstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
	}
	for round := range 4 {
		name := strconv.Itoa(round)
		for _, d := range []string{"", "in/"} {
			if is(d+name) || !is(d+"f") {
				t.Fatalf("before events are lost, %s exists or %s does not", d+name, d+"f")
			}
		}
		m.loseEvents(t, func() {
			for _, d := range []string{"held/", "held/in/"} {
				testkit.Must(t, childfs.WriteFile(filepath.Join(m.src, d+name), nil, 0o644))
			}
		})
		for _, d := range []string{"", "in/"} {
			testkit.Until(t, "what was absent, in round "+name, func() bool { return is(d + name) })
		}
	}
}
