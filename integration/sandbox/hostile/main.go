// Command hostile attacks its confinement. It makes many attempts to get at files and
// processes outside its roots, and prints the result of each attempt as a line of JSON.
//
// It promises nothing, and must never be run outside tests: unconfined, most of its attempts
// succeed (the tests check this). It changes the files and servers that its targets name, leaves
// files in HOME, and makes files in system directories, which it removes at once. At worst it
// leaves processes behind.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// targets are the files, processes and servers that the attempts use. The tests have put most of
// them outside. Root, Link and SetUID are paths inside; all other paths are paths outside.
type targets struct {
	Secret        string // a file that every user may read and write
	SecretContent string // the content of Secret
	Dir           string // the directory of Secret; every user may write to it
	Root          string // a writable root
	Link          string // a link in the root that leads to Secret
	SetUID        string // a set-uid copy of this program in the root
	Handle        string // Secret's file handle: type, and bytes in hex
	Victim        int    // a process of the same user
	Parent        int    // the process of the tests
	Pathname      string // the path of a listening Unix socket
	Abstract      string // the name of a listening abstract socket, without its @
	System        string // the path of a listening Unix socket in a directory of the system
	Shared        string // the address of a TCP listener that shares its port with other listeners of its user
	Net           string // the host's network namespace
	TCP           string // the address of a TCP server of the host
	UDP           string
	MPTCP         string
	Log           string // the content of the file that is standard error
	ShmKey        int    // the key of a shared memory segment
	Shm           string // a file in the host's /dev/shm
	Pids          int    // the number of processes that forkBomb has to exceed
	Inotify       int    // how many inotify instances a user may have
	Host          string // the host's name
	Control       string // the control socket of another session of the owner
	Audit         string // the audit file of that session
	Session       string // the directory of this session, which contains its control socket
}

// errRefused means that an attempt got nothing, although no call failed.
var errRefused = errors.New("refused")

// attempt is one attack. try returns nil if the attack worked.
type attempt struct {
	name string
	try  func(t *targets) error
}

var attempts []attempt

// result is the printed result of an attempt.
type result struct {
	Name   string
	Worked bool
	Detail string
}

func main() {
	// An attempt or a test has started this program as a helper.
	if len(os.Args) == 2 {
		if helper, ok := helpers[os.Args[1]]; ok {
			os.Exit(helper())
		}
	}
	if len(os.Args) == 3 && os.Args[1] == "-get" {
		os.Exit(get(os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[1] == "-network" {
		os.Exit(attackNetwork(os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[1] == "-secret" {
		os.Exit(attackSecret(os.Args[2]))
	}
	if len(os.Args) >= 3 && os.Args[1] == "-dial" {
		os.Exit(dial(os.Args[2], len(os.Args) > 3))
	}
	if len(os.Args) == 3 && os.Args[1] == "-exhaust" {
		os.Exit(exhaust(os.Args[2]))
	}
	if len(os.Args) == 4 && os.Args[1] == "-listen" {
		if port, err := strconv.Atoi(os.Args[2]); err == nil {
			hostNet, _ = os.Readlink("/proc/self/ns/net")
			os.Exit(tryListening(port, os.Args[3]))
		}
	}
	var t targets
	if err := json.Unmarshal([]byte(os.Args[1]), &t); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	hostNet = t.Net
	out := json.NewEncoder(os.Stdout)
	for _, a := range attempts {
		err := a.run(&t)
		if err := out.Encode(result{a.name, err == nil, detail(err)}); err != nil {
			os.Exit(1)
		}
	}
}

// detail returns an errno by its name, and any other error by its text.
func detail(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return ""
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// run makes the attempt. It returns a panic as an error, so that the other attempts still run.
func (a *attempt) run(t *targets) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return a.try(t)
}

// helpers maps this program's only argument to a role of this program. Attempts start it again with
// -euid, -foreign or -nothing. Tests start it with the other arguments.
var helpers = map[string]func() int{
	"-euid":    func() int { return os.Geteuid() & 0x7f },
	"-foreign": func() int { return foreignCall() },
	"-nothing": func() int { return 0 },
	"-stdin":   func() int { return stdin() },
	"-own":     func() int { return connectOwn() },
	"-pass":    func() int { return passByStreams() },
	"-forge":   func() int { return forge() },
}

// runSelf runs path, a copy of this program, as a helper, and returns its exit code.
func runSelf(path, helper string) (int, error) {
	err := exec.Command(path, helper).Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return -1, fmt.Errorf("ended by %v", ws.Signal())
		}
		return exit.ExitCode(), nil
	}
	return 0, err
}

// call makes a system call and returns its error.
func call(nr uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	_, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return errno
	}
	return nil
}

// reveals returns nil if a read succeeded and its bytes contain the secret.
func reveals(t *targets, b []byte, err error) error {
	if err != nil {
		return short(err)
	}
	if !strings.Contains(string(b), t.SecretContent) {
		return errRefused
	}
	return nil
}

// short returns the errno in an error, if there is one, and so drops the paths.
func short(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
