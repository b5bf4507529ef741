package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	attempts = append(attempts,
		attempt{"read a file", func(t *targets) error { b, err := os.ReadFile(t.Secret); return reveals(t, b, err) }},
		attempt{"list a directory", func(t *targets) error {
			entries, err := os.ReadDir(t.Dir)
			if err == nil && len(entries) == 0 {
				return errRefused
			}
			return short(err)
		}},
		attempt{"stat a file", func(t *targets) error { return unix.Stat(t.Secret, new(unix.Stat_t)) }},
		attempt{"chmod a file", func(t *targets) error { return unix.Chmod(t.Secret, 0o666) }},
		attempt{"set a file's times", func(t *targets) error { return unix.UtimesNanoAt(unix.AT_FDCWD, t.Secret, nil, 0) }},
		attempt{"set an extended attribute", func(t *targets) error { return unix.Setxattr(t.Secret, "user.hostile", []byte("x"), 0) }},
		attempt{"change into a directory", changeDir},
		attempt{"watch a directory", watch},
		attempt{"write a file", func(t *targets) error { return appendTo(t.Secret, "") }},
		attempt{"make a file", func(t *targets) error { return short(os.WriteFile(filepath.Join(t.Dir, "made"), nil, 0o600)) }},
		attempt{"rename a file into a root", func(t *targets) error {
			return short(os.Rename(filepath.Join(t.Dir, "movable"), filepath.Join(t.Root, "stolen")))
		}},
		attempt{"rename a file outside", func(t *targets) error {
			return short(os.Rename(filepath.Join(t.Dir, "renamable"), filepath.Join(t.Dir, "renamed")))
		}},
		attempt{"remove a file", func(t *targets) error { return short(os.Remove(filepath.Join(t.Dir, "removable"))) }},
		attempt{"hard-link a file", hardLink},
		attempt{"follow a link out of a root", func(t *targets) error { b, err := os.ReadFile(t.Link); return reveals(t, b, err) }},
		attempt{"climb out with ..", climb},
		attempt{"open by file handle", byHandle},
		attempt{"read /etc/shadow", func(*targets) error { _, err := os.ReadFile("/etc/shadow"); return short(err) }},
		attempt{"write to the system", func(*targets) error { return writeSystem() }},
		attempt{"make a device", makeDevice},
		attempt{"run a set-uid program of a root", setUID},
		attempt{"leave a set-uid program in HOME", leaveSetUID},
		attempt{"read inherited descriptors", inherited},
		attempt{"open the host's log through /proc/self/fd", readLog},
		attempt{"read a shared file of /dev/shm", func(t *targets) error { b, err := os.ReadFile(t.Shm); return reveals(t, b, err) }},
	)
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return short(err)
	}
	defer f.Close()
	_, err = f.WriteString(text)
	return short(err)
}

func changeDir(t *targets) error {
	old, err := os.Getwd()
	if err != nil {
		return short(err)
	}
	if err := unix.Chdir(t.Dir); err != nil {
		return err
	}
	return short(os.Chdir(old))
}

func watch(t *targets) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.InotifyAddWatch(fd, t.Dir, unix.IN_ALL_EVENTS)
	return err
}

func hardLink(t *targets) error {
	stolen := filepath.Join(t.Root, "linked")
	if err := os.Link(t.Secret, stolen); err != nil {
		return short(err)
	}
	b, err := os.ReadFile(stolen)
	return reveals(t, b, err)
}

// climb tries to read the secret by paths with many ".." components. The paths start in the root,
// and in the current directories and root directories that /proc shows for processes.
func climb(t *targets) error {
	up := strings.Repeat("../", 60)
	var last error
	for _, from := range []string{t.Root, ".", "/proc/self/cwd", "/proc/self/root", "/proc/1/root", "/proc/1/cwd", "/proc/self/task/1/root",
		"/proc/" + strconv.Itoa(t.Parent) + "/root", "/proc/" + strconv.Itoa(t.Parent) + "/cwd"} {
		b, err := os.ReadFile(from + "/" + up + t.Secret)
		if last = reveals(t, b, err); last == nil {
			return nil
		}
	}
	return last
}

// fileHandle is struct file_handle with room for its bytes.
type fileHandle struct {
	size  uint32
	kind  int32
	bytes [128]byte
}

