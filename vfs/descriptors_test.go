package vfs_test

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
)

// R060: whoever holds as many files as there can be is refused further ones
// (ENFILE) while there are descriptors left for the owner: a root is looked at,
// found to be the same, and ended; nothing is left behind by what was refused,
// and when files are closed others can be opened.
func TestHeldFilesLeaveDescriptorsForTheOwner(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	const limit = 256
	low := unix.Rlimit{Cur: limit, Max: old.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
		vfs.New(nil) // the others' limit again
	})
	if openFDs(t) > limit/4 {
		t.Skip("too many descriptors are open already")
	}
	for kind, hold := range map[string]func(b *bed, i int) (closer interface{ Close() }, err error){
		"open": func(b *bed, _ int) (interface{ Close() }, error) {
			f, _, err := b.t.Open(bg, who, b.at("f"), unix.O_RDONLY)
			return f, err
		},
		"create": func(b *bed, i int) (interface{ Close() }, error) {
			f, _, _, err := b.t.Create(bg, who, b.at("d"), fmt.Sprint(i), unix.O_RDWR, 0o644)
			return f, err
		},
		"tmpfile": func(b *bed, _ int) (interface{ Close() }, error) {
			f, _, err := b.t.Tmpfile(bg, who, b.at("d"), unix.O_RDWR, 0o644)
			return f, err
		},
		"opendir": func(b *bed, _ int) (interface{ Close() }, error) { return b.t.Opendir(bg, who, b.at("d")) },
		"ref": func(b *bed, i int) (interface{ Close() }, error) {
			return b.t.Ref(bg, who, b.at([]string{"f", ""}[i%2])) // of a name, and of the root itself
		},
	} {
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
				if f, err = hold(b, i); err == nil {
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
			b.must(second(b.t.Lstat(bg, who, b.at("f")))) // live, and operations run
			held[0].Close()
			held[1].Close()
			held = held[2:]
			f, err := hold(b, 10*limit)
			b.must(err)
			f.Close()
			b.revoke("code")
		})
	}
}
