package sandbox

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// What the host had mounted when a run began can be ended while it lasts: no
// process of the run keeps the copies of the host's mounts, whether the program is
// linked statically or not.
func TestHostMountsEndDuringRun(t *testing.T) {
	needRoot(t)
	dynamic := filepath.Join(t.TempDir(), "rootsfs")
	build := exec.Command("go", "build", "-o", dynamic, "../../cmd/rootsfs")
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, program := range map[string]string{"static": filepath.Join(built(t), "rootsfs"), "dynamic": dynamic} {
		for _, level := range []sandbox.Level{sandbox.Namespaces, sandbox.Bubblewrap, sandbox.Landlock} {
			t.Run(name+"/"+level.String(), func(t *testing.T) {
				o := newOutside(t, everybody[0])
				o.files()
				point := filepath.Join(t.TempDir(), "mnt")
				must(t, os.Mkdir(point, 0o755))
				start := func(args ...string) *exec.Cmd {
					cmd := exec.Command(program, args...)
					cmd.Env, cmd.Stderr = append(o.env, "HOME="+o.home, "PATH="+os.Getenv("PATH")), os.Stderr
					stdout, err := cmd.StdoutPipe()
					must(t, err)
					must(t, cmd.Start())
					t.Cleanup(func() { // of a test that has failed
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
				o.gone("the host's mount", func() bool { return len(ended) > 0 })
				must(t, <-ended)
				must(t, run.Process.Signal(unix.SIGTERM))
				_ = run.Wait()
			})
		}
	}
}
