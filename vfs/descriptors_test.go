package vfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
)

// openings are the ways in which a caller makes a Tree keep a descriptor; i is the number of the
// call.
var openings = map[string]func(b *bed, c guard.Caller, i int) (closer interface{ Close() }, err error){
	"open": func(b *bed, c guard.Caller, _ int) (interface{ Close() }, error) {
		f, _, err := b.t.Open(bg, c, b.at("f"), unix.O_RDONLY)
		return f, err
	},
	"create": func(b *bed, c guard.Caller, i int) (interface{ Close() }, error) {
		f, _, _, err := b.t.Create(bg, c, b.at("d"), fmt.Sprint(i), unix.O_RDWR, 0o644)
		return f, err
	},
	"tmpfile": func(b *bed, c guard.Caller, _ int) (interface{ Close() }, error) {
		f, _, err := b.t.Tmpfile(bg, c, b.at("d"), unix.O_RDWR, 0o644)
		return f, err
	},
	"opendir": func(b *bed, c guard.Caller, _ int) (interface{ Close() }, error) {
		return b.t.Opendir(bg, c, b.at("d"))
	},
	"ref": func(b *bed, c guard.Caller, i int) (interface{ Close() }, error) {
		return b.t.Ref(bg, c, b.at([]string{"f", ""}[i%2])) // of a file and of the root in turn
	},
}

// fewDescriptors runs the rest of a test with a lower limit of descriptors, in another process,
// because the descriptors of other tests would count. It returns true in that process, and
// false when that process has ended.
func fewDescriptors(t *testing.T, limit uint64) bool {
	t.Helper()
	const inside = "ROOTSFS_TEST_DESCRIPTORS"
	if os.Getenv(inside) == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name()+" ")) {
			t.Errorf("%v\n%s", err, out)
		}
		return false
	}
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	now.Cur = limit
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	if uint64(openFDs(t)) > limit/4 {
		t.Fatal("too many descriptors are open already")
	}
	return true
}

// In a mount that several users may enter, no user can take all descriptors of the daemon. When a
// user who opens as many files as possible is refused (EMFILE), a second user can still open
// files, and after that a third. Closed files make room again. A refused operation has made no
// file and keeps no room.
func TestDescriptorsAreShared(t *testing.T) {
	const limit = 256
	if !fewDescriptors(t, limit) {
		return
	}
	for kind, hold := range openings {
		t.Run(kind, func(t *testing.T) {
			b := newBed(t, false, guard.Policy{})
			b.t.ShareAmongUsers()
			b.put("f", "x")
			b.must(os.MkdirAll(b.host("d"), 0o777))
			b.must(os.Chmod(b.host("d"), 0o777))
			i := 0
			fill := func(uid uint32) (held []interface{ Close() }) {
				t.Helper()
				c := guard.Caller{Via: guard.ViaFUSE, UID: uid, GID: uid}
				for {
					i++
					f, err := hold(b, c, i)
					if err != nil {
						b.wantErrno(err, unix.EMFILE)
						return held
					}
					if held = append(held, f); len(held) > limit {
						t.Fatal("there is no bound")
					}
				}
			}
			first, second, third := fill(61001), fill(61002), fill(61003)
			if len(first) > limit/2 || len(second) < len(first)/3 || len(third) < len(second)/3 {
				t.Errorf("the users hold %d, %d and %d of %d", len(first), len(second), len(third), limit)
			}
			for _, f := range append(first, third...) {
				f.Close()
			}
			again := fill(61001)
			if len(again) < len(first)/2 || len(again) > limit/2 {
				t.Errorf("after closing %d, the user holds %d", len(first), len(again))
			}
			if kind == "create" {
				made, err := os.ReadDir(b.host("d"))
				b.must(err)
				if want := len(first) + len(second) + len(third) + len(again); len(made) != want {
					t.Errorf("%d files were made for %d that were opened", len(made), want)
				}
			}
			for _, f := range append(again, second...) {
				f.Close()
			}
			if got := fill(61004); len(got) != len(first) {
				t.Errorf("when all is closed, a user holds %d, and the first %d", len(got), len(first))
			} else {
				for _, f := range got {
					f.Close()
				}
			}
			b.revoke("code")
		})
	}
}

// R060: a program that holds as many files as possible is refused further ones (ENFILE) while
// there are descriptors left for the owner: a root is checked, found unchanged, and ended.
// Refused operations leave nothing behind, and closed files make room for others.
func TestHeldFilesLeaveDescriptorsForTheOwner(t *testing.T) {
	const limit = 256
	if !fewDescriptors(t, limit) {
		return
	}
	for kind, hold := range openings {
		t.Run(kind, func(t *testing.T) {
			b := newBed(t, false, guard.Policy{})
			b.put("f", "x")
			b.must(os.Mkdir(b.host("d"), 0o755))
			var held []interface{ Close() }
			defer func() {
				for _, f := range held {
					f.Close()
				}
			}()
			var err error
			for i := 0; i < 2*limit && err == nil; i++ {
				var f interface{ Close() }
				if f, err = hold(b, who, i); err == nil {
					held = append(held, f)
				}
			}
			b.wantErrno(err, unix.ENFILE)
			if n := openFDs(t); n > limit-limit/4+8 || n < limit/2 {
				t.Errorf("%d of %d descriptors are open", n, limit)
			}
			if kind == "create" {
				names, err := os.ReadDir(b.host("d"))
				b.must(err)
				if len(names) != len(held) {
					t.Errorf("%d files were made for %d that were opened", len(names), len(held))
				}
			}
			b.must(b.reg.Recheck(bg, "code"))
			b.must(second(b.t.Lstat(bg, who, b.at("f")))) // the root is live, and operations run
			held[0].Close()
			held[1].Close()
			held = held[2:]
			f, err := hold(b, who, 10*limit)
			b.must(err)
			f.Close()
			b.revoke("code")
		})
	}
}

// If the audit log rejects the record of an open, the open fails and leaves no descriptor. (On
// a full disk, leaks would use up all descriptors.)
func TestUnrecordedOpenLeavesNoDescriptor(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("f", "text")
		file, dir := b.known("f"), b.known("")
		b.rec.Fail(errors.New("no room"))
		for what, f := range map[string]func() error{
			"open":    func() error { _, _, err := b.t.Open(bg, who, file, unix.O_RDWR); return err },
			"create":  func() error { _, _, _, err := b.t.Create(bg, who, dir, "f", unix.O_RDWR, 0o644); return err },
			"tmpfile": func() error { _, _, err := b.t.Tmpfile(bg, who, dir, unix.O_RDWR, 0o644); return err },
			"opendir": func() error { return second(b.t.Opendir(bg, who, dir)) },
		} {
			before := openFDs(t)
			for range 50 {
				if f() == nil {
					t.Fatalf("%s succeeded although the audit log rejected its record", what)
				}
			}
			noLeak(t, before, 0)
		}
		b.rec.Fail(nil)
		b.open("f", unix.O_RDWR).Close()
	})
}
