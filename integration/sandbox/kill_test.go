package sandbox

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// lingering is a command that leaves as much behind as it can: children that it
// does not wait for, one of them in a session of its own, and one that has lost
// its parent.
const lingering = `sleep 1000 MARK & setsid sleep 1000 MARK & (setsid sh -c 'trap "" TERM HUP INT; sleep 1000 MARK & sleep 1000 MARK' &)
	while [ "$(grep -l MARK /proc/[0-9]*/cmdline 2>/dev/null | wc -l)" -lt 5 ]; do sleep 0.01; done
	echo ready; exec sleep 1000 MARK`

// chain returns a process and its only children, from parent to child, up to
// the one whose command line has the mark, which is the command.
func chain(t *testing.T, pid int, mark string) []int {
	t.Helper()
	all := []int{pid}
	for range 8 {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		must(t, err)
		if strings.Contains(string(b), mark) {
			return all
		}
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		must(t, err)
		next := 0
		for _, l := range lists {
			b, err := os.ReadFile(l)
			must(t, err)
			if f := strings.Fields(string(b)); len(f) > 0 {
				_, err := fmt.Sscan(f[0], &next)
				must(t, err)
				break
			}
		}
		if next == 0 {
			break
		}
		pid = next
		all = append(all, pid)
	}
	t.Fatalf("no process below %v has %s", all, mark)
	return nil
}

// Whichever process of a confined command is killed, nothing of it is left: no
// process, no mount, no file. R070.
func TestKill(t *testing.T) {
	for _, w := range everybody {
		for _, level := range []sandbox.Level{sandbox.Namespaces, sandbox.Bubblewrap, sandbox.Landlock} {
			t.Run(w.name+"/"+level.String(), func(t *testing.T) {
				o := newOutside(t, w)
				for i := 0; ; i++ {
					if !o.killOne(level, i) {
						break
					}
				}
			})
		}
	}
}

// killOne starts the command, kills the process at an index of its chain (the
// caller of Start, perhaps bwrap, the init, the command), and looks for what is
// left. It reports false if the chain is not that long.
func (o *outside) killOne(level sandbox.Level, index int) bool {
	t := o.t
	t.Helper()
	mark := fmt.Sprintf("0.%d%d%d", os.Getpid(), level, index)
	mounts := hostMounts(t)
	o.files()
	o.plant()
	raw, err := json.Marshal(order{Options: o.options(level, "sh", "-c", strings.ReplaceAll(lingering, "MARK", mark))})
	must(t, err)
	cmd := exec.Command(filepath.Join(built(t), "driver"))
	cmd.Env = []string{driverVar + "=" + string(raw), "PATH=" + os.Getenv("PATH")}
	cmd.Stderr = os.Stderr
	if o.who.uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(o.who.uid), Gid: uint32(o.who.uid)}}
	}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		_ = cmd.Process.Kill()
		t.Fatalf("the command said %q, %v", line, err)
	}
	pids := chain(t, cmd.Process.Pid, mark)
	more := index < len(pids)
	if more {
		kill(t, pids[index])
	} else {
		must(t, cmd.Process.Signal(unix.SIGTERM)) // the driver answers with Kill
	}
	_ = cmd.Wait() // with what code does not matter here
	deadline := time.Now().Add(giveUp)
	for left := holding(t, mark); len(left) > 0; left = holding(t, mark) {
		if time.Now().After(deadline) {
			for _, pid := range left {
				kill(t, pid)
			}
			t.Fatalf("%s, process %d of %v killed: %v are left", level, index, pids, left)
		}
		time.Sleep(time.Millisecond)
	}
	if now := hostMounts(t); !slices.Equal(now, mounts) {
		t.Errorf("%s, process %d killed: mounts were\n%q\nand are\n%q", level, index, mounts, now)
	}
	return more
}

// hostMounts are those of this test's directories that the host sees.
func hostMounts(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	var all []string
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, "rootsfs-outside-") {
			all = append(all, line)
		}
	}
	return all
}
