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
	driverVar = "ROOTSFS_SANDBOX_DRIVER" // carry out a bare order
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
	catchIgnored()
	code := m.Run()
	if builds.dir != "" {
		if err := os.RemoveAll(builds.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// The main goroutine keeps the first thread: /proc/self shows that thread's mount namespace, and no
// order may change it (see surround).
func init() { runtime.LockOSThread() }

// order tells what command to start and how. The process for a bare order is a driver, which is
// this test binary with driverVar.
type order struct {
	Bare bool // start the command itself, without rootsfs
	Args []string
	Env  []string
	UID  int // the user to run as
	// Mounts maps paths of the machine to files that are mounted there, in a mount namespace of
	// the command's own. (The machine's /dev/fuse may be closed to users, and its /etc/passwd may
	// lack this user.)
	Mounts map[string]string
	// Terminal reports whether standard input is a terminal.
	Terminal bool
	// Weak names the features that the run must not have; see weaken.
	Weak []string
}

// drive carries out the bare order raw, which is JSON. It changes to the order's user and starts
// the order's command. The command gets the streams and descriptors of this process.
func drive(raw string) int {
	var o order
	err := json.Unmarshal([]byte(raw), &o)
	if err == nil {
		err = o.mount()
	}
	if err == nil && o.UID != 0 {
		err = become(o.UID)
	}
	if err == nil {
		err = driveBare(&o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	return 0
}

// surround gives this thread what the command of an order is to inherit: a mount namespace with
// the order's mounts, and the lack of features. The thread cannot be used for anything else
// afterwards.
func (o *order) surround() error {
	if len(o.Mounts) > 0 {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := o.mount(); err != nil {
			return err
		}
	}
	if len(o.Weak) > 0 {
		return weaken(o.Weak)
	}
	return nil
}

// mount makes the order's mounts in this thread's mount namespace, and detaches the mounts of other
// tests there.
func (o *order) mount() error {
	if len(o.Mounts) == 0 {
		return nil
	}
	if err := lab.DetachMounts(""); err != nil {
		return err
	}
	for at, from := range o.Mounts {
		if err := unix.Mount(from, at, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

// catchIgnored makes this process catch the signals that it ignores. A shell ignores SIGINT and
// SIGQUIT for its background jobs, nohup ignores SIGHUP, and the programs that these tests start
// would inherit that. A signal that this process catches has its default action after the exec, as
// in a terminal.
func catchIgnored() {
	for _, sig := range []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGHUP} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
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
