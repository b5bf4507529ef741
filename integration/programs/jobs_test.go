package programs

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// jobVar is an environment variable. If it is set, its value is a mapping as JSON, and this test
// binary does the job of the mapping instead of the tests.
const jobVar = "ROOTSFS_PROGRAMS_JOB"

// mapping is the job of a process that stores through a shared mapping.
type mapping struct {
	Path     string
	Off, Len int
	Char     byte
	Size     int
	NoSync   bool // leave the writing back to the kernel
}

func runJob(raw string) error {
	var j mapping
	if err := json.Unmarshal([]byte(raw), &j); err != nil {
		return err
	}
	fd, err := unix.Open(j.Path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	m, err := unix.Mmap(fd, 0, j.Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	_ = unix.Close(fd) // the mapping keeps the file
	for i := j.Off; i < j.Off+j.Len; i++ {
		m[i] = j.Char
	}
	if j.NoSync {
		return unix.Munmap(m)
	}
	return unix.Msync(m, unix.MS_SYNC)
}

// startMapping starts a process that does the job j.
func startMapping(t *testing.T, j mapping) *exec.Cmd {
	t.Helper()
	raw, err := json.Marshal(j)
	testkit.Must(t, err)
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), jobVar+"="+string(raw))
	cmd.Stderr = os.Stderr
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}
