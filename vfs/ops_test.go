package vfs_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

// Reads and writes work, and are recorded (R082).
func TestFile(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("a", "hello")
		f := b.open("a", unix.O_RDWR)
		buf := make([]byte, 10)
		n, err := f.ReadAt(bg, who, buf, 1)
		if err != nil || string(buf[:n]) != "ello" {
			t.Errorf("read %q, %v", buf[:n], err)
		}
		n, err = f.WriteAt(bg, who, [][]byte{[]byte("J"), nil, []byte("ELL")}, 0, vfs.WriteAtOptions{})
		if err != nil || n != 4 {
			t.Errorf("wrote %d, %v", n, err)
		}
		b.contents("a", "JELLo")
		b.must(f.Fsync(bg, who, false))
		b.must(f.Fsync(bg, who, true))
		b.must(f.Flush(bg, who))
		b.must(f.Allocate(bg, who, 0, 0, 4096))
		if info, err := f.Stat(bg, who); err != nil || info.Size != 4096 {
			t.Errorf("size %d, %v", info.Size, err)
		}
		if pos, err := f.Lseek(bg, who, 0, unix.SEEK_DATA); err != nil || pos != 0 {
			t.Errorf("data at %d, %v", pos, err)
		}
		_, err = f.Lseek(bg, who, 0, unix.SEEK_END)
		b.wantKind(err, names.Invalid)
		f.Close()
		f.Close() // a second Close does nothing
		_, err = f.ReadAt(bg, who, buf, 0)
		b.wantErrno(err, unix.EBADF)
		closes := b.rec.Of(names.OpClose)
		if len(closes) == 0 || closes[0].Read != 4 || closes[0].Written != 4 {
			t.Errorf("records of the close: %+v", closes)
		}
	})
}

// If the identity given with a place differs from the file that lies there, every operation by
// place returns ESTALE.
func TestIdentity(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("d/x", "old")
		b.put("d/keep", "")
		file, dir := b.known("d/x"), b.known("d")
		b.must(os.Rename(b.host("d"), b.host("moved")))
		b.put("d/x", "new")
		mode := uint32(0o600)
		for name, err := range map[string]error{
			"lstat":    second(b.t.Lstat(bg, who, file)),
			"statfs":   second(b.t.Statfs(bg, who, file, nil)),
			"setattr":  second(b.t.Setattr(bg, who, file, nil, vfs.Attrs{Mode: &mode})),
			"setxattr": b.t.Setxattr(bg, who, file, nil, "user.x", nil, 0),
			"getxattr": second(b.t.Getxattr(bg, who, file, nil, "user.x", nil)),
			"ref":      second(b.t.Ref(bg, who, file)),
			"opendir":  second(b.t.Opendir(bg, who, dir)),
			"lookup":   second(b.t.Lookup(bg, who, dir, "x")),
			"mkdir":    second(b.t.Mkdir(bg, who, dir, "new", 0o755)),
			"symlink":  second(b.t.Symlink(bg, who, "t", dir, "new")),
			"link":     second(b.t.Link(bg, who, b.at("d/x"), nil, dir, "new")),
			"link-old": second(b.t.Link(bg, who, file, nil, b.at(""), "new")),
			"unlink":   b.t.Unlink(bg, who, dir, "x"),
			"rmdir":    b.t.Rmdir(bg, who, dir, "x"),
			"rename":   b.t.Rename(bg, who, dir, "x", b.at(""), "y", 0),
			"rename2":  b.t.Rename(bg, who, b.at("d"), "x", dir, "y", 0),
		} {
			if names.Errno(err) != unix.ESTALE {
				t.Errorf("%s: %v, want ESTALE", name, err)
			}
		}
		_, _, err := b.t.Open(bg, who, file, unix.O_RDONLY)
		b.wantErrno(err, unix.ESTALE)
		_, _, _, err = b.t.Create(bg, who, dir, "new", unix.O_RDWR, 0o644)
		b.wantErrno(err, unix.ESTALE)
		_, _, err = b.t.Tmpfile(bg, who, dir, unix.O_RDWR, 0o644)
		b.wantErrno(err, unix.ESTALE)
		b.must(os.RemoveAll(b.host("d")))
		b.wantErrno(second(b.t.Lstat(bg, who, file)), unix.ESTALE)
		b.contents("moved/x", "old")
	})
}

