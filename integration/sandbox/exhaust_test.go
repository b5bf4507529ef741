package sandbox

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// hogger is the user whose programs use up resources (the hogs). No other program runs as this
// user, so the hogs take nothing from other programs.
var hogger = caller{name: "a user of its own", uid: 61917}

// resources are the resources that a program can use up; see hostile/exhaust.go. For another one,
// epoll watches, see TestRevokeWhileEpollIsExhausted.
var resources = []string{"processes", "descriptors", "inotify", "terminals", "pipes", "signals", "locks", "inflight", "keys", "memory"}

// bounded has the resources of which a confined program gets less than the user has, and the
// largest numbers that the hogs of a confined program may report. The hog of keys gets none, and
// reports 1: it counts the refused call.
var bounded = map[string]int{"processes": pidsMax, "inotify": 32, "terminals": 256, "signals": 4096, "keys": 1, "descriptors": 16384}

// revokeWithin is the longest time that revoke --all may take, with room for a loaded machine.
const revokeWithin = 10 * time.Second

// startOrder starts the command of an order, and returns the first line of the command's output.
// The command's processes are killed when the test ends.
func (o *outside) startOrder(ord order) (*exec.Cmd, string) {
	o.t.Helper()
	cmd, nextLine := o.startLines(ord)
	return cmd, nextLine()
}

// startLines is startOrder, but it returns a function that reads the next line of the output.
func (o *outside) startLines(ord order) (_ *exec.Cmd, nextLine func() string) {
	t := o.t
	t.Helper()
	cmd := o.driver(ord)
	var output bytes.Buffer
	cmd.Stderr = &output
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // the command leads a session and process group of its own
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(out)
	return cmd.Cmd, func() string {
		t.Helper()
		defer time.AfterFunc(giveUp, func() { _ = cmd.Process.Kill() }).Stop()
		line, err := lines.ReadString('\n')
		if err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			t.Fatalf("the command said %q, then %v\n%s", line, err, output.String())
		}
		return line
	}
}

// newHogged is newOutside for hogger. The test ends when that user's processes have ended,
// because the next test would lack the resources that they hold.
func newHogged(t *testing.T) *outside {
	t.Helper()
	o := newOutside(t, hogger)
	t.Cleanup(func() {
		o.until("the end of the user's processes", func() bool {
			all, err := filepath.Glob("/proc/[0-9]*/status")
			testkit.Must(t, err)
			return !slices.ContainsFunc(all, func(status string) bool {
				text, _ := os.ReadFile(status) // an error means that the process has ended
				return bytes.Contains(text, fmt.Appendf(nil, "\nUid:\t%d\t", hogger.uid)) && !bytes.Contains(text, []byte("\nState:\tZ"))
			})
		})
	})
	return o
}

// hog returns the command line that makes the hostile program use up a resource.
func hog(resource string) []string { return []string{"hostile", "-exhaust", resource} }

// The owner's revoke --all, status and version work while the confined program has used up a
// resource. (Some hogs stop before the kernel refuses more; see hogs in hostile/exhaust.go.)
func TestRevokeWhileConfinedExhausts(t *testing.T) {
	needRoot(t)
	for _, resource := range resources {
		t.Run(resource, func(t *testing.T) {
			o := newHogged(t)
			o.resetFiles()
			o.resetRoot()
			_, line := o.startOrder(o.command(run{level: sandbox.Namespaces}, []string{"--mcp", "off"}, hog(resource)...))
			held := heldAmount(t, line)
			if most, ok := bounded[resource]; ok && held > most {
				t.Errorf("the program holds %d, more than the %d that confined programs get", held, most)
			}
			o.mustRevoke()
		})
	}
}

// The owner's commands work at the other levels, too, while the confined program has used up a
// resource that the kernel counts for each user, across all namespaces.
func TestRevokeWhileWeaklyConfinedExhausts(t *testing.T) {
	needRoot(t)
	for _, level := range []sandbox.Level{sandbox.Bubblewrap, sandbox.Landlock} {
		for _, resource := range []string{"inotify", "inflight"} {
			t.Run(level.String()+"/"+resource, func(t *testing.T) {
				o := newHogged(t)
				o.resetFiles()
				o.resetRoot()
				_, line := o.startOrder(o.command(run{level: level}, []string{"--mcp", "off"}, hog(resource)...))
				if heldAmount(t, line) == 0 {
					t.Errorf("nothing was used up: %s", line)
				}
				o.mustRevoke()
			})
		}
	}
}

