package fleet

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// probedMachine is a machine with a process that accesses its file all the time.
type probedMachine struct {
	*realMachine
	probe *exec.Cmd
	mu    sync.Mutex
	seen  []access // the successful accesses since the last forget
}

type access struct {
	kind  string
	began int64
}

func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // the clock exists
	return ts.Nano()
}

// watch starts the process that accesses the machine's file.
func watch(m *realMachine) *probedMachine {
	cmd := m.f.command(m.home, "fleet-probe", m.file)
	w := &probedMachine{realMachine: m, probe: cmd}
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

// succeeded counts the successful accesses that began between two times, by kind.
func (w *probedMachine) succeeded(from, to int64) map[string]int {
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

// forget drops the accesses that were seen so far.
func (w *probedMachine) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = nil
}

// TestSchedules checks the promises of a fleet under faults. In every schedule, random partitions, kills
// and stops of servers and agents happen before and after an order. On a machine that has answered, no
// access succeeds that begins after the owner's command has ended. On any other machine, no access
// succeeds that begins a lease and a second after the end of the command, or later. When all faults are
// repaired, every machine works again. At the end, each answered order is in the records of its machine,
// and the owner's copies of all records are whole. The machines have different uptimes (see
// newClock), and share one wall clock.
//
// ROOTSFS_SOAK=1 runs it. ROOTSFS_SEED=N repeats a run, beginning with the schedule whose seed is N.
// With ROOTSFS_SET_CLOCK=1 the test sets the clock wrong by up to a day, before and after most orders.
// Use this on a virtual machine that runs nothing else, such as Debian's user-mode-linux, which needs no
// KVM.
// ROOTSFS_LEASE is the lease, for a slow machine.
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
			h := &history{answered: map[string][]uint64{}, revoked: map[string]int{}, count: map[string]int{}}
			clock := f.newWallClock()
			for i := range schedules {
				s := &schedule{realFleet: f, history: h, servers: servers, all: all, clock: clock, r: rand.New(rand.NewPCG(seed+uint64(i), 0))}
				s.run()
				if t.Failed() {
					t.Fatalf("the schedule with ROOTSFS_SEED=%d: %s", seed+uint64(i), strings.Join(s.log, "; "))
				}
			}
			t.Logf("schedules from ROOTSFS_SEED=%d: %v", seed, h.count)
			for _, w := range all {
				stop(w.probe)
			}
			for _, w := range all {
				h.checkRecords(w)
			}
		})
	}
}

// testLease returns the lease of the schedules.
func testLease(t *testing.T) time.Duration {
	text := os.Getenv("ROOTSFS_LEASE")
	if text == "" {
		return realLease
	}
	d, err := time.ParseDuration(text)
	testkit.Must(t, err)
	return d
}

// newNetworkedFleet is newRealFleet with keepers and machines in network namespaces.
func newNetworkedFleet(t *testing.T, keepers int) (*realFleet, []*netServer, []*probedMachine) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	for _, tool := range []string{"ip", "nsenter", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs ", tool)
		}
	}
	f := &realFleet{T: t, home: t.TempDir(), dir: ServerDir(filepath.Join(t.TempDir(), "server")), nets: map[string]string{}, times: map[string]string{}}
	servers := []*netServer{f.newServer(f.dir, "server1")}
	f.nets[f.home] = f.newNet("owner")
	f.asUser(f.home)
	_, err := Create(f.dir, Plan{Name: "acme", Server: servers[0].host + ":4222", Lease: testLease(t)})
	f.must(err)
	dir, err := stateDir("owner")
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
	var all []*probedMachine
	for _, name := range []string{"m1", "m2", "m3"} {
		all = append(all, watch(f.newMachine(name)))
	}
	return f, servers, all
}

// history counts the outcomes of all schedules of a test.
type history struct {
	answered map[string][]uint64 // the numbers of orders that machines have answered
	revoked  map[string]int      // how many revocations from afar machines have answered
	count    map[string]int
}

// schedule is one run of faults around an order.
type schedule struct {
	*realFleet
	*history
	servers []*netServer
	all     []*probedMachine
	clock   *wallClock
	r       *rand.Rand
	log     []string
}

// note adds a step to the log of the schedule.
func (s *schedule) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

// fail begins a fault, and waits for a random time.
func (s *schedule) fail(x fault) {
	s.note("%s", x.name)
	x.fail()
	time.Sleep(time.Duration(s.r.Int64N(int64(testLease(s.T) / 2))))
}

// setClock sets the clock in about two of three calls, if the test may set it.
func (s *schedule) setClock() {
	if s.clock == nil || s.r.IntN(3) == 0 {
		return
	}
	ahead := time.Duration(s.r.Int64N(int64(48*time.Hour))) - 24*time.Hour
	s.note("set the clock to %v from now", ahead)
	s.must(s.clock.set(ahead))
	s.count["clock set"]++
}

// orders has the kinds of orders, with the arguments of their commands. For the kind "with",
// schedule.give does not use the arguments: it calls revokeAt.
var orders = map[string][]string{"lock": {"lock", "drill"}, "revoke": {"revoke", "--all"}, "ceiling": {"ceiling", "set"}, "with": {"with"}}