// Appends through the tree and by a host's process do not overwrite each other.
func TestAppendIsAtomic(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("log", "")
		f := b.open("log", unix.O_WRONLY|unix.O_APPEND)
		defer f.Close()
		h, err := os.OpenFile(b.host("log"), os.O_WRONLY|os.O_APPEND, 0)
		b.must(err)
		defer h.Close()
		const each = 300
		var wg sync.WaitGroup
		for w := range 2 {
			wg.Go(func() {
				for i := range each {
					if err := b.write(f, fmt.Sprintf("tree-%d-%04d\n", w, i), 0); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Go(func() {
			for i := range each {
				if _, err := fmt.Fprintf(h, "host-%d-%04d\n", 0, i); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Wait()
		text, err := os.ReadFile(b.host("log"))
		b.must(err)
		seen := map[string]bool{}
		for line := range strings.Lines(string(text)) {
			seen[line] = true
		}
		if len(seen) != 3*each || len(text) != 3*each*len("host-0-0000\n") {
			t.Errorf("%d lines of %d, %d bytes", len(seen), 3*each, len(text))
		}
	})
}

// Of many concurrent calls of Create without O_EXCL one makes the file, and the others open it.
// With O_EXCL the others get an error.
func TestCreateRaces(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		for _, flags := range []int{unix.O_RDWR, unix.O_RDWR | unix.O_EXCL} {
			for round := range 10 {
				name := fmt.Sprint("f", flags, "-", round)
				var mu sync.Mutex
				made, opened, refused := 0, 0, 0
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						f, _, created, err := b.t.Create(bg, who, b.at(""), name, flags, 0o644)
						mu.Lock()
						defer mu.Unlock()
						switch {
						case created:
							made++
						case err == nil:
							opened++
						case names.Reason(err) == names.Exist:
							refused++
						default:
							t.Error(err)
						}
						if f != nil {
							f.Close()
						}
					})
				}
				wg.Wait()
				if made != 1 || flags&unix.O_EXCL == 0 && opened != 7 || flags&unix.O_EXCL != 0 && refused != 7 {
					t.Errorf("made %d, opened %d, refused %d", made, opened, refused)
				}
			}
		}
		st, _ := b.reg.Lookup("code")
		if st.Created != 20 {
			t.Errorf("%d names are counted, 20 were made", st.Created) // R193
		}
	})
}

// While one goroutine creates a name in a loop and another removes the name in a loop, Create
// returns no error but ESTALE, and Unlink no error but NotExist.
func TestCreateAgainstRemove(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 500 {
			f, _, _, err := b.t.Create(bg, who, b.at(""), "x", unix.O_RDWR, 0o644)
			if err == nil {
				f.Close()
			} else if e := names.Errno(err); e != unix.ESTALE {
				t.Error(err)
			}
		}
	})
	wg.Go(func() {
		for range 500 {
			if err := b.t.Unlink(bg, who, b.at(""), "x"); err != nil && names.Reason(err) != names.NotExist {
				t.Error(err)
			}
		}
	})
	wg.Wait()
}

// A file without a name is written and given a name, and the name then leads to it.
func TestTmpfileThenLink(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		f, info, err := b.t.Tmpfile(bg, who, b.at(""), unix.O_RDWR, 0o6640)
		b.must(err)
		defer f.Close()
		if info.Nlink != 0 || info.Mode&0o7777 != 0o640 {
			t.Errorf("%o, %d links", info.Mode, info.Nlink)
		}
		b.must(b.write(f, "whole", 0))
		b.must(second(b.t.Link(bg, who, b.at(""), f, b.at(""), "named")))
		b.contents("named", "whole")
		b.wantKind(second(b.t.Link(bg, who, b.at(""), f, b.at(""), "named")), names.Exist)
	})
}

