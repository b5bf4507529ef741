package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
)

// initAt is the path, inside, of the init's program at level Bubblewrap: bwrap cannot start
// a program that is outside.
const initAt = "/.rootsfs-init"

// findBwrap finds bwrap on PATH and refuses one that does not belong to the system. PATH may
// name directories of a project (npx and virtual environments do this), and a project must not
// supply the program that confines it. In a user namespace root's files seem to belong to
// nobody. In a session of root every program can create files that belong to root: check, unless
// nil, refuses a file that a program may have written.
func findBwrap(check func(path string) error) (string, error) {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		return "", cannot("bwrap is not installed: install the package bubblewrap")
	}
	const nobody = 65534
	var st unix.Stat_t
	if err := unix.Stat(bwrap, &st); err != nil || st.Uid != 0 && st.Uid != nobody || st.Mode&0o022 != 0 {
		return "", cannot("%s is the first bwrap in PATH and not root's: install the package bubblewrap, or take its directory out of PATH", names.Quote(bwrap))
	}
	if check != nil {
		if err := check(bwrap); err != nil {
			return "", cannot("bwrap is not run: %v", err)
		}
	}
	return bwrap, nil
}

// prepareBubblewrap prepares level Bubblewrap: bwrap makes, with its own means, the root directory
// that a command has at level Namespaces, and starts the init there, as pid 1.
func (l *launch) prepareBubblewrap(private privateDirs) error {
	bwrap, err := findBwrap(l.o.CheckProgram)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return cannot("this program's own file is gone: start it again (%v)", err)
	}
	if check := l.o.CheckProgram; check != nil { // bwrap opens the program's file by its path
		if err := check(self); err != nil {
			return cannot("this program's own file is not run: %v", err)
		}
	}
	lay, err := layout.New(l.layoutSpec(private))
	if err != nil {
		return err
	}
	lay.Spare = nil // bwrap leaves the init no right to mount anything
	root, err := l.bwrapRoot(lay)
	if err != nil {
		return err
	}
	args := slices.Concat(l.bwrapNamespaces(), root, []string{"--ro-bind", self, initAt, "--remount-ro", "/"})
	list, err := memFile("arguments of bwrap", []byte(strings.Join(args, "\x00")+"\x00"))
	if err != nil {
		return err
	}
	fd := l.passFile(list)
	// Without a file of its own, bwrap would write its errors to the command's standard error.
	if l.bwrapStderr, err = memFile("standard error of bwrap", nil); err != nil {
		return err
	}
	l.cmd.Path, l.cmd.Args = bwrap, []string{"bwrap", "--args", strconv.Itoa(fd), "--", initAt}
	l.layout, l.conf.Rules = lay, lay.Rules()
	return nil
}

// bwrapNamespaces returns the arguments for the namespaces. If the caller is root, it also sets the
// command's ids and the limit of processes in the init's configuration.
func (l *launch) bwrapNamespaces() []string {
	args := []string{
		"--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try", "--hostname", layout.HostName,
		"--die-with-parent", "--as-pid-1", "--chdir", "/",
	}
	if !l.o.Net {
		args = append(args, "--unshare-net")
	}
	if os.Geteuid() != 0 {
		return append(args, "--unshare-user", "--uid", strconv.Itoa(int(l.o.UID)), "--gid", strconv.Itoa(int(l.o.GID)))
	}
	// Root needs no user namespace to make the others, and only root may enter the tree's
	// directory. The init changes to the command's uid by itself.
	l.conf.SetID, l.conf.UID, l.conf.GID = true, l.o.UID, l.o.GID
	// Without a user namespace the limit counts all processes of that uid.
	l.conf.Pids += countProcesses(l.o.UID)
	return args
}

