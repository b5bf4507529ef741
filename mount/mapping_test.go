//go:build linux

package mount

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// mapping is one of a file of our own mount, in a process of its own. A fault in
// this one would wait for the mount and hold what that needs to answer: the lock of
// the address space, without which no thread and no memory is to be had, or the
// garbage collector's patience. The process would stop for good, and with it
// whoever looks at its command line.
type mapping struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	over bool
}

// mapped maps the beginning of an open file, shared; the mapping keeps the file.
func mapped(t *testing.T, f *os.File, size, prot int) *mapping {
	t.Helper()
	m := &mapping{t: t, cmd: exec.Command("/proc/self/exe", "-test.run=^$")}
	m.cmd.Env = append(os.Environ(), childEnv+"=map", fmt.Sprintf("%s=%d %d", childDirEnv, size, prot))
	m.cmd.ExtraFiles, m.cmd.Stderr = []*os.File{f}, os.Stderr
	var err error
	if m.in, err = m.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	m.out = bufio.NewReader(out)
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.unmap)
	if err := m.answer(); err != nil {
		t.Fatalf("mapping it: %v", err)
	}
	return m
}

// load reads what is mapped; a page that is not to be had is an error.
func (m *mapping) load() error { return m.do("load", "-") }

// store writes into what is mapped.
func (m *mapping) store(text string) error { return m.do("store", text) }

// unmap ends the mapping and its process.
func (m *mapping) unmap() {
	if m.over {
		return
	}
	m.over = true
	_ = m.in.Close()
	if err := m.cmd.Wait(); err != nil {
		m.t.Errorf("the process of a mapping: %v", err)
	}
}

func (m *mapping) do(what, text string) error {
	if _, err := fmt.Fprintln(m.in, what, text); err != nil {
		m.t.Fatal(err)
	}
	return m.answer()
}

func (m *mapping) answer() error {
	m.t.Helper()
	var n int
	if _, err := fmt.Fscanln(m.out, &n); err != nil {
		m.t.Fatalf("the process of a mapping says nothing: %v", err)
	}
	if n != 0 {
		return unix.Errno(n)
	}
	return nil
}

// childMap is that process: it answers each line with a number, of an error or 0.
// The kernel reads and writes for it, so that what is not to be had is no signal.
func childMap(what string) error {
	var size, prot int
	if _, err := fmt.Sscan(what, &size, &prot); err != nil {
		return err
	}
	page, err := unix.Mmap(3, 0, size, prot, unix.MAP_SHARED)
	err = errors.Join(err, unix.Close(3))
	for {
		var errno unix.Errno
		_ = errors.As(err, &errno)
		if err != nil && errno == 0 {
			return err
		}
		fmt.Println(int(errno))
		var do, text string
		if _, err := fmt.Scanln(&do, &text); err != nil {
			return nil // the test has ended
		}
		var ends [2]int
		if err = unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			continue
		}
		if do == "load" {
			_, err = unix.Write(ends[1], page)
		} else if _, err = unix.Write(ends[1], []byte(text)); err == nil {
			_, err = unix.Read(ends[0], page)
		}
		unix.Close(ends[0])
		unix.Close(ends[1])
	}
}
