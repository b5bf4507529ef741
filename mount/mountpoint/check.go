package mountpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Check reports why a session cannot be mounted at path, or returns the resolved path, which
// is absolute and free of links. If a link was followed, a caller should show the resolved
// path to the user. The directory must exist and be empty. A user other than root must be
// able to write to it, as fusermount3 demands. A directory with a rootsfs mount is refused;
// an empty directory with another kind of mount is not.
//
// Each error is one line with the path and the remedy. It wraps ErrStale if a
// mount there has lost its daemon (see ClearStale), else the cause, such as
// fs.ErrNotExist. The directory can change before the caller mounts. Each of Check's two
// steps waits at most five seconds for a file system that hangs.
func Check(path string) (resolved string, err error) {
	resolved, err = Resolve(path)
	if err != nil {
		return "", pointError(path, err)
	}
	if in, err := Find(resolved); err == nil && in.FSType == FSType {
		if IsStale(resolved) {
			return "", pointError(resolved, unix.ENOTCONN)
		}
		return "", errorf(fs.ErrExist, "mountpoint %s is in use: a session is mounted there; unmount it first: rootsfs unmount %[1]s", names.ShellWord(resolved))
	}
	_, err = withTimeout(accessTimeout, func() (struct{}, error) {
		return struct{}{}, checkDirectory(resolved, os.Geteuid())
	})
	if err != nil {
		return "", pointError(resolved, err)
	}
	return resolved, nil
}

// errNotOwned is the error for a sticky directory of another user, where fusermount3 does not
// mount.
var errNotOwned = errors.New("sticky directory of another user")

// checkDirectory checks a directory for Check. It returns the bare cause; pointError adds
// the path and a remedy.
func checkDirectory(dir string, uid int) error {
	var st unix.Stat_t
	// Lstat refuses a link that another process has put at dir since dir was resolved.
	if err := unix.Lstat(dir, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return unix.ENOTDIR
	}
	if uid != 0 {
		// fusermount3 makes the next two checks before it mounts for a user. They are made
		// here, too, because the errors of Check name a remedy.
		if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
			return err
		}
		if st.Mode&unix.S_ISVTX != 0 && int(st.Uid) != uid {
			return errNotOwned
		}
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	switch _, err := d.Readdirnames(1); {
	case err == nil:
		return unix.ENOTEMPTY
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

func pointError(path string, err error) error {
	p := names.ShellWord(path)
	say := func(format string, args ...any) error {
		return errorf(err, "mountpoint %s %s", p, fmt.Sprintf(format, args...))
	}
	switch {
	case errors.Is(err, unix.ENOTCONN):
		err = ErrStale
		return say("%s", staleRemedy(path))
	case errors.Is(err, fs.ErrNotExist):
		if target, lerr := os.Readlink(path); lerr == nil {
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(path), target)
			}
			return say("is a link to %s, which does not exist: mkdir -p %[1]s", names.ShellWord(target))
		}
		return say("does not exist: mkdir -p %s", p)
	case errors.Is(err, unix.ENOTDIR):
		return say("is not a directory: choose one, or make it: mkdir -p DIRECTORY")
	case errors.Is(err, unix.ENOTEMPTY):
		return say("is not empty: choose an empty directory, since a mount would hide what it holds")
	case errors.Is(err, errNotOwned):
		return say("is a shared (sticky) directory of another user: make one of your own in it: mkdir %s", names.ShellWord(path+"/rootsfs"))
	case errors.Is(err, unix.EROFS):
		return say("lies on a read-only file system, where only root can mount: choose another directory")
	case errors.Is(err, fs.ErrPermission):
		return say("is not yours to use: choose a directory that you own, with mode 0700")
	case errors.Is(err, unix.ELOOP):
		return say("is a link that never ends: choose a directory")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return say("does not answer: a file system there hangs; unmount it or choose another directory")
	}
	return say("cannot be used: %v; choose another directory", err)
}

// staleRemedy returns the text for a path that is, or lies in, a stale mount. If it finds the
// mount, it names the command that removes it: rootsfs for rootsfs mounts, fusermount3 for
// other FUSE mounts.
func staleRemedy(path string) string {
	const what = "is, or lies in, a stale mount whose daemon is gone"
	all, err := Mounts()
	abs, err2 := filepath.Abs(path)
	if err != nil || err2 != nil {
		return what + ": unmount it"
	}
	switch in, ok := covering(all, abs); {
	case ok && in.FSType == FSType:
		return what + ": rootsfs unmount " + names.ShellWord(in.Point)
	case ok && strings.HasPrefix(in.FSType, "fuse"):
		return fmt.Sprintf("%s (%s): fusermount3 -u -z %s", what, names.ShellWord(in.FSType), names.ShellWord(in.Point))
	}
	return what + ": unmount it"
}

// kindError is an error with a kind for errors.Is, such as ErrStale or fs.ErrNotExist. Its
// message does not show the kind, because msg is a whole sentence.
type kindError struct {
	kind error
	msg  string
}

func (e *kindError) Error() string { return e.msg }

func (e *kindError) Unwrap() error { return e.kind }

func errorf(kind error, format string, args ...any) error {
	return &kindError{kind: kind, msg: fmt.Sprintf(format, args...)}
}

// accessTimeout bounds every call that the daemon of a mounted file system may have to
// answer. The daemon may be stopped, or wait for a dead server. Five seconds are far more
// than a slow disk takes, and short enough for a command line.
const accessTimeout = 5 * time.Second

// withTimeout runs f and returns its results, or os.ErrDeadlineExceeded once limit has
// passed. A call that is stuck in the kernel cannot be cancelled: f then runs on in its
// goroutine until the file system answers or its connection ends. So f must not write to
// variables that the caller goes on using.
func withTimeout[T any](limit time.Duration, f func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f()
		done <- result{v, err}
	}()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case r := <-done:
		return r.v, r.err
	case <-t.C:
		var zero T
		return zero, os.ErrDeadlineExceeded
	}
}

// Resolve makes path absolute and follows its links as the kernel does (".." after a link
// is the parent of the link's target). A FUSE file system that is mounted at the end of
// path is not asked anything, so a stale or hanging mount there does no harm. If a mount
// further up the path is stale, Resolve returns that mount's error. If such a mount hangs, Resolve
// returns os.ErrDeadlineExceeded.
func Resolve(path string) (string, error) {
	return withTimeout(accessTimeout, func() (string, error) {
		name := path
		if name != "" && !filepath.IsAbs(name) {
			// Not by a relative path: the kernel would ask the mount that the working
			// directory lies in.
			wd, err := os.Getwd()
			if err != nil {
				return "", err
			}
			name = wd + "/" + name
		}
		// For a "/" or "/." at the end the kernel would ask the mount, so both are cut off.
		// filepath.Clean would also fold "link/..", which is wrong.
		for len(name) > 1 && (strings.HasSuffix(name, "/") || strings.HasSuffix(name, "/.")) {
			name = strings.TrimSuffix(strings.TrimSuffix(name, "."), "/")
		}
		fd, err := unix.Open(cmp.Or(name, path), unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return "", &os.PathError{Op: "resolve", Path: path, Err: err}
		}
		defer unix.Close(fd)
		return os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	})
}

// findAt returns the mount that path leads to, as Find does.
func findAt(path string) (Info, error) {
	resolved, err := Resolve(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Info{}, errorf(ErrNotMounted, "nothing is mounted at %s", names.ShellWord(path))
	case err != nil:
		return Info{}, pointError(path, err)
	}
	return Find(resolved)
}
