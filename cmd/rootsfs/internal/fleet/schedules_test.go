package fleet

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// hub returns the namespace of the bridge.
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

// cut ends what passes between a party and the others, without a word to either.
func (f *realFleet) cut(home string, off bool) {
	to := "up"
	if off {
		to = "down"
	}
	name := f.nets[home]
	f.ip("-n", fmt.Sprintf("rfs%d-hub", os.Getpid()), "link", "set", name[strings.LastIndexByte(name, '-')+1:], to)
}

// watched is a machine with a process that accesses its file all the time.
type watched struct {
	*realMachine
	mu   sync.Mutex
	seen []access // since forget
}

type access struct {
	kind  string
	began int64
}

func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // it is there
	return ts.Nano()
}

// watch starts the process.
func watch(m *realMachine) *watched {
	w := &watched{realMachine: m}
	cmd := m.f.command(m.home, "fleet-probe", m.file)
	out, err := cmd.StdoutPipe()
	m.f.must(err)
	m.f.must(cmd.Start())
	m.f.Cleanup(func() { stop(cmd) })
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			kind, began, _ := strings.Cut(lines.Text(), " ")
			ns, err := strconv.ParseInt(began, 10, 64)
			if err != nil {
				panic(lines.Text())
			}
			w.mu.Lock()
			w.seen = append(w.seen, access{kind, ns})
			w.mu.Unlock()
		}
	}()
	return w
}

// since returns which kinds of accesses succeeded that began in a time.
func (w *watched) since(from, to int64) map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	kinds := map[string]int{}
	for _, a := range w.seen {
		if a.began >= from && a.began < to {
			kinds[a.kind]++
		}
	}
	return kinds
}

// forget begins anew.
func (w *watched) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = nil
}

// fault is something that fails, and its repair. Both may be called in any order.
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

// newServer makes the namespace of the server of a directory.
func (f *realFleet) newServer(dir ServerDir, name string) *netServer {
	s := &netServer{f: f, dir: dir, host: fmt.Sprintf("10.77.0.%d", len(f.nets)+1)}
	f.nets[string(dir)] = f.newNet(name)
	return s
}

// faults returns what can fail.
func faults(f *realFleet, servers []*netServer, all []*watched) (list []fault) {
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

// TestSchedules shows the promises of a fleet under faults. In every schedule, random partitions, kills and
// stops of servers and agents surround an order. No access begins that succeeds, once the machine
// has answered; nor after the confirmation, the lease and a second, where it has not. When all is
// repaired, every machine works again, and each answer is on record there.
//
// ROOTSFS_SOAK=1 runs it; ROOTSFS_SEED repeats a run from the schedule with that seed on.
func TestSchedules(t *testing.T) {
	schedules := 100
	if os.Getenv("ROOTSFS_SOAK") == "" {
		t.Skip("ROOTSFS_SOAK=1 runs it")
	}
	seed := uint64(time.Now().UnixNano())
	for name, number := range map[string]func(uint64){"ROOTSFS_SCHEDULES": func(n uint64) { schedules = int(n) }, "ROOTSFS_SEED": func(n uint64) { seed = n }} {
		if text := os.Getenv(name); text != "" {
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			number(n)
		}
	}
	for _, keepers := range []int{1, 3} {
		t.Run(fmt.Sprint(keepers), func(t *testing.T) {
			f, servers, all := newNetworkedFleet(t, keepers)
			told := map[string][]uint64{} // the numbers of orders that machines have answered
			count := map[string]int{}
			for i := range schedules {
				s := &schedule{realFleet: f, servers: servers, all: all, r: rand.New(rand.NewPCG(seed+uint64(i), 0)), told: told, count: count}
				s.run()
				if t.Failed() {
					t.Fatalf("the schedule with ROOTSFS_SEED=%d: %s", seed+uint64(i), strings.Join(s.log, "; "))
				}
			}
			t.Logf("schedules from ROOTSFS_SEED=%d: %v", seed, count)
			for _, w := range all {
				checkRecords(w, told[w.name])
			}
		})
	}
}

// newNetworkedFleet is newRealFleet with keepers and machines in network namespaces.
func newNetworkedFleet(t *testing.T, keepers int) (*realFleet, []*netServer, []*watched) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	for _, tool := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs ", tool)
		}
	}
	f := &realFleet{T: t, home: t.TempDir(), dir: ServerDir(filepath.Join(t.TempDir(), "server")), nets: map[string]string{}}
	servers := []*netServer{f.newServer(f.dir, "server1")}
	f.nets[f.home] = f.newNet("owner")
	f.asUser(f.home)
	_, err := Create(f.dir, Plan{Name: "acme", Server: servers[0].host + ":4222", Lease: realLease})
	f.must(err)
	dir, err := StateDir("owner")
	f.must(err)
	o := &Owner{}
	f.must(readJSON(ownerDir(dir).fleet(), &o.info))
	o.Names = Names{o.info.ID}
	info := o.info
	info.Dir = "" // the servers are on other machines
	f.must(writeJSON(ownerDir(dir).fleet(), info))
	servers[0].start()
	for len(servers) < keepers {
		dir := ServerDir(filepath.Join(t.TempDir(), "server"))
		f.must(o.makeKeeper(dir, "4222"))
		s := f.newServer(dir, fmt.Sprintf("server%d", len(servers)+1))
		s.start()
		servers = append(servers, s)
		if out, code := f.run(f.home, "fleet", "keeper", "add", string(dir), "--server", s.host+":4222"); code != 0 || !strings.Contains(out, "is one of acme") {
			t.Fatal(out)
		}
	}
	var all []*watched
	for _, name := range []string{"m1", "m2", "m3"} {
		all = append(all, watch(f.newMachine(name)))
	}
	return f, servers, all
}

