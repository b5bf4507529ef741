package fleet_test

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cleanup"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/fleet"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/fleetcli"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// TestMain lets this binary run as rootsfs, rootsfs-fleet and the tests' helper programs, too. All tests
// with the fleet's server are in one package, because linking the server takes long.
func TestMain(m *testing.M) {
	sandbox.Main()
	own := cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	testscript.Main(cleaning{m}, map[string]func(){
		"rootsfs": func() {
			cleanup.Main(cli.StderrLog())
			os.Exit(cli.Main(os.Args[1:], own))
		},
		"fleet-probe":   probe,
		"fleet-crowd":   fleet.Crowd,
		"rootsfs-fleet": func() { os.Exit(cli.FleetMain(os.Args[1:], own, fleetcli.Work())) },
	})
}

// cleaning runs the tests, and then removes the directory of the programs that they share.
type cleaning struct{ m *testing.M }

func (c cleaning) Run() int {
	defer fleet.RemoveReleased()
	return c.m.Run()
}

// TestScripts runs testdata/*.txtar: real processes, each "user" with a HOME of its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			env.Setenv("PORT", freePort(t))
			dir, err := fleet.ReleasedDir()
			if err != nil {
				return err
			}
			env.Setenv("PATH", fleet.WithPrograms(dir, env.Getenv("PATH")))
			for _, user := range []string{"nas", "laptop", "thief", "silent"} {
				if err := os.MkdirAll(filepath.Join(env.WorkDir, user, "run"), 0o700); err != nil {
					return err
				}
			}
			return nil
		},
		Cmds:      map[string]func(*testscript.TestScript, bool, []string){"as": as, "await": await},
		Condition: func(cond string) (bool, error) { return cond == "root" && os.Geteuid() == 0, nil },
	})
}

// freePort returns a port that nothing listens at.
func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// as USER makes the commands that follow run with the directories of a user.
func as(ts *testscript.TestScript, _ bool, args []string) {
	home := ts.MkAbs(args[0])
	for name, value := range map[string]string{"HOME": home, "XDG_RUNTIME_DIR": home + "/run", "XDG_STATE_HOME": home + "/state", "XDG_CONFIG_HOME": home + "/config"} {
		ts.Setenv(name, value)
	}
}

// await FILE waits until a file is not empty.
func await(ts *testscript.TestScript, _ bool, args []string) {
	if !testkit.Eventually(func() bool {
		st, err := os.Stat(ts.MkAbs(args[0]))
		return err == nil && st.Size() > 0
	}) {
		ts.Fatalf("%s stayed empty", args[0])
	}
}