// Extended attributes of the namespace "user" work. Attributes of the namespace "trusted" are
// refused and not shown.
func TestXattrs(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("a", "")
		if os.Geteuid() == 0 { // only root can set a trusted attribute
			b.must(unix.Setxattr(b.host("a"), "trusted.x", []byte("t"), 0))
		}
		at := b.at("a")
		b.must(b.t.Setxattr(bg, who, at, nil, "user.k", []byte("value"), 0))
		b.wantErrno(b.t.Setxattr(bg, who, at, nil, "user.k", nil, unix.XATTR_CREATE), unix.EEXIST)
		buf := make([]byte, 16)
		if n, err := b.t.Getxattr(bg, who, at, nil, "user.k", buf); err != nil || string(buf[:n]) != "value" {
			t.Errorf("%q, %v", buf[:n], err)
		}
		if n, err := b.t.Getxattr(bg, who, at, nil, "user.k", nil); err != nil || n != 5 {
			t.Errorf("size %d, %v", n, err)
		}
		b.wantErrno(second(b.t.Getxattr(bg, who, at, nil, "user.k", buf[:2])), unix.ERANGE)
		b.wantErrno(second(b.t.Getxattr(bg, who, at, nil, "user.none", buf)), unix.ENODATA)
		b.wantErrno(second(b.t.Getxattr(bg, who, at, nil, "trusted.x", buf)), unix.ENODATA)
		list, err := b.t.Listxattr(bg, who, at, nil)
		if err != nil || string(list) != "user.k\x00" {
			t.Errorf("%q, %v", list, err)
		}
		b.wantErrno(b.t.Removexattr(bg, who, at, nil, "trusted.x"), unix.EPERM)
		b.must(b.t.Removexattr(bg, who, at, nil, "user.k"))
		b.wantErrno(second(b.t.Getxattr(bg, who, at, nil, "user.k", buf)), unix.ENODATA)
	})
}

// If the front end knows the file (At.ID), an attribute that nobody may see is reported as absent,
// even if the file no longer lies at its path. The gate and the patterns still apply.
func TestXattrsOfKnownFiles(t *testing.T) {
	b := newBed(t, false, guard.Policy{Rights: guard.ReadWrite, Patterns: guard.Patterns{Hide: guard.Texts("*.secret")}})
	for _, name := range []string{"a", "dir/b", "a.secret"} {
		b.must(os.MkdirAll(filepath.Dir(b.host(name)), 0o755))
		b.put(name, "")
		var st unix.Statx_t
		b.must(unix.Statx(unix.AT_FDCWD, b.host(name), 0, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st))
		at := b.at(name)
		at.ID = rules.Identity{Dev: unix.Mkdev(st.Dev_major, st.Dev_minor), Ino: st.Ino, Birth: st.Btime.Sec*1e9 + int64(st.Btime.Nsec)}
		want := map[string]unix.Errno{"security.capability": unix.ENODATA, "trusted.x": unix.ENODATA, "user.x": unix.ESTALE}
		if name == "a.secret" {
			want = map[string]unix.Errno{"security.capability": unix.ENOENT, "user.x": unix.ENOENT}
		}
		b.must(os.Remove(b.host(name)))
		for attr, errno := range want {
			b.wantErrno(second(b.t.Getxattr(bg, who, at, nil, attr, nil)), errno)
		}
		unknown := b.at(name)
		b.wantErrno(second(b.t.Getxattr(bg, who, unknown, nil, "security.capability", nil)), unix.ENOENT)
	}
	at := b.at("a")
	at.ID.Ino = 1
	b.must(second(b.reg.Revoke(bg, "code")))
	b.wantErrno(second(b.t.Getxattr(bg, who, at, nil, "security.capability", nil)), unix.EACCES)
}

