package mountpoint

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
)

// The tests mount in child processes, which are this test binary started again: a mount is
// stale only if it outlives its daemon, and a process must not use a mount that it serves. An
// init function does a child's work, so the package needs no TestMain for it.
const (
	childEnv    = "ROOTSFS_MI_CHILD" // what the child does: see init
	childDirEnv = "ROOTSFS_MI_DIR"
	childSubEnv = "ROOTSFS_MI_SUBTYPE"
	nobody      = 65534
)

func init() {
	var err error
	switch os.Getenv(childEnv) {
	case "":
		return
	case "serve":
		err = childServe(os.Getenv(childDirEnv), os.Getenv(childSubEnv))
	case "unshared":
		err = childUnshared(os.Getenv(childDirEnv))
	case "refused":
		err = childRefused(os.Getenv(childDirEnv))
	case "user":
		err = childUser(os.Getenv(childDirEnv))
	default:
		err = fmt.Errorf("unknown %s", childEnv)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// childServe serves a directory that holds one file, f, with long timeouts,
// until it is unmounted.
func childServe(dir, subtype string) error {
	root := &fs.Inode{}
	hour := time.Hour
	srv, err := fs.Mount(dir, root, &fs.Options{
		AttrTimeout: &hour, EntryTimeout: &hour, NullPermissions: true,
		RootStableAttr: &fs.StableAttr{Ino: 1, Gen: 1},
		MountOptions:   fuse.MountOptions{Name: subtype, FsName: "a source"},
		OnAdd: func(ctx context.Context) {
			f := root.NewPersistentInode(ctx, &fs.MemRegularFile{Data: []byte("data"), Attr: fuse.Attr{Mode: 0o644}}, fs.StableAttr{})
			root.AddChild("f", f, true)
		},
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	srv.Wait()
	return nil
}

// startChild starts exe as a child that serves a mount at dir, and returns when the mount answers.
func startChild(exe, dir, subtype string, uid uint32) (*exec.Cmd, error) {
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"=serve", childDirEnv+"="+dir, childSubEnv+"="+subtype)
	cmd.Stderr = os.Stderr
	if int(uid) != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		cmd.Process.Kill()
		cmd.Wait()
		return nil, fmt.Errorf("child said %q, %v", line, err)
	}
	return cmd, nil
}

// requireMounts skips the test if this process is not root's or cannot mount. In CI it fails the
// test instead.
func requireMounts(t *testing.T) {
	t.Helper()
	why := ""
	if os.Geteuid() != 0 {
		why = "needs root"
	} else if err := CheckFUSE(); err != nil {
		why = err.Error()
	}
	switch {
	case why == "":
	case os.Getenv("CI") != "":
		t.Fatal(why)
	default:
		t.Skip(why)
	}
}

// tempPoint returns an empty directory that belongs to uid and that every user can reach. At the
// end of the test, everything mounted there is unmounted, and the directory is removed.
func tempPoint(t *testing.T, name string, uid int) string {
	t.Helper()
	base, err := os.MkdirTemp(guardtest.SharedTemp(), "rootsfs-mi")
	if err != nil {
		t.Fatal(err)
	}
	base, err = filepath.EvalSymlinks(base)
	if err != nil {
		t.Fatal(err)
	}
	point := filepath.Join(base, name)
	t.Cleanup(func() {
		for unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
		}
		if all, err := Mounts(); err != nil {
			t.Error(err)
		} else if in, ok := covering(all, point); ok && names.Under(in.Point, base) {
			t.Errorf("mount left at %q", in.Point)
		} else if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(point, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(point, uid, uid); err != nil {
		t.Fatal(err)
	}
	return point
}

// serve starts a child that serves a mount at point. The child is killed at the end of the test.
func serve(t *testing.T, point, subtype string) *exec.Cmd {
	t.Helper()
	cmd, err := startChild("/proc/self/exe", point, subtype, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(cmd) })
	return cmd
}

// mountDead makes a stale mount of the user uid. It makes the mount call as fusermount3 would,
// because the machine's /dev/fuse may be closed to users.
func mountDead(t *testing.T, point string, uid int) {
	t.Helper()
	fd, err := unix.Open(Device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	opts := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%[2]d", fd, uid)
	if err := unix.Mount("a source", point, FSType, unix.MS_NOSUID|unix.MS_NODEV, opts); err != nil {
		t.Fatal(err)
	}
}

// kill kills a process and waits for its end. If the process served a mount, the mount's connection
// has then ended.
func kill(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait()
}

// publicCopy copies this test binary to a directory in which any user can execute it, and returns
// its path. The build directory of the go command is closed to other users.
func publicCopy(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(guardtest.SharedTemp(), "rootsfs-mi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	src, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	exe := filepath.Join(dir, "child")
	dst, err := os.OpenFile(exe, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(dst, src)
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// mountTmpfs mounts a tmpfs at point: a mount of another type than FSType.
func mountTmpfs(t *testing.T, point string) {
	t.Helper()
	if err := unix.Mount("not ours", point, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
}

// oneLine fails unless the error is one line with every part in it.
func oneLine(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	msg := err.Error()
	if strings.ContainsAny(msg, "\n\r") {
		t.Errorf("more than one line: %q", msg)
	}
	for _, p := range parts {
		if !strings.Contains(msg, p) {
			t.Errorf("error %q lacks %q", msg, p)
		}
	}
}
