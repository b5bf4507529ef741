package fleet

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// realFleet is a fleet whose server, agents and sessions are processes. Each machine has a HOME
// and a runtime directory of its own.
type realFleet struct {
	*testing.T
	dir   ServerDir
	home  string // the owner's
	serve *exec.Cmd
	port  string
	nets  map[string]string // the network namespaces of fleet commands, by HOME
	times map[string]string // the time namespaces, by HOME
	// programs is the directory of the programs that commands run. If it is "", they are this test binary.
	programs string
}

// realMachine is a machine with one session, which serves one file.
type realMachine struct {
	f     *realFleet
	name  string
	home  string
	agent *exec.Cmd
	file  string // in the session's root
}

// start starts this test binary as a program, with the environment of a HOME. Servers and agents
// thus have the race detector if the binary has it. start returns the process and the first line
// that the process prints.
func (f *realFleet) start(home string, args ...string) (*exec.Cmd, string) {
	f.Helper()
	cmd := f.commandIn("", home, args...)
	log, err := os.Create(filepath.Join(home, args[1]+".err"))
	f.must(err)
	defer log.Close()
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	f.must(err)
	f.must(cmd.Start())
	f.Cleanup(func() { stop(cmd) })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		text, _ := os.ReadFile(log.Name())
		f.Fatalf("%v: %v\n%s", args, err, text)
	}
	return cmd, line
}

// stop ends a process, also one that SIGSTOP has stopped, and waits for its end.
func stop(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGCONT)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// command returns a command line with the environment of a HOME. Its programs are those of f.programs.
func (f *realFleet) command(home string, args ...string) *exec.Cmd {
	return f.commandIn(f.programs, home, args...)
}

