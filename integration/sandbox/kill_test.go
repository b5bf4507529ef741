package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// lingering is a command that leaves many processes behind: children that it does not wait for,
// one of them in its own session, and one whose parent has ended.
const lingering = `sleep 1000 MARK & setsid sleep 1000 MARK & (setsid sh -c 'trap "" TERM HUP INT; sleep 1000 MARK & sleep 1000 MARK' &)
	while [ "$(grep -l MARK /proc/[0-9]*/cmdline 2>/dev/null | wc -l)" -lt 5 ]; do sleep 0.01; done
	echo ready; exec sleep 1000 MARK`

// If any process of a run is killed (rootsfs, its watcher, bwrap, the init, the command),
// nothing of the run is left: no process, no mount and no directory. R070.
func TestKill(t *testing.T) {
	eachLevel(t, func(_ *testing.T, o *outside, level sandbox.Level) {
		for i := 0; o.killOne(level, i); i++ {
		}
	})
}

// stopping is a shell command that stops every process it can, and leaves a child behind
// in a session of its own.
const stopping = `setsid sleep 1000 MARK &
	for pid in $PPID 1 -$PPID -1; do kill -s STOP -- $pid 2>/dev/null; done
	echo ready; exec sleep 1000 MARK`

// A command cannot prevent its end. The command stops every process it can. Then rootsfs is killed,
// as a host kills a server that does not end. No process of the command is left. (If a command at
// level Landlock could stop its init, the init would end nothing.) R070.
func TestStopped(t *testing.T) {
	for _, w := range callers {
		o := newOutside(t, w)
		for _, level := range levels {
			t.Run(w.name+"/"+level.String(), func(t *testing.T) {
				o.t = t
				mark := fmt.Sprintf("0.%07d%d77", os.Getpid(), level) // unique to this run
				o.resetFiles()
				o.resetRoot()
				testkit.Must(t, os.WriteFile(filepath.Join(o.root, "stop"), []byte("#!/bin/sh\n"+strings.ReplaceAll(stopping, "MARK", mark)), 0o755))
				cmd := o.driver(o.command(run{level: level}, []string{"--mcp", "off"}, "stop"))
				cmd.Stderr = os.Stderr
				out, err := cmd.StdoutPipe()
				testkit.Must(t, err)
				testkit.Must(t, cmd.Start())
				defer time.AfterFunc(giveUp, func() { out.Close(); _ = cmd.Process.Kill() }).Stop() // if the test hangs
				if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
					_ = cmd.Process.Kill()
					t.Fatalf("the command said %q, %v", line, err)
				}
				testkit.Must(t, cmd.Process.Kill())
				_ = cmd.Wait()
				allGone := func() bool { return len(pidsWith(t, mark)) == 0 }
				t.Cleanup(func() {
					for _, pid := range pidsWith(t, mark) { // if the test has failed
						kill(t, pid)
					}
				})
				o.until("the end of the command's processes", allGone)
			})
		}
	}
}

// A run that is killed at any moment of its start ends, and leaves no mount and no process. A run
// that has no watcher yet may leave a directory, which the next run would remove. (The danger is a
// run that is killed while it has a file of its own mount open: such a run could hang.)
func TestKillAtStart(t *testing.T) {
	kills := 15
	if lab.Soak() {
		kills = 80
	}
	eachUser(t, func(t *testing.T, o *outside) {
		o.resetRoot()
		tag := fmt.Sprintf("at-start-%s-%d", o.caller.name, os.Getpid()) // unique to this run
		start := func(level sandbox.Level, command ...string) *exec.Cmd {
			args := o.rootsfs("run", "--name", sessionName, "--mcp", "off", "--root", "root="+o.root, "--env", "T="+tag, "--level", level.String(), "--")
			cmd := o.driver(order{Args: append(args, command...)})
			testkit.Must(t, cmd.Start())
			return cmd.Cmd
		}
		began := time.Now()
		testkit.Must(t, start(levels[0], "true").Wait())
		startupDuration := time.Since(began)
		var dirs []string
		for i := range kills {
			cmd := start(levels[i%len(levels)], "sleep", "1000", tag)
			time.Sleep(startupDuration * time.Duration(i) / time.Duration(kills))
			// A stopped process makes no directory while the test looks for one.
			testkit.Must(t, cmd.Process.Signal(unix.SIGSTOP))
			dir := runDir(t, cmd.Process.Pid)
			if dir != "" {
				dirs = append(dirs, dir)
			}
			testkit.Must(t, cmd.Process.Kill())
			ended := make(chan struct{})
			go func() { _ = cmd.Wait(); close(ended) }()
			select {
			case <-ended:
			case <-time.After(giveUp):
				_ = unix.Unmount(filepath.Join(dir, "tree", "mnt"), unix.MNT_FORCE)
				t.Fatalf("killed %v after its start, a run does not end", startupDuration*time.Duration(i)/time.Duration(kills))
			}
		}
		o.until("the end of processes", func() bool { return len(pidsWith(t, tag)) == 0 })
		for _, dir := range dirs {
			o.until("the end of mounts", func() bool { return !strings.Contains(hostMounts(t), dir) })
			testkit.Must(t, os.RemoveAll(dir))
			sandbox.RemoveControlGroup(strings.TrimPrefix(filepath.Base(dir), ".")) // as the next run would
		}
	})
}

