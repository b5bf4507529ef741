package programs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// uid is a user for this package only, because other packages limit the number of processes of
// their users.
const uid = 1002

// Another user than root works in the mount. New files belong to that user on the source, and the
// files' modes are enforced.
func TestAnotherUser(t *testing.T) {
	guardtest.ShareTemp(t)
	inside(t, everywhere, func(t *testing.T, b *box) {
		need(t, "git", "sqlite3", "tar")
		testkit.Must(t, os.Mkdir(filepath.Join(b.src, "mine"), 0o750))
		testkit.Must(t, os.Chown(filepath.Join(b.src, "mine"), uid, uid))
		testkit.Must(t, os.WriteFile(filepath.Join(b.src, "secret"), []byte("root's"), 0o600))
		testkit.Must(t, os.WriteFile(filepath.Join(b.src, "public"), []byte("root's"), 0o644))
		testkit.Must(t, os.Mkdir(filepath.Join(b.src, "closed"), 0o700))
		b.uid = uid
		b.sh(`cd mine; umask 027
			mkdir d; echo x > d/f; ln d/f d/g; ln -s f d/l; cp ../public p; chmod 4755 p; chmod 755 d; mv p q; touch -d 2001-01-01 q
			git init -q -b main repo; cd repo; echo 1 > a; git add a; git commit -q -m 1; git gc -q; cd ..
			sqlite3 db 'PRAGMA journal_mode=WAL; CREATE TABLE t(x); INSERT INTO t VALUES(1);'
			tar -cf - d q | (mkdir x; tar -C x -xf -); sed -i s/x/y/ d/f; mkfifo pipe 2>/dev/null || true`)
		n := 0
		testkit.Must(t, filepath.WalkDir(filepath.Join(b.result, "mine"), func(p string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			n++
			var st unix.Stat_t
			if err := unix.Lstat(p, &st); err != nil {
				return err
			}
			if st.Uid != uid || st.Gid != uid {
				t.Errorf("%s belongs to %d:%d", p, st.Uid, st.Gid)
			}
			if st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 && st.Mode&unix.S_IFMT == unix.S_IFREG {
				t.Errorf("%s has set-id bits: %o", p, st.Mode)
			}
			return nil
		}))
		if n < 30 {
			t.Errorf("only %d files were made", n)
		}
		if fi, err := os.Stat(filepath.Join(b.result, "mine/repo/a")); err != nil || fi.Mode() != 0o640 {
			t.Errorf("under umask 027: %v, %v", fi.Mode(), err)
		}
		for _, c := range []string{
			"cat secret", "echo x >> public", "echo x > new", "mkdir new", "rm -f public", "mv public other", "ls closed", "touch closed/f",
			"chmod 666 public", fmt.Sprintf("chown %d public", uid), "ln -s x new", "touch -d 2001-01-01 public", "truncate -s 0 public", "rmdir closed",
		} {
			out, err := b.command("", "sh", "-c", c).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "ermission denied") && !strings.Contains(string(out), "not permitted") {
				t.Errorf("%s: %v, %q; want it refused", c, err, out)
			}
		}
		if got, _ := os.ReadFile(filepath.Join(b.src, "public")); string(got) != "root's" {
			t.Errorf("public is now %q", got)
		}
	})
}
