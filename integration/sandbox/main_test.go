package sandbox

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
)

// The test binary has three more modes, chosen by these environment variables.
const (
	driverVar = "ROOTSFS_SANDBOX_DRIVER" // carry out an order, such as a run as another user
	victimVar = "ROOTSFS_SANDBOX_VICTIM" // be the process that the hostile program attacks
	fillVar   = "ROOTSFS_SANDBOX_FILL"   // keep descriptors in flight
)

func TestMain(m *testing.M) {
	if raw, ok := os.LookupEnv(driverVar); ok {
		os.Exit(drive(raw))
	}
	if secret, ok := os.LookupEnv(victimVar); ok {
		os.Exit(victim(secret))
	}
	if _, ok := os.LookupEnv(fillVar); ok {
		os.Exit(fill())
	}
	// The tests wait for processes most of the time, so many run in parallel. A flag on the
	// command line takes precedence.
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
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

// order tells a driver, which is this test binary with driverVar, what command to start and how.
type order struct {
	Bare bool // start the command itself, without rootsfs
	Args []string
	Env  []string
	UID  int // the user to run as
	// Mounts maps paths of the machine to files that are mounted there, in the driver's own mount
	// namespace. (The machine's /dev/fuse may be closed to users, and its /etc/passwd may lack
	// this user.)
	Mounts map[string]string
	// Terminal reports whether standard input is a terminal.
	Terminal bool
	// Weak names the features that the run must not have; see weaken.
	Weak []string
}

// drive carries out the order raw, which is JSON. It changes to the order's user and starts the
// order's command. The command gets the streams and descriptors of this process.
func drive(raw string) int {
	runtime.LockOSThread()
	var o order
	err := json.Unmarshal([]byte(raw), &o)
	if err == nil && len(o.Mounts) > 0 {
		err = lab.DetachMounts("")
	}
	for at, from := range o.Mounts {
		if err == nil {
			err = unix.Mount(from, at, "", unix.MS_BIND, "")
		}
	}
	if err == nil && len(o.Weak) > 0 {
		err = weaken(o.Weak)
	}
	if err == nil && o.UID != 0 {
		err = become(o.UID)
	}
	switch {
	case err != nil:
	case o.Bare:
		err = driveBare(&o)
	default:
		// A shell ignores SIGINT and SIGQUIT for its background jobs, nohup ignores SIGHUP, and
		// the programs that these tests start would inherit that. A signal that this process
		// catches has its default action after the exec, as in a terminal.
		signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGQUIT, unix.SIGHUP)
		err = unix.Exec(o.Args[0], o.Args, o.Env)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	return 0
}

func become(id int) error {
	if err := syscall.Setgroups(nil); err != nil {
		return err
	}
	if err := syscall.Setresgid(id, id, id); err != nil {
		return err
	}
	return syscall.Setresuid(id, id, id)
}

func driveBare(o *order) error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil { // the change of user has cleared it
		return err
	}
	cmd := exec.Command(o.Args[0], o.Args[1:]...)
	cmd.Env = o.Env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// Descriptor 3, which this process has inherited, is passed on, as exec would do.
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "inherited")}
	if o.Terminal {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}
	return cmd.Run()
}

// victim holds the secret that the hostile program wants, and prints "ready". Then it prints
// "signal" for each SIGUSR1, until standard input ends.
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