// If rootsfs is killed as soon as its command runs, the run's other processes end at once. The
// test repeats this many times at each level, to find a race. (In a pid namespace the init ends by
// a parent-death signal. The kernel does not send the signal if the init drops capabilities after
// asking for it.) R070.
func TestKillOften(t *testing.T) {
	kills := 6
	if lab.Soak() {
		kills = 100
	}
	eachLevel(t, func(t *testing.T, o *outside, level sandbox.Level) {
		o.resetRoot()
		tag := fmt.Sprintf("0.%07d%04d%d55", os.Getpid(), o.caller.uid, level) // unique to this run
		var dirs []string
		for range kills {
			cmd := o.startReady(level, tag)
			dirs = append(dirs, runDir(t, cmd.Process.Pid))
			testkit.Must(t, cmd.Process.Kill())
			_ = cmd.Wait()
			o.until("the end of processes", func() bool { return len(pidsWith(t, tag)) == 0 })
		}
		for _, dir := range dirs {
			o.until("the end of directories", func() bool { return o.runDirGone(dir) })
		}
		o.until("the end of the session", func() bool { return absent(o.Session) })
	})
}

// If a run is killed together with its watcher, the next command removes its mount and
// directories. The cases run one after another, because another run would be that next command.
// R070.
func TestKillWithWatcher(t *testing.T) {
	for _, w := range callers {
		for _, level := range []sandbox.Level{sandbox.Namespaces, sandbox.Landlock} {
			t.Run(w.name+"/"+level.String(), func(t *testing.T) {
				o := newOutside(t, w)
				o.resetRoot()
				cmd := o.startReady(level, "1000")
				killed := false
				for _, pid := range children(t, cmd.Process.Pid) {
					if isWatcher(pid) {
						killed = true
						kill(t, pid)
					}
				}
				dir := runDir(t, cmd.Process.Pid)
				testkit.Must(t, cmd.Process.Kill())
				if !killed || dir == "" {
					t.Fatalf("a watcher was killed: %v; the directory of the run is %q", killed, dir)
				}
				_ = cmd.Wait()
				if absent(o.Session) {
					t.Fatal("the session is gone: the test shows nothing")
				}
				old := time.Now().Add(-time.Hour) // a new directory may belong to a run that is starting
				testkit.Must(t, os.Chtimes(dir, old, old))
				o.until("the end of what the run left", func() bool {
					_ = o.driver(order{Args: o.rootsfs("doctor")}).Run() // the exit code depends on the machine
					return absent(o.Session) && o.runDirGone(dir)
				})
			})
		}
	}
}

// runDirGone reports whether the directory of a run and the mounts in it are gone.
func (o *outside) runDirGone(dir string) bool {
	return absent(dir) && !strings.Contains(hostMounts(o.t), dir)
}

// startReady starts a run and waits until its command runs.
func (o *outside) startReady(level sandbox.Level, tag string) *exec.Cmd {
	t := o.t
	t.Helper()
	args := o.rootsfs("run", "--name", sessionName, "--mcp", "off", "--root", "root="+o.root, "--level", level.String())
	cmd := o.driver(order{Args: append(args, "--", "sh", "-c", "echo ready; exec sleep 1000 "+tag)})
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		_ = cmd.Process.Kill()
		t.Fatalf("the command said %q, %v", line, err)
	}
	return cmd.Cmd
}

