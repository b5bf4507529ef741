package policy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/vfs"
)

// fullAudit is a mounted, writable root. The files of its audit log lie on disk, a small tmpfs.
type fullAudit struct {
	*testing.T
	src, point, disk string
	opts             audit.Options
	log              *audit.Log
	reg              *guard.Registry
	tree             *vfs.Tree
}

// newFullAudit returns a fullAudit whose audit disk has the given size, such as "192k" (an option of
// tmpfs). A test with a larger disk is slower: fill creates more files, and each call of picture
// reads them all.
func newFullAudit(t *testing.T, size string) *fullAudit {
	t.Helper()
	needFUSE(t)
	if os.Getuid() != 0 {
		t.Skip("mounting a tmpfs needs root")
	}
	f := &fullAudit{T: t, src: t.TempDir(), disk: t.TempDir()}
	if err := unix.Mount("tmpfs", f.disk, "tmpfs", 0, "mode=700,size="+size); err != nil {
		t.Skip("cannot mount a tmpfs: ", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(f.disk, unix.MNT_DETACH); err != nil {
			t.Error("unmount: ", err)
		}
	})
	f.opts = audit.Options{Dir: filepath.Join(f.disk, "audit"), Session: "s", Anchor: filepath.Join(t.TempDir(), "anchor")}
	var err error
	if f.log, err = audit.Open(f.opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.log.Close() })
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener(), Auditor: f.log})
	if _, err := reg.Grant(bg, guard.Grant{Root: "r", Dir: names.Foreign(f.src), Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite}}); err != nil {
		t.Fatal(err)
	}
	m, err := mount.New(reg, mount.Options{Point: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	f.reg, f.tree = reg, m.Tree()
	f.point = filepath.Join(m.Point(), "r")
	t.Cleanup(func() {
		_, _ = reg.RevokeAll(context.Background())
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		<-m.Served()
	})
	return f
}

// fill creates files until the record of another file does not fit on the audit disk. It returns
// the number of files. Names of more than 240 bytes fill the disk quickly. Then fill creates
// directories with short names until their records, which are smaller, do not fit either.
func (f *fullAudit) fill() (created int) {
	f.Helper()
	out, err := f.sh(`mkdir fill && cd fill && n=$(printf %0240d 0) && i=0 && while [ $i -lt 40000 ] && (: >$n$i) 2>/dev/null; do i=$((i+1)); done; echo $i
		cd .. && i=0 && while [ $i -lt 40000 ] && mkdir $i 2>/dev/null; do i=$((i+1)); done; true`)
	if _, serr := fmt.Sscan(out, &created); err != nil || serr != nil || created == 40000 || created == 0 {
		f.Fatalf("the disk does not fill: %v, %s", err, out)
	}
	return created
}

// grow makes room on the audit disk.
func (f *fullAudit) grow() {
	f.Helper()
	if err := unix.Mount("tmpfs", f.disk, "tmpfs", unix.MS_REMOUNT, "size=32m,mode=700"); err != nil {
		f.Fatal(err)
	}
}

// visitRecords closes the log, verifies it, and passes each of its records to visit.
func (f *fullAudit) visitRecords(visit func(audit.Entry)) {
	f.Helper()
	if err := f.log.Close(); err != nil {
		f.Fatal(err)
	}
	if r, err := audit.Verify(f.opts.Dir, "s", f.opts.Anchor); err != nil || !r.OK || r.Lost != 0 {
		f.Errorf("%+v, %v", r, err)
	}
	files, err := audit.Files(f.opts.Dir, "s")
	if err == nil {
		err = audit.Read(files, audit.Filter{}, func(e audit.Entry) error { visit(e); return nil })
	}
	if err != nil && !errors.As(err, new(*audit.DamageError)) {
		f.Error(err)
	}
}

// sh runs a script in the root, in another process.
func (f *fullAudit) sh(script string) (string, error) {
	out, err := exec.Command("/bin/sh", "-c", `cd "$0" && `+script, f.point).CombinedOutput()
	return string(out), err
}

// picture describes the contents of the root's directory on the host.
func (f *fullAudit) picture() string {
	f.Helper()
	var b strings.Builder
	err := filepath.WalkDir(f.src, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := ""
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(data)
		case info.Mode()&fs.ModeSymlink != 0:
			text, _ = os.Readlink(path)
		}
		value := make([]byte, 64)
		n, _ := unix.Lgetxattr(path, "user.a", value)
		links := info.Sys().(*syscall.Stat_t).Nlink
		fmt.Fprintf(&b, "%s %v %d %d %q %q %v\n", path, info.Mode(), info.Size(), links, text, value[:max(n, 0)], info.ModTime().UnixNano())
		return nil
	})
	if err != nil {
		f.Fatal(err)
	}
	return b.String()
}

// While the audit disk is full, changes of every kind are refused and do not happen. Once there is
// room, changes work again. The log has a record of each file that was created while the disk
// filled.
func TestFullAuditDiskRefusesChanges(t *testing.T) {
	f := newFullAudit(t, "192k")
	setup := `mkdir d e e/full && touch e/full/x && echo old >file && echo old >other && ln -s file link && touch -d 2020-01-01 file`
	if out, err := f.sh(setup); err != nil {
		t.Fatal(err, out)
	}
	filled := f.fill() // each of these creations must be in the log
	before := f.picture()
	changes := []string{
		`mkdir new`, `rmdir d`, `rm file`, `mv file d/file`, `mv file other`, `ln file hard`, `ln -s x soft`, `mkfifo fifo`,
		`chmod 600 file`, `touch -d 2021-01-01 file`, `truncate -s 1 file`, `(: >new)`, `(echo x >file)`, `(echo x >>file)`, `cp file copy`,
		`rm -r e`, `setfattr -n user.a -v b file`, `sed -i s/old/new/ file`, `dd if=/dev/zero of=file bs=1 count=1 conv=notrunc`, `mv -n d d2`,
	}
	for _, c := range changes {
		if out, err := f.sh(c); err == nil {
			t.Errorf("%s: succeeded (%s)", c, out)
		}
		if after := f.picture(); after != before {
			t.Fatalf("%s: changed something:\n%s\nbefore:\n%s", c, after, before)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(f.src, "fill")); err != nil || len(entries) != filled {
		t.Errorf("%d files were made, %d are there, %v", filled, len(entries), err)
	}

	f.grow()
	for _, c := range []string{`mkdir new`, `rmdir d`, `mv file other`, `chmod 600 other`, `echo x >new/x`, `rm -r e`} {
		if out, err := f.sh(c); err != nil {
			t.Errorf("%s: %v, %s", c, err, out)
		}
	}
	counts := map[string]int{}
	f.visitRecords(func(e audit.Entry) {
		if e.Verdict == "allowed" && strings.HasPrefix(e.Path.Raw(), "fill/") {
			counts[e.Op.Raw()]++
		}
	})
	if counts["create"] != filled {
		t.Errorf("the log has the records %v, want %d of create", counts, filled)
	}
}
