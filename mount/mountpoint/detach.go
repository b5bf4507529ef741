package mountpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// helperTimeout bounds a run of fusermount3. It is long, because unmounting can wait for
// dirty pages to be written.
const helperTimeout = 30 * time.Second

// Detach unmounts the top-most rootsfs mount at point: by umount2(2) if this
// process may, otherwise by the set-user-id helper fusermount3 (or fusermount).
// With lazy the mount leaves the tree of mounts at once, even if it is in use. Open files and
// directories in it go on working until the connection ends, so a lazy unmount revokes nothing.
//
// The error wraps ErrNotMounted, ErrNotOurs (another type of file system, or
// another user's mount that this process may not unmount by umount2(2)), ErrBusy or another cause.
// A busy error names the processes and mounts that hold the mount, as far as this user can see
// them.
func Detach(point string, lazy bool) error {
	in, err := findAt(point)
	if err != nil {
		return err
	}
	if in.FSType != FSType {
		return checkOurs(in)
	}
	flags := unix.UMOUNT_NOFOLLOW
	if lazy {
		flags |= unix.MNT_DETACH
	}
	switch err = unix.Unmount(in.Point, flags); {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM):
		// Not only ordinary users get EPERM: root in a container may lack CAP_SYS_ADMIN. A
		// user in a namespace of his own may have it.
		if err := checkOurs(in); err != nil {
			return err
		}
		return detachByHelper(in, lazy)
	case errors.Is(err, unix.EBUSY):
		return busyError(in, holders(in))
	case errors.Is(err, unix.EINVAL):
		return errorf(err, "%s cannot be unmounted from here: it is gone, or locked because another mount namespace made it; unmount it there", names.ShellWord(in.Point))
	}
	return errorf(err, "unmount %s: %v", names.ShellWord(in.Point), err)
}

// detachByHelper unmounts by fusermount3.
func detachByHelper(in Info, lazy bool) error {
	bin, err := fuseCheck{look: exec.LookPath}.helper()
	if err != nil {
		return err
	}
	args := []string{"-u"}
	if lazy {
		args = append(args, "-z")
	}
	ctx, cancel := context.WithTimeout(context.Background(), helperTimeout)
	defer cancel()
	output, err := exec.CommandContext(ctx, bin, append(args, "--", in.Point)...).CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return errorf(os.ErrDeadlineExceeded, "unmount %s: %s did not end within %v", names.ShellWord(in.Point), bin, helperTimeout)
	}
	// The helper gives its reason as text, which is not parsed. Instead, holders finds out
	// whether the mount is in use.
	held := holders(in)
	if !lazy && len(held) > 0 {
		return busyError(in, held)
	}
	by := ""
	if len(held) > 0 {
		by = ". It is in use by " + strings.Join(held, ", ")
	}
	return fmt.Errorf("unmount %s: %s: %w (%s); %s%s", names.ShellWord(in.Point), bin, err, helperText(output), rootUnmountText(in), by)
}

// mountTable is the file in which fusermount3 looks for the mount that it is to remove.
const mountTable = "/etc/mtab"

// rootUnmountText returns the command that root can type if fusermount3 does not unmount.
func rootUnmountText(in Info) string {
	byRoot := "umount -l " + names.ShellWord(in.Point)
	if _, err := os.Stat(mountTable); errors.Is(err, os.ErrNotExist) {
		return "it needs " + mountTable + ": as root, ln -s /proc/self/mounts " + mountTable + ", then try again; or as root: " + byRoot
	}
	return "as root: " + byRoot
}

// helperText returns the output of fusermount3, quoted.
func helperText(output []byte) string {
	return names.QuoteShort(strings.TrimSpace(strings.TrimPrefix(string(output), "fusermount3: ")))
}

// busyError returns an error that wraps ErrBusy and names the holders of the mount.
func busyError(in Info, held []string) error {
	point := names.ShellWord(in.Point)
	if len(held) == 0 {
		return errorf(ErrBusy, "%s is in use by a process that this user cannot see: end it, then try again; root finds it with: fuser -vm %[1]s", point)
	}
	return errorf(ErrBusy, "%s is in use by %s: end that, then try again", point, strings.Join(held, ", "))
}
