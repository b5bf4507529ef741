package sandbox

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/mount/sandbox/ahead"
	"github.com/rootsfs/rootsfs/mount/sandbox/callproc/atstart"
)

// An init that was started ahead is the one that the command gets, if it is of the
// right kind and there is nothing to be done before; otherwise it ends, and the
// command gets one of its own.
func TestAhead(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("CI must be able to run this: root")
		}
		t.Skip("only root's inits are started ahead")
	}
	uid, gid := DefaultID()
	point := tree(t, "d")
	put(t, point+"/d/f", "there")
	late := func(o *Options) error { o.Tree = point; return nil }
	for _, c := range []struct {
		name  string
		kind  ahead.Kind
		o     Options
		taken bool
	}{
		{"taken", ahead.Kind{UID: uid, GID: gid}, Options{Mounted: late}, true},
		{"taken, with a network", ahead.Kind{Net: true, UID: uid, GID: gid}, Options{Mounted: late, Net: true}, true},
		{"with a network", ahead.Kind{Net: true, UID: uid, GID: gid}, Options{Mounted: late}, false},
		{"without a network", ahead.Kind{UID: uid, GID: gid}, Options{Mounted: late, Net: true}, false},
		{"another uid", ahead.Kind{UID: uid, GID: gid}, Options{Mounted: late, UID: uid + 1}, false},
		{"the tree is there", ahead.Kind{UID: uid, GID: gid}, Options{Tree: point}, false},
		{"another level", ahead.Kind{UID: uid, GID: gid}, Options{Mounted: late, Level: Landlock, Private: private(t)}, false},
		{"bounded memory", ahead.Kind{UID: uid, GID: gid}, Options{Mounted: late, MemoryMax: MinMemory, Group: "rootsfs-test-ahead"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := c.o
			o.Map = Flat
			if o.Level == 0 {
				o.Level = Namespaces
			}
			o.Dir, o.Args = DefaultFlatAt+"/d", []string{"sh", "-c", "cat f; echo $((3 + 4)) >&2; exit 9"}
			ahead.Begin(c.kind)
			begun := waiting(t)
			p, err := Start(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			p.Stdin().Close()
			if taken := p.proc.Pid == begun; taken != c.taken {
				t.Errorf("taken: %v", taken)
			}
			out, _ := io.ReadAll(p.Stdout())
			said, _ := io.ReadAll(p.Stderr())
			if exit, err := p.Wait(); err != nil || exit != (Exit{Code: 9}) || string(out) != "there" || string(said) != "7\n" {
				t.Errorf("%+v, %v, %q, %q", exit, err, out, said)
			}
			p.Stdout().Close()
			p.Stderr().Close()
			if left := living(); len(left) != 0 {
				t.Errorf("processes %v are left", left)
			}
		})
	}
}

// A command has the limit of descriptors that this process was started with, and no
// capability, whoever started its init, and an init that cannot have its uid leaves
// nothing.
func TestAheadLikeAnyInit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's inits are started ahead")
	}
	uid, gid := DefaultID()
	said := map[bool]string{}
	for _, taken := range []bool{false, true} {
		point := tree(t, "d")
		o := Options{Map: Flat, Level: Namespaces, Mounted: func(o *Options) error { o.Tree = point; return nil }}
		o.Dir, o.Args = DefaultFlatAt+"/d", []string{"sh", "-c", "ulimit -Sn; ulimit -Hn; id -u; id -G; grep -E '^(Cap|Sig(Blk|Ign)|Umask|NoNewPrivs)' /proc/self/status; ls /proc/self/fd | wc -l"}
		if taken {
			ahead.Begin(ahead.Kind{UID: uid, GID: gid})
		}
		p, err := Start(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		p.Stdin().Close()
		out, _ := io.ReadAll(p.Stdout())
		said[taken] = string(out)
		if exit, err := p.Wait(); err != nil || exit != (Exit{}) {
			t.Errorf("%+v, %v", exit, err)
		}
		p.Stdout().Close()
		p.Stderr().Close()
	}
	const most = 16384 // open files; see userLimits
	if want := fmt.Sprintf("%d\n%d\n%d\n%d\n", min(most, atstart.NoFile.Cur), min(most, atstart.NoFile.Max), uid, gid); said[true] != said[false] || !strings.HasPrefix(said[true], want) {
		t.Errorf("started ahead:\n%s\nstarted later:\n%s\nwant first:\n%s", said[true], said[false], want)
	}
	none := ahead.Kind{UID: ^uint32(0), GID: gid}
	ahead.Begin(none)
	if i := ahead.Take(none); i != nil {
		i.Drop()
		t.Error("an init has a uid that there is not")
	}
	if left := living(); len(left) != 0 {
		t.Errorf("processes %v are left", left)
	}
}

// An init that was started ahead and could not become a program is not waited for: the
// one that is started instead says what is wrong.
func TestAheadThatMayNotExecute(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's inits are started ahead")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(exe, 0o700); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(exe, 0o755)
	uid, gid := DefaultID()
	ahead.Begin(ahead.Kind{UID: uid, GID: gid})
	point := tree(t, "d")
	o := Options{Map: Flat, Level: Namespaces, Args: []string{"true"}, Mounted: func(o *Options) error { o.Tree = point; return nil }}
	if p, err := Start(context.Background(), o); err == nil || !strings.Contains(err.Error(), "may not execute this program") {
		t.Errorf("%v, %v", p, err)
	}
	if left := living(); len(left) != 0 {
		t.Errorf("processes %v are left", left)
	}
}

// An init that was started ahead and is not needed ends when its caller says so, and
// a second one is not begun while there is one.
func TestAheadForgotten(t *testing.T) {
	if os.Geteuid() != 0 {
		ahead.Begin(ahead.Kind{})
		if ahead.Take(ahead.Kind{}) != nil {
			t.Error("an ordinary user has one")
		}
		return
	}
	uid, gid := DefaultID()
	for range 2 {
		ahead.Begin(ahead.Kind{UID: uid, GID: gid})
		ahead.Begin(ahead.Kind{UID: uid, GID: gid})
		waiting(t)
		ahead.Forget()
		if left := living(); len(left) != 0 {
			t.Errorf("processes %v are left", left)
		}
		ahead.Forget() // there is none
	}
}

// waiting is the one child that waits, once it is there.
func waiting(t *testing.T) int {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if list := living(); len(list) == 1 {
			return list[0]
		}
		if time.Now().After(end) {
			t.Fatalf("the children are %v, want one", living())
		}
	}
}
