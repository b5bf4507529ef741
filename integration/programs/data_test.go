package programs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// Two sqlite3 processes write to one database with a write-ahead log at the same time. Afterwards
// another process finds all rows in the mount, and after a checkpoint also on the host.
func TestSqliteWAL(t *testing.T) {
	inside(t, everywhere, func(t *testing.T, b *box) {
		need(t, "sqlite3")
		if out := b.run("", "sqlite3", "db", "PRAGMA journal_mode=WAL; CREATE TABLE t(p, i, x);"); out != "wal\n" {
			t.Fatalf("journal mode %q", out)
		}
		const rows = 60
		done := make(chan error, 2)
		for p := range 2 {
			var script strings.Builder
			script.WriteString(".timeout 60000\n")
			for i := range rows {
				fmt.Fprintf(&script, "INSERT INTO t VALUES(%d,%d,hex(randomblob(%d)));\n", p, i, 10+i*20)
				if i%20 == 10 {
					script.WriteString("BEGIN IMMEDIATE; UPDATE t SET x=x||'!' WHERE i%3=0; COMMIT; SELECT count(*) FROM t;\n")
				}
			}
			cmd := b.command("", "sqlite3", "-bail", "db")
			cmd.Stdin = strings.NewReader(script.String())
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			testkit.Must(t, cmd.Start())
			go func() {
				err := cmd.Wait()
				if err != nil {
					err = fmt.Errorf("%w: %s", err, stderr.String())
				}
				done <- err
			}()
		}
		for range 2 {
			testkit.Must(t, <-done)
		}
		const query = "PRAGMA integrity_check; SELECT count(*), count(DISTINCT p||':'||i) FROM t;"
		want := fmt.Sprintf("ok\n%d|%d\n", 2*rows, 2*rows)
		if out := b.run("", "sqlite3", "db", query); out != want {
			t.Errorf("in the mount: %q", out)
		}
		b.run("", "sqlite3", "db", "VACUUM; PRAGMA wal_checkpoint(TRUNCATE);")
		host := *b
		host.dir = b.result
		if out := host.run("", "sqlite3", "db", query); out != want {
			t.Errorf("on the source: %q", out)
		}
	})
}

// Editors save in three ways: they rename a temporary file over the old file, rename the old file
// to a backup and write a new file, or exchange the old file with a new file. A process that has
// the old file open keeps reading the old content.
func TestEditorsSave(t *testing.T) {
	saves := map[string]func(t *testing.T, dir, text string){
		"temporary and rename": func(t *testing.T, dir, text string) {
			f, err := os.CreateTemp(dir, ".tmp*")
			testkit.Must(t, err)
			_, err = f.WriteString(text)
			testkit.Must(t, err)
			testkit.Must(t, f.Chmod(0o640))
			testkit.Must(t, f.Sync())
			testkit.Must(t, f.Close())
			testkit.Must(t, os.Rename(f.Name(), filepath.Join(dir, "f")))
			d, err := os.Open(dir)
			testkit.Must(t, err)
			testkit.Must(t, d.Sync())
			testkit.Must(t, d.Close())
		},
		"backup": func(t *testing.T, dir, text string) {
			name := filepath.Join(dir, "f")
			probe := filepath.Join(dir, "4913") // vim tests in this way whether it may create files
			fd, err := unix.Open(probe, unix.O_CREAT|unix.O_WRONLY|unix.O_EXCL|unix.O_NOFOLLOW, 0o640)
			testkit.Must(t, err)
			testkit.Must(t, unix.Fchown(fd, 0, 0))
			testkit.Must(t, unix.Close(fd))
			testkit.Must(t, unix.Unlink(probe))
			testkit.Must(t, os.Rename(name, name+"~"))
			f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
			testkit.Must(t, err)
			_, err = f.WriteString(text)
			testkit.Must(t, err)
			testkit.Must(t, f.Sync())
			testkit.Must(t, f.Chmod(0o640))
			testkit.Must(t, f.Close())
			testkit.Must(t, os.Remove(name+"~"))
		},
		"exchange": func(t *testing.T, dir, text string) {
			name := filepath.Join(dir, "f")
			testkit.Must(t, os.WriteFile(name+".new", []byte(text), 0o640))
			testkit.Must(t, unix.Renameat2(unix.AT_FDCWD, name+".new", unix.AT_FDCWD, name, unix.RENAME_EXCHANGE))
			testkit.Must(t, os.Remove(name+".new"))
		},
	}
	inside(t, everywhere, func(t *testing.T, b *box) {
		for how, save := range saves {
			t.Run(how, func(t *testing.T) {
				name := filepath.Join(b.dir, "f")
				testkit.Must(t, os.WriteFile(name, []byte("version 0, the longest of all\n"), 0o640))
				for i := 1; i < 5; i++ {
					old, err := os.Open(name)
					testkit.Must(t, err)
					before, err := os.ReadFile(name)
					testkit.Must(t, err)
					text := fmt.Sprintf("version %d\n", i)
					save(t, b.dir, text)
					if got := b.run("", "cat", "f"); got != text {
						t.Errorf("after the save: %q, want %q", got, text)
					}
					if got, _ := os.ReadFile(filepath.Join(b.result, "f")); string(got) != text {
						t.Errorf("on the source: %q", got)
					}
					buf := make([]byte, 100)
					n, _ := old.ReadAt(buf, 0)
					if string(buf[:n]) != string(before) {
						t.Errorf("a process that has the old file open reads %q, want %q", buf[:n], before)
					}
					testkit.Must(t, old.Close())
				}
				if left, _ := os.ReadDir(b.result); len(left) != 1 {
					t.Errorf("left on the source: %v", left)
				}
			})
		}
	})
}

