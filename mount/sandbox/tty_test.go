package sandbox

import (
	"context"
	"strings"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// A shell has its own terminal, with its name, size, job control and signals from keys.
// Afterwards the caller's terminal is as before.
func TestTerminal(t *testing.T) {
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer slave.Close()
	if err := pty.Setsize(master, &pty.Winsize{Rows: 33, Cols: 77}); err != nil {
		t.Fatal(err)
	}
	before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(context.Background(), Options{
		Args: []string{"bash", "--norc", "-i"}, Env: []string{"PS1=", "PATH=/usr/bin:/bin", "TERM=dumb"}, Tree: tree(t), Level: Namespaces,
		Stdin: slave, Stdout: slave, Stderr: slave, TTY: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	var exit Exit
	var waitErr error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		exit, waitErr = p.Wait()
	}()
	output := ""
	until := func(text string) {
		t.Helper()
		for buf := make([]byte, 4096); !strings.Contains(output, text); {
			n, err := master.Read(buf)
			output += string(buf[:n])
			if err != nil {
				t.Fatalf("%v; the shell said %q", err, output)
			}
		}
	}
	// The terminal echoes the lines, too. So in the lines each expected answer is split into parts.
	typeLine := func(line string) {
		t.Helper()
		if _, err := master.WriteString(line + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	typeLine("echo name=$(tty) size=$(stty size)")
	until("name=/dev/pts/0 size=33 77")
	raw, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil || raw.Lflag&unix.ECHO != 0 {
		t.Errorf("the caller's terminal is not in raw mode: %#x, %v", raw.Lflag, err)
	}
	if err := pty.Setsize(master, &pty.Winsize{Rows: 40, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(unix.Getpid(), unix.SIGWINCH); err != nil { // as the kernel signals the process to which the terminal belongs
		t.Fatal(err)
	}
	typeLine(`until [ "$(stty size)" = "40 100" ]; do sleep 0.01; done; echo new=$(stty size)`)
	until("new=40 100")
	// The job itself prints that it has the terminal.
	typeLine("sh -c \"echo wai''ting; exec sleep 1000\"")
	until("waiting")
	typeLine("\x1a") // ^Z: job control
	until("Stopped")
	typeLine("kill %1; wait; echo do''ne; echo x$(ps -o pid= --ppid $$ | wc -l)")
	until("done")
	typeLine("exit 5")
	<-ended
	if waitErr != nil || exit != (Exit{Code: 5}) {
		t.Errorf("exit %+v, %v; want code 5", exit, waitErr)
	}
	after, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the caller's terminal was %+v and is %+v, %v", before, after, err)
	}
}