func (s *schedule) run() {
	list := faults(s.realFleet, s.servers, s.all)
	s.r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	failing := list[:s.r.IntN(4)]
	before := s.r.IntN(len(failing) + 1)
	for _, x := range failing[:before] {
		s.fail(x)
	}
	s.setClock()
	kinds := slices.Sorted(maps.Keys(orders))
	kind := kinds[s.r.IntN(len(kinds))]
	s.note("%s", kind)
	forbiddenFrom := s.give(kind)
	s.setClock()
	for _, x := range failing[before:] {
		s.fail(x)
	}
	if s.r.IntN(2) == 0 && len(failing) > 0 { // one fault ends before the others
		s.note("undo %s", failing[0].name)
		failing[0].repair()
	}
	s.judge(kind, forbiddenFrom)
	for _, x := range failing {
		x.repair()
	}
	s.heal(kind)
}

// give gives an order. It returns, by machine, the time from which the machine must not serve its file.
// It returns nil if the command has failed.
func (s *schedule) give(kind string) map[string]int64 {
	args := append([]string{"fleet"}, orders[kind]...)
	if kind == "with" {
		return s.revokeAt(s.all[s.r.IntN(len(s.all))])
	}
	if kind == "ceiling" {
		file := filepath.Join(s.home, "ceiling.toml")
		s.must(os.WriteFile(file, []byte("[[root]]\npath = \"/srv\"\n"), 0o600))
		args = append(args, file)
	}
	lease := testLease(s.T)
	data, _ := s.command(s.home, append(args, "--wait", (lease*2/5).String(), "--json")...).Output() // the exit code is not 0 if a machine has not answered
	done := now()
	var out Outcome
	if json.Unmarshal(data, &out) != nil || len(out.Machines) == 0 {
		s.count[kind+" failed"]++
		return nil
	}
	forbiddenFrom := map[string]int64{}
	for _, m := range out.Machines {
		if m.State == OrderNoAnswer {
			forbiddenFrom[m.Name] = done + int64(lease+leaseSlack)
			s.count["no answer"]++
			continue
		}
		forbiddenFrom[m.Name] = done
		s.answered[m.Name] = append(s.answered[m.Name], m.Number)
		s.count[kind+" answered"]++
	}
	return forbiddenFrom
}

// revokeAt ends the roots of one machine from afar. It returns what give returns.
func (s *schedule) revokeAt(w *probedMachine) map[string]int64 {
	s.note("%s", w.name)
	if out, code := s.realFleet.run(s.home, "fleet", "with", w.name, "--", "rootsfs", "revoke", "--all"); code != 0 || !strings.Contains(out, "code") {
		s.count["with failed"]++
		return nil
	}
	s.revoked[w.name]++
	s.count["with answered"]++
	return map[string]int64{w.name: now()}
}

// judge compares the accesses on the machines with the outcome of an order.
func (s *schedule) judge(kind string, forbiddenFrom map[string]int64) {
	end := now()
	for _, at := range forbiddenFrom {
		end = max(end, at+int64(200*time.Millisecond))
	}
	time.Sleep(time.Duration(end - now()))
	for _, w := range s.all {
		at, isForbidden := forbiddenFrom[w.name]
		if kinds := w.succeeded(at, end); isForbidden && len(kinds) > 0 {
			s.Errorf("%s: accesses succeeded that began after %s had to take effect: %v", w.name, kind, kinds)
		}
	}
}

// heal lifts the order, and waits until every machine works again.
func (s *schedule) heal(kind string) {
	for _, w := range s.all {
		w.forget()
	}
	orders := [][]string{{"fleet", "unlock", "--wait", "5s"}}
	if kind == "ceiling" {
		orders = append(orders, []string{"fleet", "ceiling", "remove", "--wait", "5s"})
	}
	for _, order := range orders {
		s.until("every machine answers "+order[1], patience, func() bool { _, code := s.realFleet.run(s.home, order...); return code == 0 })
	}
	for _, w := range s.all {
		s.until(w.name+" has a lease, and its root", patience, func() bool {
			if w.reads() {
				return true
			}
			if kind != "lock" {
				s.realFleet.run(w.home, "rootsfs", "roots", "add", "code="+w.home+"/code:rw")
			}
			return w.reads()
		})
		for _, kind := range []string{"open", "read", "write", "page"} {
			s.until(w.name+": "+kind, patience, func() bool { return w.succeeded(0, now())[kind] > 0 })
		}
		w.forget()
	}
}

// checkRecords checks that the machine's records are whole and have every order and revocation that the
// machine has answered. It also checks that the owner gets all of the records.
func (h *history) checkRecords(w *probedMachine) {
	out, code := w.f.run(w.home, "rootsfs", "audit", "show", "--session", "fleet", "--json")
	if code != 0 {
		w.f.Errorf("%s: %s", w.name, out)
	}
	for _, n := range h.answered[w.name] {
		if !strings.Contains(out, fmt.Sprintf("order %d for all", n)) {
			w.f.Errorf("%s has answered the order %d, and it is not on record", w.name, n)
		}
	}
	if n := strings.Count(out, "revoke from afar by owner"); n < h.revoked[w.name] {
		w.f.Errorf("%s has answered %d revocations from afar, and %d are on record", w.name, h.revoked[w.name], n)
	}
	if out, code := w.f.run(w.home, "rootsfs", "audit", "verify", "--session", "fleet"); code != 0 {
		w.f.Errorf("%s: %s", w.name, out)
	}
	w.f.recordsArrive(w.realMachine)
}