// bwrapRoot returns the arguments for the minimal root.
func (l *launch) bwrapRoot(lay *layout.Layout) ([]string, error) {
	args := []string{"--dev", "/dev"}
	dirs := append(slices.Clone(lay.Dirs), filepath.Dir(cmp.Or(lay.FlatAt, "/")))
	// bwrap would make the missing parents of a bind without access for other users. So they
	// are made here, with mode 0755.
	for _, c := range lay.Copies {
		dirs = append(dirs, filepath.Dir(c.To))
	}
	for _, b := range lay.Binds {
		dirs = append(dirs, filepath.Dir(b.To))
	}
	for _, dir := range slices.Compact(dirs) {
		args = append(args, "--perms", "0755", "--dir", dir)
	}
	for _, k := range lay.Links {
		if !names.Under(k.At, "/dev") {
			args = append(args, "--symlink", k.Target, k.At)
		}
	}
	for _, f := range lay.Files {
		m, err := memFile(f.At, f.Data)
		if err != nil {
			return nil, err
		}
		args = append(args, "--perms", "0644", "--ro-bind-data", strconv.Itoa(l.passFile(m)), f.At)
	}
	for _, c := range lay.Copies {
		args = append(args, "--ro-bind-try", c.From, c.To)
	}
	size := strconv.FormatInt(lay.TmpSize, 10)
	args = append(args, "--size", size, "--tmpfs", layout.PrivateDir, "--perms", "1777", "--size", size, "--tmpfs", "/dev/shm")
	for dir, mode := range layout.PrivateModes {
		args = append(args, "--perms", fmt.Sprintf("%04o", mode), "--dir", dir)
	}
	binds, err := l.bwrapBinds(lay, size)
	if err != nil {
		return nil, err
	}
	args = append(append(args, binds...), "--proc", "/proc")
	return append(args, bwrapProc()...), nil
}

// bwrapBinds returns the arguments for the mounts: binds, masked files, private directories and the
// tree.
func (l *launch) bwrapBinds(lay *layout.Layout, size string) (args []string, err error) {
	for _, b := range lay.Binds {
		switch {
		case b.Device:
			// --dev makes these devices.
		case b.Write:
			args = append(args, "--bind", b.From, b.To)
		case b.Optional:
			args = append(args, "--ro-bind-try", b.From, b.To)
		default:
			args = append(args, "--ro-bind", b.From, b.To)
		}
	}
	for _, path := range lay.Masks {
		empty, err := memFile(path, nil)
		if err != nil {
			return nil, err
		}
		args = append(args, "--perms", "0444", "--ro-bind-data", strconv.Itoa(l.passFile(empty)), path)
	}
	for _, p := range lay.PrivateBinds {
		// bwrap cannot bind one of its own directories at a second path.
		if p.To != "/dev/shm" {
			args = append(args, "--perms", fmt.Sprintf("%04o", layout.PrivateModes[p.From]), "--size", size, "--tmpfs", p.To)
		}
	}
	if lay.FlatAt != "" {
		args = append(args, "--bind", lay.TreeFrom, lay.FlatAt)
	}
	for _, t := range lay.Tops {
		args = append(args, "--bind-try", lay.TreeFrom+t, t)
	}
	for _, n := range lay.Nested {
		args = append(args, "--bind", lay.TreeFrom+n, n)
	}
	return args, nil
}

// bwrapProc returns the arguments that hide entries of /proc: the same entries that the init hides
// at level Namespaces.
func bwrapProc() []string {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var args []string
	for _, e := range entries {
		if !layout.HidesProc(e) {
			continue
		}
		at := "/proc/" + e.Name()
		if e.IsDir() {
			args = append(args, "--perms", "0555", "--tmpfs", at, "--remount-ro", at)
		} else {
			args = append(args, "--ro-bind-try", os.DevNull, at)
		}
	}
	return args
}

// memFile returns a file in memory that holds data. The file's offset is 0.
func memFile(name string, data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("rootsfs-sandbox", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, failed("make a file in memory: %v", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.WriteAt(data, 0); err != nil {
		f.Close()
		return nil, failed("write %s: %v", name, err)
	}
	return f, nil
}

// bwrapError returns the first line of bwrap's own error text.
func (l *launch) bwrapError() string {
	b := make([]byte, 4096)
	n, err := l.bwrapStderr.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "it did not say why"
	}
	text, _, _ := strings.Cut(strings.TrimSpace(string(b[:n])), "\n")
	return names.Escape(strings.TrimPrefix(text, "bwrap: "))
}
