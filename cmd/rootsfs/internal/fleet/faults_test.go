package fleet

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

// newNet makes a network namespace that reaches the others of the fleet over a bridge.
func (f *realFleet) newNet(name string) string {
	f.Helper()
	hub, net, n := f.hub(), fmt.Sprintf("rfs%d-%s", os.Getpid(), name), len(f.nets)+1
	f.ip("netns", "add", net)
	f.Cleanup(func() { f.ip("netns", "del", net) })
	f.ip("-n", net, "link", "add", "eth0", "type", "veth", "peer", "name", name, "netns", hub)
	f.ip("-n", hub, "link", "set", name, "master", "br0", "up")
	f.ip("-n", net, "addr", "add", fmt.Sprintf("10.77.0.%d/24", n), "dev", "eth0")
	f.ip("-n", net, "link", "set", "eth0", "up")
	f.ip("-n", net, "link", "set", "lo", "up")
	return net
}

// hub returns the namespace of the bridge. It makes the namespace for the first party of the fleet.
func (f *realFleet) hub() string {
	hub := fmt.Sprintf("rfs%d-hub", os.Getpid())
	if len(f.nets) == 0 {
		f.ip("netns", "add", hub)
		f.Cleanup(func() { f.ip("netns", "del", hub) })
		f.ip("-n", hub, "link", "add", "br0", "type", "bridge")
		f.ip("-n", hub, "link", "set", "br0", "up")
	}
	return hub
}

func (f *realFleet) ip(args ...string) {
	f.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		f.Fatalf("ip %v: %v\n%s", args, err, out)
	}
}

// cut takes down the network between a party and the others if off is set, and puts it up again
// otherwise. Neither side is told.
func (f *realFleet) cut(home string, off bool) {
	to := "up"
	if off {
		to = "down"
	}
	name := f.nets[home]
	f.ip("-n", fmt.Sprintf("rfs%d-hub", os.Getpid()), "link", "set", name[strings.LastIndexByte(name, '-')+1:], to)
}

// uptimes has the machines with clocks of their own. 0: the machine has just been booted; any other
// value: how much longer than the test's machine it has been up.
var uptimes = map[string]time.Duration{"m1": 0, "m2": 10 * 365 * 24 * time.Hour}

// newClock makes a time namespace for a machine of uptimes. CLOCK_BOOTTIME and CLOCK_MONOTONIC have an
// offset in the namespace. newClock returns the file by which programs enter the namespace; "": the
// machine shares the clock of the test's machine.
func (f *realFleet) newClock(name string) string {
	f.Helper()
	want, has := uptimes[name]
	if _, err := os.Stat("/proc/self/ns/time"); err != nil || !has {
		return ""
	}
	own, err := control.BootTime()
	f.must(err)
	if want > 0 {
		want += own
	}
	offset := fmt.Sprint(int64((want - own) / time.Second))
	holder := exec.Command("unshare", "--time", "--boottime", offset, "--monotonic", offset, "sleep", "infinity")
	holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	f.must(holder.Start())
	f.Cleanup(func() { stop(holder) })
	file := fmt.Sprintf("/proc/%d/ns/time_for_children", holder.Process.Pid)
	before, err := os.Readlink("/proc/self/ns/time")
	f.must(err)
	f.until("the clock of "+name, patience, func() bool { now, err := os.Readlink(file); return err == nil && now != before })
	return file
}

// wallClock sets the wall clock of the test's machine, which all machines of the fleet share.
type wallClock struct{ begun time.Time }

// newWallClock returns nil if the test may not set the clock. ROOTSFS_SET_CLOCK=1 says that the test may
// set it, because nothing else runs on this (virtual) machine.
func (f *realFleet) newWallClock() *wallClock {
	if os.Getenv("ROOTSFS_SET_CLOCK") == "" {
		return nil
	}
	c := &wallClock{time.Now()}
	f.Cleanup(func() { f.must(c.set(0)) })
	return c
}

// set sets the clock to the right time plus ahead.
func (c *wallClock) set(ahead time.Duration) error {
	right := c.begun.Round(0).Add(time.Since(c.begun)) // by CLOCK_MONOTONIC
	ts := unix.NsecToTimespec(right.Add(ahead).UnixNano())
	return unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
}

// fault is something that can fail, and its repair. fail and repair may be called in any order.
type fault struct {
	name         string
	fail, repair func()
}

// netServer is a server in a network namespace of its own.
type netServer struct {
	f    *realFleet
	dir  ServerDir
	host string
	cmd  *exec.Cmd
}

func (s *netServer) start() {
	s.f.Helper()
	s.cmd, _ = s.f.start(string(s.dir), "fleet", "serve", "--dir", string(s.dir), "--listen", s.host+":4222")
}

// newServer makes a network namespace for the server of a directory.
func (f *realFleet) newServer(dir ServerDir, name string) *netServer {
	s := &netServer{f: f, dir: dir, host: fmt.Sprintf("10.77.0.%d", len(f.nets)+1)}
	f.nets[string(dir)] = f.newNet(name)
	return s
}

// faults returns the faults of the servers and the machines.
func faults(f *realFleet, servers []*netServer, all []*probedMachine) (list []fault) {
	for _, s := range servers {
		list = append(list,
			fault{"stop the server " + s.host, func() { _ = s.cmd.Process.Signal(syscall.SIGSTOP) }, func() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }},
			fault{"kill the server " + s.host, func() { stop(s.cmd) }, func() {
				if s.cmd.ProcessState != nil {
					s.start()
				}
			}},
			fault{"cut off the server " + s.host, func() { f.cut(string(s.dir), true) }, func() { f.cut(string(s.dir), false) }})
	}
	for _, w := range all {
		list = append(list,
			fault{"cut off " + w.name, func() { f.cut(w.home, true) }, func() { f.cut(w.home, false) }},
			fault{"stop the agent of " + w.name, func() { _ = w.agent.Process.Signal(syscall.SIGSTOP) }, func() { _ = w.agent.Process.Signal(syscall.SIGCONT) }},
			fault{"kill the agent of " + w.name, func() { stop(w.agent) }, func() {
				if w.agent.ProcessState != nil {
					w.startAgent()
				}
			}})
	}
	return list
}