// The owner's commands work in a session at each level while all epoll watches of the user are used
// up. The confined programs and an unconfined one do this at the same time, and each takes a part:
// the kernel has one count for the user, across all namespaces, and millions of watches take as
// many calls.
func TestRevokeWhileEpollIsExhausted(t *testing.T) {
	needRoot(t)
	type hogging struct {
		*outside
		who      string
		nextLine func() string
	}
	var all []hogging
	for _, level := range levels {
		all = append(all, hogging{outside: newHogged(t), who: level.String()})
	}
	const later = "#!/bin/sh\necho ready\nuntil test -e go; do sleep 0.1; done\nexec ./hostile -exhaust epoll\n"
	for i, level := range levels {
		o := &all[i]
		testkit.Must(t, os.WriteFile(filepath.Join(o.root, "later"), []byte(later), 0o755))
		_, o.nextLine = o.startLines(o.command(run{level: level}, []string{"--mcp", "off"}, "later"))
		if line := o.nextLine(); line != "ready\n" {
			t.Fatalf("%s: the command said %q", o.who, line)
		}
	}
	for _, o := range all {
		testkit.Must(t, os.WriteFile(filepath.Join(o.root, "go"), nil, 0o644))
	}
	owner := hogging{outside: all[0].outside, who: "unconfined"}
	_, owner.nextLine = owner.startLines(order{Args: append([]string{owner.root + "/hostile"}, hog("epoll")[1:]...), Env: owner.env})
	for _, o := range append([]hogging{owner}, all...) {
		if line := o.nextLine(); heldAmount(t, line) == 0 {
			t.Errorf("%s: nothing was used up: %s", o.who, line)
		}
	}
	for _, o := range all {
		o.mustRevoke()
	}
}

// Epoll watches are kernel memory that --memory-max counts: a program is ended before it has
// all the watches that its uid may have.
func TestMemoryMaxBoundsEpollWatches(t *testing.T) {
	needRoot(t)
	o := newOutside(t, callers[0]) // root, who can make a control group
	o.resetFiles()
	o.resetRoot()
	cmd := o.driver(o.command(run{level: sandbox.Namespaces}, []string{"--mcp", "off", "--memory-max", "128M"}, hog("epoll")...))
	var output bytes.Buffer
	cmd.Stderr = &output
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	defer time.AfterFunc(giveUp, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }).Stop()
	line, _ := bufio.NewReader(out).ReadString('\n')
	if line != "" { // the program runs on, and keeps its resources
		testkit.Must(t, unix.Kill(cmd.Process.Pid, unix.SIGTERM))
	}
	err = cmd.Wait()
	switch {
	case strings.Contains(output.String(), "no control group can be made here"):
		t.Logf("this machine gives no control group: %s", line)
	case line != "" || err == nil || !strings.Contains(output.String(), "--memory-max) was reached: the kernel ended"):
		t.Errorf("the program said %q; %v: %s", line, err, output.String())
	}
}

// If an unconfined program of the owner has used up the processes that the owner may have, no
// command can be started. SIGUSR1, which a shell's built-in kill can send, still revokes every
// root. If the Go runtime of the session needs a thread and gets none, the session ends instead,
// and so does the session's command.
func TestRevokeWithoutProcesses(t *testing.T) {
	needRoot(t)
	o := newHogged(t)
	o.resetFiles()
	o.resetRoot()
	few := []string{"/usr/bin/prlimit", "--nproc=200:200"}
	confined := o.command(run{level: sandbox.Namespaces}, []string{"--mcp", "off"}, hog("keys")...)
	confined.Args = append(slices.Clone(few), confined.Args...)
	o.startOrder(confined)
	_, line := o.startOrder(order{Args: append(append(few, o.root+"/hostile"), hog("processes")[1:]...), Env: o.env, UID: hogger.uid})
	if heldAmount(t, line) < 100 {
		t.Fatalf("few processes were made: %s", line)
	}
	text, err := os.ReadFile(filepath.Join(o.Session, "pid"))
	testkit.Must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	testkit.Must(t, err)
	testkit.Must(t, unix.Kill(pid, unix.SIGUSR1))
	o.until("the end of the root", func() bool {
		output, err := os.ReadFile(filepath.Join(o.Session, "revoked.json"))
		return err == nil && strings.Contains(string(output), `"root": "root"`) || len(pidsWith(t, "-exhaust\x00keys")) == 0
	})
}

