package serve

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rootsfs/rootsfs/integration/files"
	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

func TestMain(m *testing.M) { lab.Main(m, nil) }

// peers installs the published MCP packages that tests run against, once for all tests.
var peers = sync.OnceValues(func() (*files.Peers, error) { return files.InstallPeers(context.Background()) })

func needPeers(t testing.TB) *files.Peers {
	t.Helper()
	p, err := peers()
	testkit.Must(t, err)
	return p
}

// rootsfs builds the program once and returns its path.
var rootsfs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rootsfs-serve-test")
	if err != nil {
		return "", err
	}
	lab.After(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "rootsfs")
	return path, testkit.Build(path, "../../cmd/rootsfs")
})

// home has the directories of one test's sessions. rootsfs commands that share a home find each
// other's sessions.
type home struct {
	t       testing.TB
	program string
	env     []string
	dir     string
}

func newHome(t testing.TB) *home {
	t.Helper()
	program, err := rootsfs()
	testkit.Must(t, err)
	h := &home{t: t, program: program, dir: t.TempDir()}
	for _, v := range []string{"XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"} {
		dir := filepath.Join(h.dir, v)
		testkit.Must(t, os.Mkdir(dir, 0o700))
		h.env = append(h.env, v+"="+dir)
	}
	return h
}

// command returns a rootsfs command.
func (h *home) command(args ...string) *exec.Cmd {
	cmd := exec.Command(h.program, args...)
	cmd.Env = append(os.Environ(), h.env...)
	return cmd
}

// mustRun runs a rootsfs command that must succeed.
func (h *home) mustRun(args ...string) string {
	h.t.Helper()
	out, err := h.command(args...).CombinedOutput()
	if err != nil {
		h.t.Fatalf("rootsfs %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// serve starts `rootsfs serve` over stdio.
func (h *home) serve(args ...string) *stdioServer {
	h.t.Helper()
	return open(h.t, h.command(append([]string{"serve"}, args...)...))
}
