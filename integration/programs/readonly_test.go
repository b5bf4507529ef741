package programs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// newReadOnly mounts a read-only root "r" with a sample and a repository.
func newReadOnly(t *testing.T, level string) *box {
	t.Helper()
	lab.NeedFUSE(t)
	need(t, "git", "setfattr", "rsync", "tar", "grep")
	base := lab.Dir(t)
	b := &box{t: t, src: filepath.Join(base, "src"), home: filepath.Join(base, "home")}
	testkit.Must(t, os.Mkdir(b.src, 0o755))
	testkit.Must(t, os.Mkdir(b.home, 0o755))
	b.dir = b.src
	b.sh(`git init -q -b main .; mkdir d empty; echo one > f; echo two > d/g; ln -s d/g link; ln f hard
		git add .; git commit -q -m first; echo three > untracked`)
	testkit.Must(t, unix.Setxattr(filepath.Join(b.src, "f"), "user.x", []byte("v"), 0))
	testkit.Must(t, os.Mkdir(filepath.Join(b.src, "s"), 0o755))
	sample(t, filepath.Join(b.src, "s"))
	var opts []lab.Option
	if level == "max" {
		opts = append(opts, lab.MountReadOnly)
	}
	b.Mount = lab.Start(t, level, []lab.Root{{Name: "r", Dir: b.src, ReadOnly: true}}, opts...)
	b.dir = b.Path("r")
	return b
}

// writes are shell commands that write in many ways. Each would succeed in a writable directory.
var writes = []string{
	"touch f", "touch new", "touch -d 2001-01-01 f", "touch -h -d 2001-01-01 link", "echo x > f", "echo x > new", "echo x >> f",
	"mkdir new", "mkdir d/new", "rmdir empty", "rm -f f", "rm -rf d", "mv f g", "mv f d/f", "mv d empty/d", "ln f new", "ln -s f new",
	"cp f new", "cp f d/g", "chmod 600 f", "chmod 700 d", "chown 1 f", "chown -h 1 link", "chgrp 1 d",
	"setfattr -n user.y -v z f", "setfattr -x user.x f", "truncate -s 0 f", "truncate -s 1000 f", "mkfifo new", "sed -i s/o/0/ f",
	"dd if=/dev/zero of=f bs=1 count=1 conv=notrunc", "tar -cf new f", "git -c core.fsmonitor=false add untracked",
	"git commit -q --allow-empty -m x", "rsync -a d/ new/", "cp -a s new", "fallocate -l 4096 f", "unlink f", "install -m 644 f new",
}

// In a read-only root each write fails with EROFS and nothing changes.
func TestReadOnlyRefusesWrites(t *testing.T) {
	for _, level := range unstaged(everywhere) {
		t.Run(level, func(t *testing.T) {
			b := newReadOnly(t, level)
			before := listing(t, b.src)
			for _, w := range writes {
				need(t, strings.Fields(w)[0:1]...)
				out, err := b.command("", "sh", "-c", w).CombinedOutput()
				if err == nil || !strings.Contains(string(out), "Read-only file system") {
					t.Errorf("%s: %v, %q; want EROFS", w, err, out)
				}
			}
			for name, call := range writeCalls(b.dir) {
				if err := call(); !errors.Is(err, unix.EROFS) {
					t.Errorf("%s: %v, want EROFS", name, err)
				}
			}
			if after := listing(t, b.src); !slices.Equal(after, before) {
				equal(t, "the source before and after", after, before)
			}
		})
	}
}

// writeCalls returns, by name, system calls in dir that a read-only root must refuse. Some of the
// calls are ways to write that the commands in writes do not use.
func writeCalls(dir string) map[string]func() error {
	p := func(name string) string { return filepath.Join(dir, name) }
	open := func(name string, flags int) func() error {
		return func() error {
			fd, err := unix.Open(p(name), flags|unix.O_CLOEXEC, 0o600)
			if err == nil {
				_ = unix.Close(fd)
			}
			return err
		}
	}
	old := time.Unix(1, 0)
	return map[string]func() error{
		"O_WRONLY":          open("f", unix.O_WRONLY),
		"O_RDWR":            open("f", unix.O_RDWR),
		"O_WRONLY O_APPEND": open("f", unix.O_WRONLY|unix.O_APPEND),
		"O_RDONLY O_TRUNC":  open("f", unix.O_RDONLY|unix.O_TRUNC),
		"O_CREAT O_EXCL":    open("new", unix.O_RDONLY|unix.O_CREAT|unix.O_EXCL),
		"O_TMPFILE":         open("d", unix.O_TMPFILE|unix.O_RDWR),
		"rename exchange": func() error {
			return unix.Renameat2(unix.AT_FDCWD, p("f"), unix.AT_FDCWD, p("untracked"), unix.RENAME_EXCHANGE)
		},
		"rename noreplace": func() error {
			return unix.Renameat2(unix.AT_FDCWD, p("f"), unix.AT_FDCWD, p("new"), unix.RENAME_NOREPLACE)
		},
		"utimes":     func() error { return os.Chtimes(p("f"), old, old) },
		"mknod":      func() error { return unix.Mknod(p("new"), unix.S_IFREG|0o600, 0) },
		"symlink":    func() error { return unix.Symlink("f", p("new")) },
		"lsetxattr":  func() error { return unix.Lsetxattr(p("d"), "user.y", []byte("z"), 0) },
		"set an ACL": func() error { return unix.Setxattr(p("d"), "system.posix_acl_default", aclRead, 0) },
	}
}