// Times have nanoseconds and may be before 1970. MtimeNow sets a later modification time, and
// leaves the access time.
func TestSetattr(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("a", "hello")
		when, early := time.Unix(1_000_000_000, 123_456_789), time.Unix(-1, 5)
		info, err := b.t.Setattr(bg, who, b.at("a"), nil, vfs.Attrs{Mtime: &when, Atime: &early})
		if err != nil || !info.ModTime().Equal(when) || info.Atime.Sec != -1 || info.Atime.Nsec != 5 {
			t.Errorf("%+v, %v", info, err)
		}
		size, mode, uid := int64(2), uint32(0o4711), uint32(12)
		if me := os.Geteuid(); me != 0 {
			uid = uint32(me) // only root can give a file to another user
		}
		info, err = b.t.Setattr(bg, who, b.at("a"), nil, vfs.Attrs{Size: &size, Mode: &mode, UID: &uid})
		if err != nil || info.Size != 2 || info.Mode&0o7777 != 0o711 || info.UID != uid || info.GID != uint32(os.Getegid()) {
			t.Errorf("%+v, %v", info, err)
		}
		info, err = b.t.Setattr(bg, who, b.at("a"), nil, vfs.Attrs{MtimeNow: true})
		if err != nil || !info.ModTime().After(when) || info.Atime.Sec != -1 {
			t.Errorf("%+v, %v", info, err)
		}
		b.contents("a", "he")
	})
}

// Rename obeys its flags, refuses unknown ones, and does not move a directory into itself.
func TestRenameFlags(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("a", "A")
		b.put("d/b", "B")
		b.wantKind(b.t.Rename(bg, who, b.at(""), "a", b.at("d"), "b", vfs.RenameNoReplace), names.Exist)
		b.must(b.t.Rename(bg, who, b.at(""), "a", b.at("d"), "b", vfs.RenameExchange))
		b.contents("a", "B")
		b.contents("d/b", "A")
		b.wantKind(b.t.Rename(bg, who, b.at(""), "a", b.at("d"), "b", unix.RENAME_WHITEOUT), names.Invalid)
		b.wantKind(b.t.Rename(bg, who, b.at(""), "d", b.at("d"), "in-itself", 0), names.Invalid)
	})
}

// Ranges are copied between files of one root, and refused across roots.
func TestCopyTo(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("a", "0123456789")
		b.put("b", "..........")
		b.put("sub/c", "")
		b.grant("other", "sub", guard.Policy{})
		in, out := b.open("a", unix.O_RDONLY), b.open("b", unix.O_RDWR)
		defer in.Close()
		defer out.Close()
		if n, err := in.CopyTo(bg, who, 2, out, 5, 3); err != nil || n != 3 {
			t.Errorf("copied %d, %v", n, err)
		}
		b.contents("b", ".....234..")
		p, _ := guard.NewPath("other", "c")
		far, _, err := b.t.Open(bg, who, vfs.At{Path: p}, unix.O_RDWR)
		b.must(err)
		defer far.Close()
		b.wantErrno(second(in.CopyTo(bg, who, 0, far, 0, 1)), unix.EXDEV)
	})
}

// A million bytes in vectors of different lengths arrive unchanged.
func TestLargeVectors(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("a", "")
		f := b.open("a", unix.O_RDWR)
		defer f.Close()
		var bufs [][]byte
		var all []byte
		for i := range 300 {
			part := bytes.Repeat([]byte{byte(i)}, i*23%7919)
			bufs, all = append(bufs, part), append(all, part...)
		}
		if n, err := f.WriteAt(bg, who, bufs, 10, vfs.WriteAtOptions{}); err != nil || n != len(all) {
			t.Fatalf("wrote %d of %d, %v", n, len(all), err)
		}
		got := make([]byte, len(all)+100)
		n, err := f.ReadAt(bg, who, got, 10)
		if err != nil || !bytes.Equal(got[:n], all) {
			t.Errorf("read %d of %d back, %v", n, len(all), err)
		}
	})
}
