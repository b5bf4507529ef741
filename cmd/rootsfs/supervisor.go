package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/janitor"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/mount/sandbox/ahead"
)

// A daemon that is killed (SIGKILL, or for want of memory) leaves its mount, and the
// kernel goes on answering from its caches until that is detached. So a daemon has a
// supervisor: this program started again, which does nothing but wait for the daemon's
// end (package janitor, before anything else).

// supervise starts the supervisor of a session that is mounted. The returned function
// ends it, before the process ends by itself.
func supervise(s *session.Session) (end func(), err error) {
	in, err := mountpoint.Find(s.Point())
	if err != nil {
		return nil, fmt.Errorf("watch over the daemon: %w", err)
	}
	self, err := janitor.Self()
	if err != nil {
		return nil, fmt.Errorf("watch over the daemon: %w", err)
	}
	defer self.Close()
	helper := janitor.NoHelper
	if os.Geteuid() != 0 {
		if found, err := exec.LookPath("fusermount3"); err == nil {
			helper = found
		}
	}
	cmd := &exec.Cmd{
		Path: ahead.Program, Dir: "/", Stdin: self, Stderr: os.Stderr,
		Args: []string{"rootsfs", janitor.SupervisorName, in.Point, strconv.Itoa(in.ID), in.Dev, helper},
		Env:  append(os.Environ(), janitorEnv...),
		// Not for the signals to the daemon's group.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the process that watches over the daemon: %w", err)
	}
	return func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	}, nil
}

// newSupervisorCmd is not for people.
func newSupervisorCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use: janitor.SupervisorName + " POINT ID DEVICE HELPER", Hidden: true, Args: nargs(4, 4, "the mountpoint"),
		Short: "Detach the mount of a killed daemon (started by mount itself)",
		RunE: func(_ *cobra.Command, args []string) error {
			log := newLog(a.stderr, slog.LevelInfo, logAttr).With("mountpoint", args[0])
			if janitor.Detached() {
				log.Error("the daemon was killed: its mount is detached; what programs had written and not synced is lost")
			} else {
				log.Error("the daemon was killed, and its mount cannot be detached: the kernel answers from its caches until it is", "remedy", "rootsfs unmount "+names.ShellWord(args[0]))
			}
			return clearSessions()
		},
	}
}
