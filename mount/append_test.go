package mount

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// hostWriter is a mount of a root with a file "log". While on is set, the test appends a line to
// the file on the source whenever a request about the root begins.
type hostWriter struct {
	*testMount
	on atomic.Bool
}

func newHostWriter(t *testing.T, level Level) *hostWriter {
	w := &hostWriter{}
	src := t.TempDir()
	w.testMount = newTestMount(t, guard.ReadWrite, func(o *Options, g *guard.Grant) {
		g.Dir, o.Level = names.Foreign(src), level
		o.atStep = func(s step, _ guard.RootName) {
			if s != viewEntry || !w.on.Load() {
				return
			}
			if f, err := os.OpenFile(filepath.Join(src, "log"), os.O_WRONLY|os.O_APPEND, 0); err == nil {
				_, _ = f.WriteString("H\n")
				_ = f.Close()
			}
		}
	})
	w.src = src
	testkit.Must(t, childfs.WriteFile(filepath.Join(src, "log"), nil, 0o644))
	return w
}

// lines returns the lines of the file on the source, and how often each line is there.
func (w *hostWriter) lines(t *testing.T) map[string]int {
	t.Helper()
	text, err := childfs.ReadFile(filepath.Join(w.src, "log"))
	testkit.Must(t, err)
	counts := map[string]int{}
	for line := range strings.Lines(string(text)) {
		counts[line]++
	}
	return counts
}

// The bytes that one write(2) appends stay together, whatever the host appends meanwhile, up to
// the size of one request of the kernel (see help roots).
func TestOneAppendIsOneWrite(t *testing.T) {
	for _, level := range []Level{Strict, Audit} { // not Max: the kernel opens existing files by itself there, and caches pages
		for name, flags := range map[string]int{"O_WRONLY": os.O_WRONLY, "O_RDWR": os.O_RDWR, "new": os.O_WRONLY | os.O_CREATE} {
			t.Run(level.String()+"/"+name, func(t *testing.T) {
				w := newHostWriter(t, level)
				log := filepath.Join(w.root, "log")
				if flags&os.O_CREATE != 0 {
					testkit.Must(t, childfs.Remove(filepath.Join(w.src, "log")))
				}
				f, err := childfs.OpenFile(log, flags|os.O_APPEND, 0o644)
				testkit.Must(t, err)
				defer f.Close()
				w.on.Store(true)
				want := map[string]int{}
				for i, size := range []int{600, 5000, 100, 4097, 70_000, 508 << 10} {
					line := strings.Repeat(string(rune('a'+i)), size-1) + "\n"
					n, err := f.Write([]byte(line))
					if err != nil || n != size {
						t.Fatalf("wrote %d of %d bytes, %v", n, size, err)
					}
					want[line] = 1
				}
				w.on.Store(false)
				got := w.lines(t)
				for line := range want {
					if got[line] != 1 {
						t.Errorf("the line of %d bytes is not whole", len(line))
					}
				}
				if got["H\n"] < len(want) {
					t.Errorf("the host has written %d lines, want %d at least", got["H\n"], len(want))
				}
			})
		}
	}
}

// O_APPEND is in effect from the moment it is set until it is cleared, also at level max, where
// the kernel does not say how a file was opened.
func TestAppendFollowsTheFlag(t *testing.T) {
	levels(t, func(t *testing.T, level Level) {
		w := newHostWriter(t, level)
		log := filepath.Join(w.root, "log")
		for _, c := range []struct {
			name              string
			openFlag, newFlag int
			want              string
		}{
			{"opened to append", os.O_APPEND, os.O_APPEND, "hostmount"},
			{"set later", 0, os.O_APPEND, "hostmount"},
			{"cleared later", os.O_APPEND, 0, "mount"},
		} {
			t.Run(c.name, func(t *testing.T) {
				testkit.Must(t, childfs.WriteFile(filepath.Join(w.src, "log"), nil, 0o644))
				f, err := childfs.OpenFile(log, os.O_WRONLY|c.openFlag, 0)
				testkit.Must(t, err)
				defer f.Close()
				_, err = childfs.SysFcntlInt(f.Fd(), unix.F_SETFL, c.newFlag)
				testkit.Must(t, err)
				// The kernel does not know of the host's bytes yet, so it sends offset 0.
				host, err := childfs.OpenFile(filepath.Join(w.src, "log"), os.O_WRONLY|os.O_APPEND, 0)
				testkit.Must(t, err)
				defer host.Close()
				_, err = host.WriteString("host")
				testkit.Must(t, err)
				_, err = f.WriteString("mount")
				testkit.Must(t, err)
				if got, err := childfs.ReadFile(filepath.Join(w.src, "log")); err != nil || string(got) != c.want {
					t.Errorf("the log holds %q, %v; want %q", got, err, c.want)
				}
			})
		}
	})
}
