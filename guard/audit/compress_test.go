package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// compressedSession records a session of several files, which are all compressed, and returns
// its options.
func compressedSession(t *testing.T, n int) (o Options) {
	o = options(t)
	o.MaxBytes, o.compressFrom = 4000, 1
	l := mustOpen(t, o)
	for i := range n {
		mustRecord(t, l, refusal(t, fmt.Sprint("f", i)))
	}
	mustClose(t, l)
	return o
}

// Full files are compressed, and the last file is compressed when the session ends. Read, Follow,
// Verify and the next session can read compressed files.
func TestFullFilesAreCompressed(t *testing.T) {
	const n = 60
	o := compressedSession(t, n)
	files, err := Files(o.Dir, o.Session)
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f, ".jsonl.zst") {
			t.Errorf("%s is not compressed", f)
		}
	}
	if got := entries(t, o); len(ofOp(got, "open")) != n {
		t.Errorf("%d entries", len(got))
	}
	first := mustVerify(t, o)
	seen := 0
	err = Follow(t.Context(), o.Dir, "", Filter{Since: entries(t, o)[0].Time.AddDate(-5, 0, 0)}, nil, func(e Entry) error {
		if seen++; uint64(seen) == first.Records {
			return errStop
		}
		return nil
	})
	if !errors.Is(err, errStop) {
		t.Errorf("followed %d: %v", seen, err)
	}
	l := mustOpen(t, o) // goes on in the chain, from the end of a compressed file
	mustRecord(t, l, refusal(t, "after"))
	mustClose(t, l)
	if r := mustVerify(t, o); r.Records != first.Records+2 {
		t.Errorf("%+v, before %+v", r, first)
	}
}

// The files of a session like that of npm install (creates and closes of files, by four threads)
// take at most a quarter of the bytes that its records would take uncompressed, one on a line.
func TestCompressedSize(t *testing.T) {
	o := options(t)
	l := mustOpen(t, o)
	before := int64(0)
	plainLog := newEncoder(o.Session, PathsFull, nil, mark{})
	for i := range 5000 {
		r := allowed(t, fmt.Sprintf("node_modules/package-%d/lib/file-%d.js", i/20, i))
		r.PID, r.Rights = int32(100+i%4), guard.Create
		r.Op = names.OpCreate
		c := r
		c.Op, c.Rights, c.Written = names.OpClose, 0, int64(i)
		for _, rec := range []guard.Record{r, c} {
			mustRecord(t, l, rec)
			before += int64(len(plainLog.item(&item{rec: rec, count: 1})))
		}
	}
	mustClose(t, l)
	mustVerify(t, o)
	files, _ := Files(o.Dir, "")
	after := int64(0)
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		after += info.Size()
	}
	if after > before/4 {
		t.Errorf("%d bytes on disk, %d uncompressed with one record on a line", after, before)
	}
}

// A crash while the copy is written, before it is renamed or before the file is removed loses no
// record and duplicates none, and the next session cleans up.
func TestCrashWhileCompressing(t *testing.T) {
	for name, crash := range map[string]func(t *testing.T, dir, plain string, sealed []byte){
		"in the temporary file": func(t *testing.T, dir, _ string, sealed []byte) {
			os.WriteFile(filepath.Join(dir, ".work-1.seal"), sealed[:len(sealed)/2], 0o600)
		},
		"before the rename": func(t *testing.T, dir, _ string, sealed []byte) {
			os.WriteFile(filepath.Join(dir, ".work-1.seal"), sealed, 0o600)
		},
		"before the removal": func(t *testing.T, _, plain string, sealed []byte) {
			os.WriteFile(plain+compressedSuffix, sealed, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			l := mustOpen(t, o)
			for i := range 50 {
				mustRecord(t, l, refusal(t, fmt.Sprint("f", i)))
			}
			mustClose(t, l)
			os.Remove(filepath.Join(o.Dir, stampName))
			plain := l.Path()
			data, err := os.ReadFile(plain)
			if err != nil {
				t.Fatal(err)
			}
			temp := filepath.Join(t.TempDir(), "x")
			if _, err := compress(temp, bytes.NewReader(data)); err != nil {
				t.Fatal(err)
			}
			sealed, err := os.ReadFile(temp)
			if err != nil {
				t.Fatal(err)
			}
			crash(t, o.Dir, plain, sealed)
			check := func() {
				if got := ofOp(entries(t, o), "open"); len(got) != 50 {
					t.Errorf("%d records", len(got))
				}
				mustVerify(t, o)
			}
			check()
			o.compressFrom = 1
			mustClose(t, mustOpen(t, o))
			check()
			if _, err := os.Lstat(plain); !gone(err) {
				t.Errorf("the uncompressed file is still there: %v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(o.Dir, ".*.seal")); len(left) > 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

// Verify detects that a compressed file was cut, changed, replaced or removed.
func TestVerifyCompressed(t *testing.T) {
	for name, tamper := range map[string]func(t *testing.T, files []string){
		"cut": func(t *testing.T, files []string) {
			info, _ := os.Stat(files[1])
			os.Truncate(files[1], info.Size()/2)
		},
		"empty": func(t *testing.T, files []string) { os.Truncate(files[1], 0) },
		"not compressed": func(t *testing.T, files []string) {
			os.WriteFile(files[1], []byte("something else"), 0o600)
		},
		"replaced": func(t *testing.T, files []string) {
			b, _ := os.ReadFile(files[2])
			os.WriteFile(files[1], b, 0o600)
		},
		"removed": func(t *testing.T, files []string) { os.Remove(files[1]) },
		"replaced by an edited plain file": func(t *testing.T, files []string) {
			f, err := openFile(files[1])
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			b.ReadFrom(f)
			f.Close()
			os.Remove(files[1])
			os.WriteFile(strings.TrimSuffix(files[1], compressedSuffix), bytes.Replace(b.Bytes(), []byte("refused"), []byte("allowed"), 1), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := compressedSession(t, 60)
			files, _ := Files(o.Dir, "")
			mustVerify(t, o)
			tamper(t, files)
			if r, err := Verify(o.Dir, o.Session, o.Anchor); err != nil || r.OK {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

func TestReadDamagedCompressed(t *testing.T) {
	o := compressedSession(t, 60)
	files, _ := Files(o.Dir, "")
	os.WriteFile(files[1], []byte("something else"), 0o600)
	var damage *DamageError
	n := 0
	err := Read(files, Filter{Op: "open"}, func(Entry) error { n++; return nil })
	if !errors.As(err, &damage) || len(damage.List) != 1 || n < 40 {
		t.Errorf("%d entries, %v", n, err)
	}
}
