package vfs_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// temps returns the unfinished files of Replace in the root.
func (b *bed) temps() []string {
	left, err := filepath.Glob(filepath.Join(b.src, vfs.TempPrefix+"*"))
	b.must(err)
	return left
}

func (b *bed) replace(rel, text string, cond vfs.IfMatch) (vfs.Info, error) {
	if cond.Mode == 0 {
		cond.Mode = 0o644
	}
	return b.t.Replace(bg, who, b.at(rel), strings.NewReader(text), cond)
}

// R074: a replacement keeps the mode, owner and attributes of the file. A descriptor of the old
// file still reads the old contents. A replacement that fails changes no contents and leaves no
// temporary file.
func TestReplace(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("f", "old")
		b.must(os.Chmod(b.host("f"), 0o640))
		b.must(unix.Setxattr(b.host("f"), "user.kept", []byte("yes"), 0))
		if os.Geteuid() == 0 {
			b.must(os.Chown(b.host("f"), 1001, 1002))
		}
		var before, after unix.Stat_t
		b.must(unix.Stat(b.host("f"), &before))
		held, err := os.Open(b.host("f"))
		b.must(err)
		defer held.Close()

		info, err := b.replace("f", "the new contents", vfs.IfMatch{MustExist: true})
		b.must(err)
		b.must(unix.Stat(b.host("f"), &after))
		if before.Mode != after.Mode || before.Uid != after.Uid || before.Gid != after.Gid || after.Ino != info.Ino {
			t.Errorf("mode, owner: %o %d %d, before %o %d %d", after.Mode, after.Uid, after.Gid, before.Mode, before.Uid, before.Gid)
		}
		buf := make([]byte, 10)
		if n, err := unix.Getxattr(b.host("f"), "user.kept", buf); err != nil || string(buf[:n]) != "yes" {
			t.Errorf("attribute: %q, %v", buf[:max(n, 0)], err)
		}
		if got, _ := io.ReadAll(held); string(got) != "old" {
			t.Errorf("a descriptor of the old file reads %q", got)
		}
		if got, _ := os.ReadFile(b.host("f")); string(got) != "the new contents" {
			t.Errorf("contents %q", got)
		}

		_, err = b.t.Replace(bg, who, b.at("f"), io.MultiReader(strings.NewReader("half"), broken{}), vfs.IfMatch{})
		if !errors.Is(err, errBroken) {
			t.Errorf("a source that breaks off: %v", err)
		}
		if got, _ := os.ReadFile(b.host("f")); string(got) != "the new contents" {
			t.Errorf("contents after a failed replacement %q", got)
		}
		if left := b.temps(); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// R073: a replacement is refused if its condition does not hold, and then changes no contents.
func TestReplaceConditions(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("f", "one")
		info, err := b.t.Lstat(bg, who, b.at("f"))
		b.must(err)
		tag := vfs.ETag(&info)
		if _, err := b.replace("f", "two", vfs.IfMatch{ETag: tag}); err != nil {
			t.Errorf("matching etag: %v", err)
		}
		b.must(os.Mkdir(b.host("d"), 0o755))
		b.must(os.Symlink("f", b.host("l")))
		for _, c := range []struct {
			name, rel string
			cond      vfs.IfMatch
			want      guard.Kind
		}{
			{"stale etag", "f", vfs.IfMatch{ETag: tag}, names.Conflict},
			{"etag of a file that is not there", "new", vfs.IfMatch{ETag: tag}, names.NotExist},
			{"must be new", "f", vfs.IfMatch{MustBeNew: true}, names.Exist},
			{"must exist", "new", vfs.IfMatch{MustExist: true}, names.NotExist},
			{"directory", "d", vfs.IfMatch{}, names.IsDir},
			{"link", "l", vfs.IfMatch{}, names.Escaped},
		} {
			if _, err := b.replace(c.rel, "three", c.cond); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
		}
		if got, _ := os.ReadFile(b.host("f")); string(got) != "two" {
			t.Errorf("contents %q", got)
		}
		if left := b.temps(); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// R077, R055: the quota is charged once, as the contents come, and refunded when the
// replacement fails.
func TestReplaceQuota(t *testing.T) {
	for name, remote := range map[string]bool{"local": false, "remote": true} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, remote, guard.Policy{Rights: guard.ReadWrite, Limits: guard.Limits{MaxFile: 100, MaxWritten: 150}})
			_, err := b.replace("f", strings.Repeat("x", 101), vfs.IfMatch{})
			if names.Errno(err) != syscall.EFBIG {
				t.Errorf("too large: %v", err)
			}
			if _, err := b.replace("f", strings.Repeat("x", 100), vfs.IfMatch{}); err != nil {
				t.Error(err)
			}
			if st, _ := b.reg.Lookup("code"); st.Written != 100 || st.Created != 1 {
				t.Errorf("written %d, created %d; want 100 and 1", st.Written, st.Created)
			}
			if _, err := b.replace("f", strings.Repeat("y", 60), vfs.IfMatch{}); names.Errno(err) != syscall.EDQUOT {
				t.Errorf("over the sum: %v", err)
			}
			if st, _ := b.reg.Lookup("code"); st.Written != 100 {
				t.Errorf("written %d after a refusal, want 100", st.Written)
			}
		})
	}
}

