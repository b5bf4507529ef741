package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// overlayUpper is the upper directory of an overlay below XDG_STATE_HOME.
const overlayUpper = "overlay/upper"

// serveOverlay shows source on mnt by an overlay of the kernel or of fuse-overlayfs, which keeps
// what is written apart. It ends on SIGTERM or SIGINT.
func serveOverlay(peer, source, mnt string) error {
	upper := filepath.Join(os.Getenv("XDG_STATE_HOME"), overlayUpper)
	work := filepath.Join(filepath.Dir(upper), "work")
	if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755)); err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", source, upper, work)
	if peer == overlay {
		if err := unix.Mount("overlay", mnt, "overlay", 0, options); err != nil {
			return fmt.Errorf("mount an overlay: %w", err)
		}
	} else if out, err := exec.Command(fuseOverlay, "-o", options, mnt).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", fuseOverlay, err, out)
	}
	fmt.Println("mounted")
	<-stop
	return unix.Unmount(mnt, unix.MNT_DETACH)
}