// aclRead is the ACL u::r--,g::r--,o::r-- in the kernel's encoding.
var aclRead = []byte{2, 0, 0, 0,
	1, 0, 4, 0, 255, 255, 255, 255, 4, 0, 4, 0, 255, 255, 255, 255, 32, 0, 4, 0, 255, 255, 255, 255}

// uncounted is a shell filter that removes the link counts and sizes of directories from the
// output of ls -n or stat. A mount does not show the real numbers, because names may be
// hidden.
const uncounted = ` | tr -s ' ' | sed -E -e '/^total /d' -e 's/^(d[^ ]*) [0-9]+/\1/' -e 's/^(d[^ ]* [0-9]+ [0-9]+) [0-9]+/\1/' -e 's/^(d.* directory) [0-9]+/\1/'`

// In a read-only root every read works, and shows the contents of the source.
func TestReadOnlyReads(t *testing.T) {
	for _, level := range unstaged(everywhere) {
		t.Run(level, func(t *testing.T) {
			b := newReadOnly(t, level)
			t.Setenv("GIT_OPTIONAL_LOCKS", "0")
			host := *b
			host.dir = b.src
			for _, r := range []string{
				"cat f d/g link hard", "grep -r -c '' . | sort", "grep -rl two . | sort",
				"find . -type f -exec md5sum {} + | sort", "ls -lanR --time-style=full-iso d s" + uncounted, "find . -type f -exec du -ab --time {} + | sort -k3",
				"git -c safe.directory='*' log --stat", "git -c safe.directory='*' status --porcelain", "git -c safe.directory='*' diff HEAD",
				"git -c safe.directory='*' fsck", "tar -cf - --sort=name . | md5sum", "getfattr -R -P -h -d --absolute-names s f",
				"stat -c '%A %h %n %F %s %u %g %y %z %i' f d s/* link" + uncounted, "wc -c s/big s/sparse", "tail -c 20 s/big", "head -c 100 s/big",
				"cmp f hard && test -r f && test -d d && test -L link && test -x s/run.sh && echo yes", "readlink link s/todir s/many/tofile s/broken",
			} {
				if got, want := b.sh(r), host.sh(r); got != want || want == "" && !strings.Contains(r, "fsck") && !strings.Contains(r, "diff") {
					t.Errorf("%s:\n%s\nwant\n%s", r, got, want)
				}
			}
			b.run("", "rsync", "-aHX", toTheNanosecond, "./", filepath.Join(b.home, "copy")+"/")
			equal(t, "rsync out", listing(t, filepath.Join(b.home, "copy")), listing(t, b.src))
			b.run("", "git", "-c", "safe.directory=*", "clone", "-q", "--no-local", b.dir, filepath.Join(b.home, "clone"))
			if got, err := os.ReadFile(filepath.Join(b.home, "clone/d/g")); err != nil || string(got) != "two\n" {
				t.Errorf("the clone: %q, %v", got, err)
			}
			compareMapping(t, b)
		})
	}
}

// compareMapping compares a mapping of a file with the source.
func compareMapping(t *testing.T, b *box) {
	t.Helper()
	f, err := os.Open(filepath.Join(b.dir, "s/big"))
	testkit.Must(t, err)
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, 1<<20, unix.PROT_READ, unix.MAP_SHARED)
	testkit.Must(t, err)
	defer func() { _ = unix.Munmap(m) }()
	want, err := os.ReadFile(filepath.Join(b.src, "s/big"))
	testkit.Must(t, err)
	if string(m) != string(want) {
		t.Error("the mapping differs from the source")
	}
}