// sed -i in the mount changes the file on the host and keeps the file's mode.
func TestSedInPlace(t *testing.T) {
	inside(t, everywhere, func(t *testing.T, b *box) {
		testkit.Must(t, os.WriteFile(filepath.Join(b.dir, "f"), []byte("one two\n"), 0o755))
		b.run("", "sed", "-i.bak", "s/two/three/", "f")
		if got, _ := os.ReadFile(filepath.Join(b.result, "f")); string(got) != "one three\n" {
			t.Errorf("%q", got)
		}
		if fi, err := os.Stat(filepath.Join(b.result, "f")); err != nil || fi.Mode() != 0o755 {
			t.Errorf("mode %v, %v", fi.Mode(), err)
		}
	})
}

// Two processes increment a counter under flock. Without the lock, increments would be lost.
func TestFlock(t *testing.T) {
	inside(t, everywhere, func(t *testing.T, b *box) {
		need(t, "flock")
		b.sh(`echo 0 > n
			work() { for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do flock lock sh -c 'read v < n; echo $((v+1)) > n'; done; }
			work & work & wait`)
		if got := b.run("", "cat", "n"); got != "30\n" {
			t.Errorf("counted %q", got)
		}
		// A lock that is held is refused to another process, and is released when its holder
		// ends.
		b.sh(`exec 9> lock; flock 9; ! flock -n lock true`)
		b.run("", "flock", "-n", "lock", "true")
	})
}

// Two processes store into one file through shared mappings.
func TestMappedWriters(t *testing.T) {
	inside(t, everywhere, func(t *testing.T, b *box) {
		const size = 64 << 10
		name := filepath.Join(b.dir, "m")
		for _, nosync := range []bool{false, true} {
			testkit.Must(t, os.WriteFile(name, make([]byte, size), 0o644))

			a := startMapping(t, mapping{Path: name, Off: 100, Len: size/2 - 100, Char: 'a', Size: size, NoSync: nosync})
			z := startMapping(t, mapping{Path: name, Off: size / 2, Len: size/2 - 100, Char: 'z', Size: size, NoSync: nosync})
			testkit.Must(t, a.Wait())
			testkit.Must(t, z.Wait())
			want := bytes.Repeat([]byte{0}, size)
			copy(want[100:], bytes.Repeat([]byte{'a'}, size/2-100))
			copy(want[size/2:], bytes.Repeat([]byte{'z'}, size/2-100))
			if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
				t.Errorf("nosync %v: the file in the mount differs, %v", nosync, err)
			}
			testkit.Until(t, "the stored bytes are in the file on the host", func() bool {
				got, err := os.ReadFile(filepath.Join(b.result, "m"))
				return err == nil && bytes.Equal(got, want)
			})
		}
	})
}