// R073, R095: of several replacements with the same etag exactly one succeeds.
func TestReplaceRace(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.put("f", "start")
	for range 30 {
		info, err := b.t.Lstat(bg, who, b.at("f"))
		b.must(err)
		tag := vfs.ETag(&info)
		var wg sync.WaitGroup
		won := make(chan string, 8)
		for i := range 8 {
			wg.Go(func() {
				text := strings.Repeat(string(rune('a'+i)), 10)
				if _, err := b.replace("f", text, vfs.IfMatch{ETag: tag, NoDurable: true}); err == nil {
					won <- text
				} else if !errors.Is(err, names.Conflict) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		close(won)
		var winners []string
		for w := range won {
			winners = append(winners, w)
		}
		got, err := os.ReadFile(b.host("f"))
		b.must(err)
		if len(winners) != 1 || winners[0] != string(got) {
			t.Fatalf("%d replacements succeeded (%q), the file holds %q", len(winners), winners, got)
		}
	}
}

var errBroken = errors.New("broken off")

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errBroken }

// R082: a replacement leaves one record with its bytes, whether or not there was
// a file before.
func TestReplaceRecords(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		for _, text := range []string{"new", "existing"} {
			mark := len(b.rec.All())
			b.must(second(b.replace("f", text, vfs.IfMatch{})))
			b.oneRecord(mark, text, 0, int64(len(text)))
		}
	})
}

// If the old file has no ACL, the file that replaces it has none either, even if the directory has
// a default ACL. A file that replaces no other file gets an ACL from the directory's default ACL.
func TestReplaceAddsNoACL(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.put("f", "old")
	// user::rwx, user:1001:rwx, group::r-x, mask::rwx, other::r-x
	acl := []byte{2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 7, 0, 0xe9, 3, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255,
		16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 5, 0, 255, 255, 255, 255}
	if err := unix.Setxattr(b.src, "system.posix_acl_default", acl, 0); err != nil {
		t.Skip("the file system has no ACLs: ", err)
	}
	b.must(second(b.replace("f", "new", vfs.IfMatch{})))
	if n, err := unix.Getxattr(b.host("f"), "system.posix_acl_access", nil); err != unix.ENODATA {
		t.Errorf("the new file has an ACL of %d bytes, %v", n, err)
	}
	b.must(second(b.replace("g", "new", vfs.IfMatch{Mode: 0o666})))
	if _, err := unix.Getxattr(b.host("g"), "system.posix_acl_access", nil); err != nil {
		t.Errorf("a file at a new name has no ACL: %v", err)
	}
}