func byHandle(t *targets) error {
	kind, data, _ := strings.Cut(t.Handle, ":")
	raw, err := hex.DecodeString(data)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(kind)
	if err != nil {
		return err
	}
	h := fileHandle{size: uint32(len(raw)), kind: int32(n)}
	copy(h.bytes[:], raw)
	last := error(errRefused)
	for _, dir := range []string{t.Root, "/", "/usr", "/etc/alternatives", "."} {
		at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			last = err
			continue
		}
		fd, _, errno := unix.Syscall(unix.SYS_OPEN_BY_HANDLE_AT, uintptr(at), uintptr(unsafe.Pointer(&h)), unix.O_RDONLY)
		unix.Close(at)
		if errno != 0 {
			last = errno
			continue
		}
		f := os.NewFile(fd, "by handle")
		b := make([]byte, 4096)
		n, err := f.Read(b)
		f.Close()
		if last = reveals(t, b[:n], err); last == nil {
			return nil
		}
	}
	return last
}

func writeSystem() error {
	var last error
	for _, p := range []string{"/usr/bin/.hostile", "/usr/lib/.hostile", "/etc/.hostile", "/.hostile", "/dev/.hostile", "/proc/sys/.hostile"} {
		f, err := os.OpenFile(p, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
		if err == nil {
			f.Close()
			return short(os.Remove(p))
		}
		last = short(err)
	}
	return last
}

func makeDevice(t *targets) error {
	dev := filepath.Join(t.Root, "device")
	if err := unix.Mknod(dev, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 11))); err != nil { // the kernel's log
		return err
	}
	f, err := os.Open(dev)
	if err == nil {
		f.Close()
	}
	os.Remove(dev)
	return short(err)
}

func setUID(t *targets) error {
	code, err := runSelf(t.SetUID, "-euid")
	if err != nil {
		return short(err)
	}
	if code != 0 || os.Geteuid() == 0 && os.Getuid() != 0 {
		return errRefused
	}
	return nil
}

// leaveSetUID tries many calls that give a file a mode. HOME is a directory of the host, so the
// attempt works if one of the files there has the set-uid bit.
func leaveSetUID(*targets) error {
	const mode = 0o4755
	home := os.Getenv("HOME")
	path := filepath.Join(home, "setid")
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR, 0o755)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	has := func(path string) bool {
		var st unix.Stat_t
		return unix.Stat(path, &st) == nil && st.Mode&unix.S_ISUID != 0
	}
	unix.Umask(0)
	last := error(errRefused)
	note := func(err error) {
		if err != nil {
			last = err
		}
	}
	note(unix.Chmod(path, mode))
	note(unix.Fchmod(fd, mode))
	note(unix.Fchmodat(unix.AT_FDCWD, path, mode, 0))
	note(unix.Fchmodat(unix.AT_FDCWD, path, mode, unix.AT_SYMLINK_NOFOLLOW))
	_, err = unix.Open(path+"-open", unix.O_CREAT|unix.O_WRONLY, mode)
	note(err)
	how := &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: mode}
	_, err = unix.Openat2(unix.AT_FDCWD, path+"-open2", how)
	note(err)
	note(unix.Mknod(path+"-node", unix.S_IFREG|mode, 0))
	if tmp, err := unix.Open(home, unix.O_TMPFILE|unix.O_WRONLY, mode); err == nil {
		note(unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(tmp), unix.AT_FDCWD, path+"-tmp", unix.AT_SYMLINK_FOLLOW))
	} else {
		note(err)
	}
	for _, p := range []string{path, path + "-open", path + "-open2", path + "-node", path + "-tmp"} {
		if has(p) {
			return nil
		}
	}
	return last
}

// inherited looks for an inherited descriptor from which it can read the secret.
func inherited(t *targets) error {
	for fd := 3; fd < 256; fd++ {
		b := make([]byte, 4096)
		if n, err := unix.Pread(fd, b, 0); err == nil && strings.Contains(string(b[:n]), t.SecretContent) {
			return nil
		}
	}
	return errRefused
}

// readLog opens standard error again, for reading, and looks for the content of the host's log. (It
// does not try standard output, to which this program prints the results.)
func readLog(t *targets) error {
	b, err := readSome("/proc/self/fd/2")
	return reveals(&targets{SecretContent: t.Log}, b, err)
}

// readSome reads the beginning of a file. It does not wait, because a pipe may be empty.
func readSome(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b := make([]byte, 4096)
	n, err := unix.Read(fd, b)
	return b[:max(n, 0)], err
}

// stdin prints the kind and the content of standard input.
func stdin() int {
	var st unix.Stat_t
	err := unix.Fstat(0, &st)
	null := st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
	fmt.Printf("pipe %v, null %v, %v\n", st.Mode&unix.S_IFMT == unix.S_IFIFO, null, err)
	if !null {
		text, err := io.ReadAll(os.Stdin)
		fmt.Printf("read %q, %v\n", text, err)
	}
	return 0
}
