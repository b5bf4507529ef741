package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// answers AHEAD PROMPT ANSWER COMMAND... runs COMMAND with a new terminal of 80 columns as its
// standard input and controlling terminal. It types AHEAD before COMMAND starts, and ANSWER when
// the terminal shows PROMPT. It prints what the terminal has shown, and returns the exit code of
// COMMAND.
func answers(args []string) int {
	if len(args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: answers AHEAD PROMPT ANSWER COMMAND...")
		return 2
	}
	master, tty, err := pty.Open()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	var shown []byte
	read := func(until string) error {
		for b := make([]byte, 1); until == "" || !bytes.HasSuffix(shown, []byte(until)); shown = append(shown, b[0]) {
			if _, err := master.Read(b); err != nil {
				return err
			}
		}
		return nil
	}
	if ahead := args[0]; ahead != "" {
		_, werr := master.WriteString(ahead + "\n")
		err = errors.Join(werr, read(ahead+"\r\n")) // after this echo, the line waits to be read
	}
	cmd := exec.Command(args[3], args[4:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, os.Stdout, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	if err = errors.Join(err, cmd.Start(), tty.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if read(args[1]) == nil {
		_, err = master.WriteString(args[2] + "\n")
	}
	if end := read(""); err != nil || !errors.Is(end, syscall.EIO) {
		fmt.Fprintln(os.Stderr, err, end)
	}
	fmt.Println(strings.ReplaceAll(string(shown), "\r\n", "\n"))
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode()
}
