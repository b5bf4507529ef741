package sandbox

import (
	"errors"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// detachedTree is a mount that is nowhere, with a file in home/u/code.
func detachedTree(t *testing.T) *os.File {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root mounts")
	}
	fd, err := newFS("tmpfs", 0, "mode", "0755")
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "detached tree")
	for _, dir := range []string{"home", "home/u", "home/u/code"} {
		if err := unix.Mkdirat(fd, dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file, err := unix.Openat(fd, "home/u/code/f", unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(file, []byte("there")); err != nil {
		t.Fatal(err)
	}
	unix.Close(file)
	probe, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		t.Skipf("nobody gets a copy of a detached mount here: %v", err)
	}
	unix.Close(probe)
	return f
}

// A tree that is nowhere is given to the init of level Namespaces as it is, and this
// process has nothing of it any more when the command is started; other levels have it
// attached first.
func TestDetachedTree(t *testing.T) {
	atLevels(t, confining, func(t *testing.T, level Level) {
		f := detachedTree(t)
		kept, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0) // the session's
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(kept)
		var steps []string
		o := Options{Level: level}
		o.Mounted = func(o *Options) error {
			o.Detached, o.Roots, o.Dir = f, []string{"/home/u/code"}, "/home/u/code"
			return nil
		}
		o.Attach = func(o *Options) error {
			steps = append(steps, "attached")
			o.Tree, o.Private = tree(t), private(t)
			t.Cleanup(func() { _ = unix.Unmount(o.Tree, unix.MNT_DETACH) })
			return unix.MoveMount(kept, "", unix.AT_FDCWD, o.Tree, unix.MOVE_MOUNT_F_EMPTY_PATH)
		}
		o.Release = func() error {
			steps = append(steps, "released")
			if level == Namespaces && int(f.Fd()) >= 0 {
				t.Errorf("the tree is still held by descriptor %d", f.Fd())
			}
			return nil
		}
		out, exit := output(t, o, "cat f")
		if out != "there" || exit != (Exit{}) {
			t.Errorf("inside: %q, %+v", out, exit)
		}
		want := []string{"attached", "released"}
		if level == Namespaces {
			want = want[1:]
		}
		if !slices.Equal(steps, want) {
			t.Errorf("%v, want %v", steps, want)
		}
	})
}

// The reason why a tree cannot be attached is Start's.
func TestNotAttached(t *testing.T) {
	f := detachedTree(t)
	o := Options{Level: Landlock, Map: Flat, Args: []string{"true"}, Detached: f}
	o.Attach = func(*Options) error { return os.ErrPermission }
	if _, err := Start(t.Context(), o); !errors.Is(err, os.ErrPermission) {
		t.Error(err)
	}
}