// killOne starts a run, kills its process with the given index in runProcesses, and checks that
// nothing is left. It returns false if the run has no process with that index.
func (o *outside) killOne(level sandbox.Level, index int) bool {
	t := o.t
	t.Helper()
	mark := fmt.Sprintf("0.%07d%04d%d%02d", os.Getpid(), o.caller.uid, level, index) // unique to this run
	tag := fmt.Sprintf("is-%s-%d-%d-%d", o.caller.name, os.Getpid(), level, index)
	o.resetFiles()
	o.resetRoot()
	testkit.Must(t, os.WriteFile(filepath.Join(o.root, "linger"), []byte("#!/bin/sh\n"+strings.ReplaceAll(lingering, "MARK", mark)), 0o755))
	testkit.Must(t, os.Chmod(filepath.Join(o.root, "linger"), 0o755))
	cmd := o.driver(o.command(run{level: level}, []string{"--mcp", "off", "--pids-max", "1000"}, "linger", tag))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	defer time.AfterFunc(giveUp, func() { out.Close(); _ = cmd.Process.Kill() }).Stop() // if the test hangs
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "ready\n" {
		_ = cmd.Process.Kill()
		t.Fatalf("the command said %q, %v", line, err)
	}
	// The shell prints ready before it executes sleep, so the process may still be the shell.
	o.until("the command's start", func() bool { return len(pidsWith(t, "/bin/sh\x00./linger\x00"+tag+"\x00")) == 0 })
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // if the test has failed
	var pids []int
	watcher, dir := false, ""
	o.until("the run's processes", func() bool {
		pids, watcher, dir = runProcesses(t, cmd.Process.Pid, mark), false, "" // without processes dir stays ""
		for i, pid := range pids {
			// Only the last process may be the command. If an earlier process has the mark, or
			// has no command line because it is in an execve, the shell is still starting the
			// command.
			if line := cmdline(pid); i < len(pids)-1 && (line == "" || strings.Contains(line, mark)) {
				return false
			}
			if isWatcher(pid) {
				dir = runDir(t, cmd.Process.Pid)
				watcher = watcher || i == index
			}
		}
		return dir != ""
	})
	group := groupOf(pids[len(pids)-1])
	more := index < len(pids)
	if more {
		kill(t, pids[index])
	}
	if !more || watcher { // the command does not end when its watcher does
		testkit.Must(t, cmd.Process.Signal(unix.SIGTERM))
	}
	if _, err := io.Copy(io.Discard, lines); err != nil { // until no process has the output open
		t.Errorf("%s, process %d of %v killed: a process has the run's output open after %v", level, index, pids, giveUp)
	}
	_ = cmd.Wait() // the exit code does not matter here
	what := fmt.Sprintf("%s, process %d of %v killed", level, index, pids)
	o.until(what+": the end of processes", func() bool { return len(pidsWith(t, mark)) == 0 })
	o.until(what+": the end of the run's directory", func() bool { return o.runDirGone(dir) })
	o.until(what+": the end of the session's directory", func() bool { return absent(o.Session) })
	if group == "" && os.Getuid() == 0 && o.caller.uid == 0 && memoryControlled() {
		t.Errorf("%s: the command's memory was not limited", what)
	}
	if group != "" {
		o.until(what+": the end of the control group", func() bool { return !strings.Contains(groups(t), group) })
	}
	return more
}

// groupOf returns the name of the control group that a run has made for a process, "" if it has
// made none.
func groupOf(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return runGroup.FindString(string(b))
}

var runGroup = regexp.MustCompile(`rootsfs-run-[a-z0-9]+`)

// memoryControlled reports whether this machine can limit memory by control groups. In a bare
// container, no controller is mounted.
func memoryControlled() bool {
	if _, err := os.Stat("/sys/fs/cgroup/memory/memory.limit_in_bytes"); err == nil {
		return true // version 1
	}
	controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	return err == nil && slices.Contains(strings.Fields(string(controllers)), "memory")
}

// groups returns the paths of all control groups, one on a line.
func groups(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all.WriteString(path + "\n")
		}
		return nil // groups vanish while the test walks
	})
	testkit.Must(t, err)
	return all.String()
}

func absent(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// runProcesses returns the processes of a run, rootsfs first and the command last. It returns
// none if it does not see the command: in an execve a process has no command line, and lists
// of children are not exact while processes come and go (proc(5)).
func runProcesses(t *testing.T, pid int, mark string) []int {
	t.Helper()
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		for _, child := range children(t, all[i]) {
			if strings.Contains(cmdline(child), mark) {
				return append(all, child)
			}
			all = append(all, child)
		}
	}
	return nil
}

// isWatcher reports whether a process is a run's watcher.
func isWatcher(pid int) bool { return strings.Contains(cmdline(pid), "\x00cleanup\x00run\x00") }

// runDir returns the directory of a run, "" if the run has none yet. The run keeps the
// directory open, because it holds a lock on the directory.
func runDir(t *testing.T, pid int) string {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	testkit.Must(t, err)
	for _, fd := range fds {
		if dir, _ := os.Readlink(fd); strings.HasPrefix(filepath.Base(dir), ".rootsfs-run-") {
			return dir
		}
	}
	return ""
}

// children returns the processes that a process has started.
func children(t *testing.T, pid int) (all []int) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	testkit.Must(t, err)
	for _, l := range lists {
		b, err := os.ReadFile(l)
		if err != nil {
			continue // the thread has ended
		}
		for _, f := range strings.Fields(string(b)) {
			child, err := strconv.Atoi(f)
			testkit.Must(t, err)
			all = append(all, child)
		}
	}
	return all
}

func cmdline(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return "" // the process has ended
	}
	return string(b)
}

// until is testkit.Until. It also names the processes of rootsfs if the state is not reached.
func (o *outside) until(state string, reached func() bool) {
	t := o.t
	t.Helper()
	if !testkit.Eventually(reached) {
		t.Fatalf("never reached: %s; processes of rootsfs are %q", state, processes(t))
	}
}

// processes describes the processes of rootsfs and of its tests' programs.
func processes(t *testing.T) (all []string) {
	t.Helper()
	for _, pid := range slices.Concat(pidsWith(t, "rootsfs"), pidsWith(t, "linger")) {
		all = append(all, fmt.Sprintf("%d: %s", pid, strings.ReplaceAll(cmdline(pid), "\x00", " ")))
	}
	return all
}

// hostMounts returns the mounts that the host sees.
func hostMounts(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	testkit.Must(t, err)
	return string(b)
}