// schedule is one run of faults around an order.
type schedule struct {
	*realFleet
	servers []*netServer
	all     []*watched
	r       *rand.Rand
	log     []string
	told    map[string][]uint64
	count   map[string]int
}

// pause waits for a random time.
func (s *schedule) pause(most time.Duration) { time.Sleep(time.Duration(s.r.Int64N(int64(most)))) }

func (s *schedule) run() {
	list := faults(s.realFleet, s.servers, s.all)
	s.r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	failing := list[:s.r.IntN(4)]
	before := s.r.IntN(len(failing) + 1)
	for _, x := range failing[:before] {
		s.log = append(s.log, x.name)
		x.fail()
		s.pause(realLease / 2)
	}
	order := []string{"fleet", "lock", "drill", "--wait", "400ms", "--json"}
	if s.r.IntN(3) == 0 {
		order = []string{"fleet", "revoke", "--all", "--wait", "400ms", "--json"}
	}
	s.log = append(s.log, strings.Join(order[1:3], " "))
	out := s.give(order)
	done := now()
	for _, x := range failing[before:] {
		s.log = append(s.log, x.name)
		x.fail()
		s.pause(realLease / 2)
	}
	if s.r.IntN(2) == 0 && len(failing) > 0 { // something is back while the rest is not
		s.log = append(s.log, "undo "+failing[0].name)
		failing[0].repair()
	}
	s.judge(out, done, order[1] == "lock")
	for _, x := range failing {
		x.repair()
	}
	s.heal(order[1] == "lock")
}

// give executes an owner's command. It returns the outcome of the order; nil: the owner knows of none.
func (s *schedule) give(order []string) *Outcome {
	cmd := s.command(s.home, order...)
	data, _ := cmd.Output() // its exit code says who has not answered
	var out Outcome
	if json.Unmarshal(data, &out) != nil || len(out.Machines) == 0 {
		s.count["order failed"]++
		return nil
	}
	return &out
}

// judge holds what machines did against the outcome.
func (s *schedule) judge(out *Outcome, done int64, locked bool) {
	if out == nil {
		return
	}
	end := done + int64(200*time.Millisecond)
	dead := map[string]int64{}
	for _, m := range out.Machines {
		dead[m.Name] = done
		switch {
		case m.State == OrderNoAnswer:
			dead[m.Name] = done + int64(realLease+leaseSlack)
			end = max(end, dead[m.Name]+int64(200*time.Millisecond))
			s.count["no answer"]++
		default:
			s.told[m.Name] = append(s.told[m.Name], m.Number)
			s.count["answered"]++
		}
	}
	time.Sleep(time.Duration(end - now()))
	for _, w := range s.all {
		if kinds := w.since(dead[w.name], end); len(kinds) > 0 {
			s.Errorf("%s: accesses that began after it was dead (lock: %v): %v", w.name, locked, kinds)
		}
	}
}

// heal lets every machine work again, and waits until it does.
func (s *schedule) heal(locked bool) {
	for _, w := range s.all {
		w.forget()
	}
	s.until("the owner can unlock", patience, func() bool { _, code := s.realFleet.run(s.home, "fleet", "unlock", "--wait", "5s"); return code == 0 })
	for _, w := range s.all {
		s.until(w.name+" has a lease, and its root", patience, func() bool {
			if w.reads() {
				return true
			}
			if !locked {
				s.realFleet.run(w.home, "rootsfs", "roots", "add", "code="+w.home+"/code:rw")
			}
			return w.reads()
		})
		for _, kind := range []string{"open", "read", "write", "page"} {
			s.until(w.name+": "+kind, patience, func() bool { return w.since(0, now())[kind] > 0 })
		}
		w.forget()
	}
}

// checkRecords checks that the machine's records have every order that it has answered, and are
// whole.
func checkRecords(w *watched, numbers []uint64) {
	out, code := w.f.run(w.home, "rootsfs", "audit", "show", "--session", "fleet", "--json")
	if code != 0 {
		w.f.Errorf("%s: %s", w.name, out)
	}
	for _, n := range numbers {
		if !strings.Contains(out, fmt.Sprintf("order %d for all", n)) {
			w.f.Errorf("%s has answered the order %d, and it is not on record", w.name, n)
		}
	}
	if out, code := w.f.run(w.home, "rootsfs", "audit", "verify", "--session", "fleet"); code != 0 {
		w.f.Errorf("%s: %s", w.name, out)
	}
}
