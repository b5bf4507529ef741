package sandbox

import (
	"bufio"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// The host can unmount, during a run, mounts that it had when the run began: no process of
// the run keeps copies of them.
func TestHostMountsEndDuringRun(t *testing.T) {
	needRoot(t)
	program := filepath.Join(programsDir(t), "rootsfs")
	for _, level := range levels {
		t.Run(level.String(), func(t *testing.T) {
			o := newOutside(t, callers[0])
			o.resetFiles()
			point := filepath.Join(t.TempDir(), "mnt")
			testkit.Must(t, os.Mkdir(point, 0o755))
			start := func(args ...string) *exec.Cmd {
				cmd := exec.Command(program, args...)
				cmd.Env, cmd.Stderr = append(o.env, "HOME="+o.home, "PATH="+os.Getenv("PATH")), os.Stderr
				stdout, err := cmd.StdoutPipe()
				testkit.Must(t, err)
				testkit.Must(t, cmd.Start())
				t.Cleanup(func() { // if the test has failed
					_ = cmd.Process.Signal(unix.SIGTERM)
					_ = cmd.Wait()
				})
				if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
					t.Fatalf("%q said %q, %v", args, line, err)
				}
				return cmd
			}
			host := start("mount", "--root", "root="+o.root, "--name", "host", point)
			run := start("run", "--name", "confined", "--level", level.String(), "--mcp", "off", "--root", "root="+o.root, "--",
				"sh", "-c", "echo ready; exec sleep 1000")
			cmd := exec.Command(program, "unmount", "host")
			cmd.Env = o.env
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("unmount: %v\n%s", err, out)
			}
			ended := make(chan error, 1)
			go func() { ended <- host.Wait() }()
			o.until("the end of rootsfs mount", func() bool { return len(ended) > 0 })
			testkit.Must(t, <-ended)
			testkit.Must(t, run.Process.Signal(unix.SIGTERM))
			_ = run.Wait()
		})
	}
}

// The program is linked statically, as make build and the releases link it. A dynamic program
// would map its loader and libraries from the copy of the host's root file system in the run's
// namespace, so the copy would be in use. A mount that is in use stays when it is unmounted lazily,
// and so do all mounts below that mount (fs/namespace.c, disconnect_mount).
func TestProgramIsStatic(t *testing.T) {
	f, err := elf.Open(filepath.Join(programsDir(t), "rootsfs"))
	testkit.Must(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the program has a loader (%v)", p.Type)
		}
	}
}
