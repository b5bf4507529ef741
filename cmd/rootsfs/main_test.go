package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cleanup"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// TestMain makes this binary four programs: rootsfs itself; answers; panics; and nowatches.
func TestMain(m *testing.M) {
	sandbox.Main()
	childfs.Serve() // before testscript.Main makes a directory, which the child would not remove
	testscript.Main(fromOutside{m}, map[string]func(){
		"rootsfs":   main,
		"panics":    panics,
		"nowatches": nowatches,
		"answers":   func() { os.Exit(answers(os.Args[1:])) },
	})
}

// tree returns all commands, or those that a command line beginning with args can run.
func tree(args ...string) *cobra.Command { return cli.Tree(args) }

// fromOutside runs the tests so that they reach mounts of this process from another process.
type fromOutside struct{ m *testing.M }

func (f fromOutside) Run() int {
	code := childfs.Main(f.m)
	removeReleased()
	return code
}

// TestScripts runs testdata/script; each script says which requirements it
// shows. The mounts are real.
func TestScripts(t *testing.T) {
	p := scripts(t)
	p.Dir = "testdata/script"
	testscript.Run(t, p)
}

// scripts returns the parameters of scripts. A script that root runs sees only its own mounts,
// and only the directories of its own runs in /run.
func scripts(t *testing.T) testscript.Params {
	t.Helper()
	if err := mountpoint.CheckFUSE(); err != nil {
		t.Skip("real mounts are needed: ", err)
	}
	isRoot := os.Geteuid() == 0
	return testscript.Params{
		Setup: func(env *testscript.Env) error {
			if isRoot {
				if err := isolate(env.WorkDir); err != nil {
					return err
				}
			}
			for _, d := range []struct{ name, variable string }{
				{"home", "HOME"}, {"run", "XDG_RUNTIME_DIR"}, {"state", "XDG_STATE_HOME"},
				{"config", "XDG_CONFIG_HOME"},
			} {
				dir := filepath.Join(env.WorkDir, d.name)
				if err := os.MkdirAll(dir, 0o700); err != nil {
					return err
				}
				env.Setenv(d.variable, dir)
			}
			for _, d := range []string{"mnt", "src", "out"} {
				if err := os.MkdirAll(filepath.Join(env.WorkDir, d), 0o755); err != nil {
					return err
				}
			}
			// With the race detector, each of the many processes would otherwise sleep for a
			// second before its end.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			if s := os.Getenv("ROOTSFS_TRANSPORT"); s != "" {
				env.Setenv("ROOTSFS_TRANSPORT", s)
			}
			dir, err := programDir(filepath.Base(env.WorkDir))
			if err != nil {
				return err
			}
			if dir != "" {
				env.Setenv("PATH", dir+string(filepath.ListSeparator)+env.Getenv("PATH"))
			}
			env.Defer(func() { sweep(t, env.WorkDir) })
			env.Defer(func() { showLogs(env) })
			return os.WriteFile(filepath.Join(env.WorkDir, "src", "hello"), []byte("hello\n"), 0o644)
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return isRoot, nil
			case "soak":
				return lab.Soak(), nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":       code,
			"eventually": eventually,
			"ownmounts":  ownMounts,
			"signal":     signalSession,
		},
	}
}

// code N COMMAND... runs a command, and fails if its exit code is not N.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND...")
	}
	if got := exitCode(ts, args[1:]); strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// exitCode runs a command and returns its exit code. It ends the script if the command cannot be
// run.
func exitCode(ts *testscript.TestScript, command []string) int {
	err := ts.Exec(command[0], command[1:]...)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Fatalf("%v", err)
	}
	if exit == nil {
		return 0
	}
	return exit.ExitCode()
}

// eventually [!] COMMAND... runs a command until it succeeds (or fails), for things that happen
// in the background. The limit is far beyond the time that they take: it only ends a test that
// has failed. The test then shows the input of the command.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) > 0 && args[0] == "!" {
		neg, args = true, args[1:]
	}
	if len(args) == 0 || args[0] == "exec" {
		ts.Fatalf("usage: eventually [!] COMMAND..., a program and not one of the script's commands")
	}
	for end := time.Now().Add(time.Minute); ; {
		begin := time.Now()
		err := ts.Exec(args[0], args[1:]...)
		// A try starts up to three processes, and must not slow down what it waits for.
		pause := min(max(5*time.Since(begin), 10*time.Millisecond), 500*time.Millisecond)
		if (err == nil) != neg {
			return
		}
		if time.Now().After(end) {
			showInput(ts, args)
			ts.Fatalf("never happened: %v (%v)", args, err)
		}
		time.Sleep(pause)
	}
}

