package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// The test binary is also the caller of Start, as another user (driver), and the
// process that the hostile program attacks (victim).
const (
	driverVar = "ROOTSFS_SANDBOX_DRIVER"
	victimVar = "ROOTSFS_SANDBOX_VICTIM"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	if raw, ok := os.LookupEnv(driverVar); ok {
		os.Exit(drive(raw))
	}
	if secret, ok := os.LookupEnv(victimVar); ok {
		os.Exit(victim(secret))
	}
	code := m.Run()
	if builds.dir != "" {
		if err := os.RemoveAll(builds.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// order is what a driver is told.
type order struct {
	Bare    bool // without rootsfs
	Options sandbox.Options
	// Terminal passes standard input as a terminal.
	Terminal bool
}

// drive starts what the order says with the streams it has itself, and ends as
// that does.
func drive(raw string) int {
	var o order
	if err := json.Unmarshal([]byte(raw), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	if o.Bare {
		return driveBare(&o)
	}
	o.Options.Stdin, o.Options.Stdout, o.Options.Stderr, o.Options.TTY = os.Stdin, os.Stdout, os.Stderr, o.Terminal
	p, err := sandbox.Start(context.Background(), o.Options)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGTERM)
	go func() { <-ended; _ = p.Kill() }()
	exit, err := p.Wait()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	return exit.Status()
}

func driveBare(o *order) int {
	cmd := exec.Command(o.Options.Args[0], o.Options.Args[1:]...)
	cmd.Env = o.Options.Env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// What was inherited is inherited further, as exec does it by itself.
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "inherited")}
	if o.Terminal {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	return 0
}

// victim holds what the hostile program wants, says that it is ready, and tells
// of every signal until its input ends.
func victim(secret string) int {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGUSR1)
	go func() {
		for range signals {
			fmt.Println("signal")
		}
	}()
	if _, err := unix.AddKey("user", "rootsfs-hostile", []byte(secret), unix.KEY_SPEC_USER_KEYRING); err != nil {
		fmt.Println("key:", err)
		return 1
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
	return 0
}