// commandIn is command with the programs of dir. If dir is "", they are this test binary.
func (f *realFleet) commandIn(dir, home string, args ...string) *exec.Cmd {
	if args[0] == "fleet" {
		args = append([]string{"rootsfs-fleet"}, args...)
		if net := f.nets[home]; net != "" {
			args = append([]string{"nsenter", "--net=/run/netns/" + net}, args...)
		}
	}
	if clock := f.times[home]; clock != "" && args[0] != "fleet-probe" { // the probe prints times by the test's clock
		args = append([]string{"nsenter", "--time=" + clock}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	if path := filepath.Join(dir, args[0]); dir != "" && isFile(path) {
		cmd = exec.Command(path, args[1:]...)
	}
	cmd.Env = append(os.Environ(), "PATH="+WithPrograms(dir, os.Getenv("PATH")), "HOME="+home, "XDG_STATE_HOME="+home+"/state", "XDG_CONFIG_HOME="+home+"/config", "XDG_RUNTIME_DIR="+home+"/run", "GORACE=atexit_sleep_ms=0")
	return cmd
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// run executes a command to its end. It returns the output and the exit code.
func (f *realFleet) run(home string, args ...string) (string, int) {
	f.Helper()
	out, err := f.command(home, args...).CombinedOutput()
	if _, isExit := err.(*exec.ExitError); err != nil && !isExit {
		f.Fatal(err)
	}
	if err != nil {
		return string(out), err.(*exec.ExitError).ExitCode()
	}
	return string(out), 0
}

func (f *realFleet) must(err error) {
	f.Helper()
	testkit.Must(f, err)
}

// realLease is the shortest lease that processes on a busy machine can renew in time.
const realLease = time.Second

// newRealFleet starts a fleet with machines whose leases are short.
func newRealFleet(t *testing.T, machines ...string) (*realFleet, []*realMachine) {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("needs /dev/fuse")
	}
	f := &realFleet{T: t, home: t.TempDir(), dir: ServerDir(filepath.Join(t.TempDir(), "server")), port: "0"}
	var err error
	f.programs, err = ReleasedDir() // before asUser: the HOME has the cache of the Go compiler
	f.must(err)
	f.asUser(f.home)
	_, err = Create(f.dir, Plan{Name: "acme", Server: "localhost:4222", Lease: realLease})
	f.must(err)
	f.startServer()
	dir, err := stateDir("owner")
	f.must(err)
	var info ownedFleet
	f.must(readJSON(ownerDir(dir).fleet(), &info))
	info.Server = "localhost:" + f.port
	f.must(writeJSON(ownerDir(dir).fleet(), info))
	var all []*realMachine
	for _, name := range machines {
		all = append(all, f.newMachine(name))
	}
	return f, all
}

// asUser makes this process act for the user who has this HOME.
func (f *realFleet) asUser(home string) {
	f.Setenv("HOME", home)
	f.Setenv("XDG_STATE_HOME", home+"/state")
	f.Setenv("XDG_RUNTIME_DIR", home+"/run")
	f.must(os.MkdirAll(home+"/run", 0o700))
}

func (f *realFleet) startServer() {
	f.Helper()
	var line string
	f.serve, line = f.start(f.home, "fleet", "serve", "--dir", string(f.dir), "--listen", "localhost:"+f.port)
	f.port = regexp.MustCompile(`:(\d+)\n`).FindStringSubmatch(line)[1]
}

func (f *realFleet) newMachine(name string) *realMachine {
	f.Helper()
	m := &realMachine{f: f, name: name, home: f.TempDir()}
	if f.nets != nil {
		f.nets[m.home] = f.newNet(name)
		f.times[m.home] = f.newClock(name)
	}
	line, code := f.run(f.home, "fleet", "invite", name)
	if code != 0 {
		f.Fatal(line)
	}
	f.must(os.MkdirAll(m.home+"/run", 0o700))
	if out, code := f.run(m.home, strings.Fields(line)[1:]...); code != 0 {
		f.Fatal(out)
	}
	m.startAgent()
	root, point := filepath.Join(m.home, "code"), filepath.Join(m.home, "mnt")
	f.must(os.MkdirAll(root, 0o700))
	f.must(os.MkdirAll(point, 0o700))
	f.must(os.WriteFile(root+"/f", []byte("word"), 0o600))
	m.file = point + "/code/f"
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		out, code := f.run(m.home, "rootsfs", "mount", "--daemon", "--root", "code="+root+":rw", point)
		if code == 0 {
			break
		}
		if time.Now().After(end) || !strings.Contains(out, "has not answered") {
			f.Fatal(out)
		}
	}
	f.Cleanup(func() {
		// A machine without a lease can unmount.
		if out, code := f.run(m.home, "rootsfs", "unmount", point); code != 0 {
			f.Error(out)
		}
	})
	f.until(name+" serves", patience, m.reads)
	return m
}

func (m *realMachine) startAgent() {
	m.f.Helper()
	m.f.must(os.MkdirAll(m.home+"/mnt2", 0o700))
	m.agent, _ = m.f.start(m.home, "fleet", "agent")
}

// reads reports whether the session serves its file.
func (m *realMachine) reads() bool {
	data, err := os.ReadFile(m.file)
	return err == nil && string(data) == "word"
}

// until waits for a state, and returns how long it took.
func (f *realFleet) until(what string, limit time.Duration, is func() bool) time.Duration {
	f.Helper()
	begun := time.Now()
	for !is() {
		if time.Since(begun) > limit {
			f.Fatalf("%s: not after %v", what, limit)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(begun)
}

// patience bounds waits that have no time limit of their own.
const patience = 30 * time.Second

// Before the command ends, a revocation ends the roots on every machine that answers. The command
// names a machine that cannot answer, with the time by which its access ends. The access ends with
// the lease of that machine.
func TestRevokeThreeMachines(t *testing.T) {
	f, m := newRealFleet(t, "m1", "m2", "m3")
	f.must(m[2].agent.Process.Signal(syscall.SIGSTOP))
	open, err := os.Open(m[0].file)
	f.must(err)
	defer open.Close()
	out, code := f.run(f.home, "fleet", "revoke", "--all", "--wait", "500ms")
	done := time.Now()
	for _, want := range []string{`m1: dead in [0-9.]+ ms, roots: 1\n`, `m2: dead in [0-9.]+ ms, roots: 1\n`, `m3: no answer; dead by [0-9:]{8} at the latest\n`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("there is no %s in:\n%s", want, out)
		}
	}
	if code != 1 {
		t.Errorf("the exit code is %d", code)
	}
	if _, err := open.Read(make([]byte, 4)); err == nil || m[0].reads() || m[1].reads() {
		t.Errorf("m1 or m2 serves after its answer")
	}
	// The lease of m3 runs out, whatever its agent does.
	f.until("m3 is dead", time.Until(done.Add(realLease+leaseSlack)), func() bool { return !m[2].reads() })
	f.must(m[2].agent.Process.Signal(syscall.SIGCONT))
	f.until("m3 has revoked", patience, func() bool {
		out, _ := f.run(m[2].home, "rootsfs", "status")
		return !strings.Contains(out, "code") && !strings.Contains(out, "paused")
	})
	out, code = f.run(f.home, "fleet", "revoke", "code", "--wait", "20s")
	if code != 0 || strings.Count(out, "roots: 0") != 3 {
		t.Errorf("once more: %d\n%s", code, out)
	}
}

// A lock pauses running sessions and lets none begin, also on a machine whose agent was dead when
// the lock was given. After unlock, open files work again.
func TestAgentKilled(t *testing.T) {
	f, all := newRealFleet(t, "m1")
	m := all[0]
	open, err := os.Open(m.file)
	f.must(err)
	defer open.Close()
	stop(m.agent)
	f.until("the session pauses without an agent", realLease+leaseSlack, func() bool { return !m.reads() })
	out, code := f.run(f.home, "fleet", "lock", "strange pushes", "--wait", "100ms")
	if code != 1 || !strings.Contains(out, "m1: no answer; locked by") {
		t.Errorf("the lock: %d\n%s", code, out)
	}
	m.startAgent()
	f.until("the agent has carried out the lock", patience, func() bool {
		out, _ := f.run(m.home, "rootsfs", "mount", "--daemon", "--root", "x="+m.home+"/code", m.home+"/mnt2")
		return strings.Contains(out, `which has locked it: "strange pushes"`)
	})
	if m.reads() {
		t.Error("a locked machine serves")
	}
	if out, code := f.run(f.home, "fleet", "unlock", "--wait", "20s"); code != 0 || !strings.Contains(out, "m1: unlocked in") {
		t.Errorf("the unlock: %d\n%s", code, out)
	}
	f.until("the session goes on", patience, m.reads)
	if n, err := open.ReadAt(make([]byte, 4), 0); err != nil || n != 4 {
		t.Errorf("a file that was open before the lock: %d bytes, %v", n, err)
	}
	out, code = f.run(f.home, "fleet", "lock", "again", "--wait", "20s")
	if n, err := open.ReadAt(make([]byte, 4), 0); code != 0 || !strings.Contains(out, "m1: locked in") || err == nil {
		t.Errorf("%d bytes are read when the lock has returned %d\n%s", n, code, out)
	}
}

// While the server is stopped, nothing is served after the end of the lease. When the server
// continues, so do the sessions.
func TestServerStopped(t *testing.T) {
	f, all := newRealFleet(t, "m1")
	m := all[0]
	f.must(f.serve.Process.Signal(syscall.SIGSTOP))
	f.until("the session pauses", realLease+leaseSlack, func() bool { return !m.reads() })
	f.must(f.serve.Process.Signal(syscall.SIGCONT))
	f.until("the session goes on", patience, m.reads)
}

// A keeper that was killed has its orders after the restart: the machine is still locked.
func TestKeeperKilledAndBack(t *testing.T) {
	f, all := newRealFleet(t, "m1")
	m := all[0]
	stop(m.agent)
	out, _ := f.run(f.home, "fleet", "revoke", "--all", "--lock", "fire", "--wait", "50ms")
	if !strings.Contains(out, "m1: no answer") {
		t.Errorf("the revocation: %s", out)
	}
	stop(f.serve)
	f.startServer()
	m.startAgent()
	f.until("the order has come", patience, func() bool {
		out, _ := f.run(m.home, "rootsfs", "status", "--json")
		return strings.Contains(out, `"locked": "fire"`) && !strings.Contains(out, `"name": "code"`)
	})
	if m.reads() {
		t.Error("a locked machine serves")
	}
	if out, code := f.run(f.home, "fleet", "unlock", "--wait", "20s"); code != 0 {
		t.Error(fmt.Sprint(code), out)
	}
	f.recordsArrive(m)
}

// recordsArrive fails the test unless the owner gets every record that the machine has now, unchanged
// and once.
func (f *realFleet) recordsArrive(m *realMachine) {
	f.Helper()
	lines := func(dir string) (list []string) {
		files, err := audit.Files(dir, "")
		f.must(err)
		f.must(audit.Read(files, audit.Filter{}, func(e audit.Entry) error {
			list = append(list, string(e.Line))
			return nil
		}))
		return list
	}
	own := filepath.Join(m.home, "state", "rootsfs", "audit")
	want := lines(own)
	copies := f.TempDir()
	f.until("the owner has all records", patience, func() bool {
		out, code := f.run(f.home, "fleet", "audit", "pull", copies)
		if code != 0 {
			f.Fatal(out)
		}
		dirs, err := filepath.Glob(filepath.Join(copies, m.name+".*"))
		f.must(err)
		if len(dirs) != 1 {
			return false
		}
		got := slices.Sorted(slices.Values(lines(dirs[0])))
		isMissing := func(line string) bool { _, found := slices.BinarySearch(got, line); return !found }
		return !slices.ContainsFunc(want, isMissing) && len(got) == len(slices.Compact(slices.Clone(got)))
	})
	if out, code := f.run(f.home, "fleet", "audit", "verify", copies); code != 0 || strings.Count(out, "whole") < 2 {
		f.Errorf("verify: %d\n%s", code, out)
	}
}