// showInput logs the input of a command that prints nothing itself: the files among its
// arguments, and the output of a shell script up to its last pipe.
func showInput(ts *testscript.TestScript, args []string) {
	for _, arg := range args[1:] {
		if data, err := os.ReadFile(ts.MkAbs(arg)); err == nil {
			ts.Logf("%s holds:\n%s", arg, data)
		}
	}
	if args[0] != "sh" {
		return
	}
	script := strings.TrimLeft(args[len(args)-1], "! ")
	if i := strings.LastIndex(script, "|"); i > 0 && !strings.HasSuffix(script[:i], "|") {
		ts.Logf("%s prints:", script[:i])
		if err := ts.Exec("sh", "-c", script[:i]); err != nil {
			ts.Logf("%v", err)
		}
	}
}

// showLogs logs the last 8 KiB of each log of a daemon, if the script has failed.
func showLogs(env *testscript.Env) {
	if t, ok := env.T().(interface{ Failed() bool }); !ok || !t.Failed() {
		return
	}
	logs, _ := filepath.Glob(filepath.Join(env.WorkDir, "state/rootsfs/*.log")) // the pattern is good
	for _, log := range logs {
		data, err := os.ReadFile(log)
		env.T().Log(fmt.Sprintf("%s: %v\n%s", filepath.Base(log), err, data[max(0, len(data)-8<<10):]))
	}
}

// signal NAME SESSION ends a session's daemon by a signal, and waits until the daemon is gone.
// KILLBOTH kills the daemon's supervisor first, so that nobody cleans up after the daemon.
func signalSession(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]unix.Signal{"KILL": unix.SIGKILL, "TERM": unix.SIGTERM, "QUIT": unix.SIGQUIT, "INT": unix.SIGINT, "KILLBOTH": unix.SIGKILL}
	if len(args) != 2 || neg {
		ts.Fatalf("usage: signal NAME SESSION")
	}
	sig, ok := signals[args[0]]
	if !ok {
		ts.Fatalf("unknown signal %s", args[0])
	}
	data, err := os.ReadFile(filepath.Join(ts.Getenv("XDG_RUNTIME_DIR"), "rootsfs", args[1], "session.json"))
	ts.Check(err)
	var in struct{ PID int }
	ts.Check(json.Unmarshal(data, &in))
	if args[0] == "KILLBOTH" {
		ts.Check(killSupervisor(in.PID))
	}
	ts.Check(unix.Kill(in.PID, sig))
	if !testkit.Eventually(func() bool { return !running(in.PID) }) {
		ts.Fatalf("pid %d lives on", in.PID)
	}
}

// killSupervisor kills the supervisor of a daemon.
func killSupervisor(daemon int) error {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", daemon))
	if err != nil {
		return err
	}
	for _, list := range lists {
		data, _ := os.ReadFile(list) // of a thread that may have ended
		for _, child := range strings.Fields(string(data)) {
			line, _ := os.ReadFile("/proc/" + child + "/cmdline")
			if pid, err := strconv.Atoi(child); err == nil && strings.HasPrefix(string(line), "rootsfs\x00"+cleanup.Name+"\x00") {
				return unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
	return fmt.Errorf("the daemon %d has no supervisor", daemon)
}

// running reports whether a process runs. A zombie counts as gone, because its parent may never
// reap it. A zombie whose other threads have not ended counts as running: it still has its files,
// locks and connections.
func running(pid int) bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // the pattern is good
	for _, task := range tasks {
		data, err := os.ReadFile(task)
		_, rest, _ := strings.Cut(string(data), ") ")
		if err == nil && !slices.Contains([]string{"Z", "X"}, rest[:min(1, len(rest))]) {
			return true
		}
	}
	return false
}