// The owner's commands work while an unconfined program of the owner has used up a resource. (For
// processes see TestRevokeWithoutProcesses.)
func TestRevokeWhileOwnerExhausts(t *testing.T) {
	needRoot(t)
	for _, resource := range resources[1:] {
		t.Run(resource, func(t *testing.T) {
			o := newHogged(t)
			o.resetFiles()
			o.resetRoot()
			o.startOrder(o.command(run{level: sandbox.Namespaces}, []string{"--mcp", "off"}, hog("keys")...))
			_, line := o.startOrder(order{Args: append([]string{o.root + "/hostile"}, hog(resource)[1:]...), Env: o.env})
			if heldAmount(t, line) == 0 {
				t.Errorf("nothing was used up: %s", line)
			}
			o.mustRevoke()
		})
	}
}

// heldAmount returns the amount that a hog reports to hold.
func heldAmount(t *testing.T, line string) (n int) {
	t.Helper()
	t.Log(strings.TrimSpace(line))
	_, err := fmt.Sscanf(line, "holds %d:", &n)
	testkit.Must(t, err)
	return n
}

// mustRevoke fails the test unless version, status and revoke --all work for the owner, and
// revoke --all takes at most revokeWithin.
func (o *outside) mustRevoke() {
	t := o.t
	t.Helper()
	for _, args := range [][]string{{"version"}, {"status", "--session", sessionName}, {"revoke", "--all", "--session", sessionName}} {
		begun := time.Now()
		out, err := o.ownerCommand(args...).CombinedOutput()
		took := time.Since(begun)
		if err != nil {
			t.Errorf("%v: %v\n%s", args, err, out[:min(len(out), 2000)])
			continue
		}
		t.Logf("%v took %v", args, took.Round(time.Millisecond))
		if args[0] == "revoke" && (!strings.Contains(string(out), "root: revoked") || took > revokeWithin) {
			t.Errorf("revoke took %v and said %q", took, out)
		}
	}
}

// A confined command's memory has a default limit. The owner can change the limit and switch it
// off.
func TestMemoryIsLimitedByDefault(t *testing.T) {
	needRoot(t)
	for _, level := range levels {
		o := newOutside(t, callers[0])
		o.resetFiles()
		o.resetRoot()
		for flags, want := range map[string]int64{"": sandbox.DefaultMemory(), "--memory-max=none": 0, "--memory-max=1G": 1 << 30} {
			args := o.rootsfs("run", "--name", sessionName, "--mcp", "off", "--level", level.String(), "--root", "root="+o.root)
			if flags != "" {
				args = append(args, flags)
			}
			long := fmt.Sprintf("1000.%d", os.Getpid()) // used by no one else
			cmd := o.driver(order{Args: append(args, "--", "sleep", long)})
			testkit.Must(t, cmd.Start())
			group := ""
			o.until("the command's start", func() bool {
				for _, pid := range pidsWith(t, long) {
					if cmdline(pid) == "sleep\x00"+long+"\x00" {
						group = groupOf(pid)
						return true
					}
				}
				return false
			})
			if !memoryControlled() {
				want = 0
			}
			if got := limitOf(t, group); got != want && got != want&^4095 { // in whole pages
				t.Errorf("%s %s: the group %q has a limit of %d bytes, want %d", level, flags, group, got, want)
			}
			testkit.Must(t, cmd.Process.Signal(unix.SIGTERM))
			_ = cmd.Wait()
			o.until("the end of the control group", func() bool { return group == "" || !strings.Contains(groups(t), group) })
		}
	}
}

// limitOf returns the memory limit of a control group in bytes, or 0 if there is no such group.
func limitOf(t *testing.T, group string) (limit int64) {
	t.Helper()
	for dir := range strings.Lines(groups(t)) {
		dir = strings.TrimSpace(dir)
		if group == "" || filepath.Base(dir) != group {
			continue
		}
		for _, name := range []string{"memory.max", "memory.limit_in_bytes"} {
			if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				limit, err = strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
				testkit.Must(t, err)
			}
		}
	}
	return limit
}
