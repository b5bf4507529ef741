package fleet

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// crowdMachine is a machine of a crowd. Its agent, shippers, audit log and registry are real.
type crowdMachine struct {
	*puppet
	ship shippers
	reg  *guard.Registry
	file *vfs.File // an open file of a root; nil: there is none yet
}

var crowdReader = guard.Caller{Via: guard.ViaFiles, UID: 7, PID: 8}

// Crowd runs the agents of many machines in this process. os.Args[1] is the directory of the machines'
// homes. os.Args[2] is the directory that every machine grants as its root. Crowd obeys each line of its
// standard input and answers it with one line.
func Crowd() {
	if err := crowd(os.Args[1], os.Args[2]); err != nil {
		_, _ = fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func crowd(dir, root string) error {
	var wire atomic.Int64
	ctx := context.Background()
	if err := os.WriteFile(filepath.Join(root, "file"), []byte("word"), 0o600); err != nil {
		return err
	}
	homes, err := filepath.Glob(filepath.Join(dir, "m*"))
	if err != nil {
		return err
	}
	var all []*crowdMachine
	for _, home := range homes {
		m, err := newCrowdMachine(ctx, home, &wire)
		if err != nil {
			return err
		}
		all = append(all, m)
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		answer := ""
		switch lines.Text() {
		case "grant":
			for _, m := range all {
				err = cmp.Or(err, m.grant(ctx, root))
			}
		case "dead":
			n := 0
			for _, m := range all {
				if !m.reads(ctx) {
					n++
				}
			}
			answer = strconv.Itoa(n)
		case "wire":
			answer = fmt.Sprintf("%d %d", wire.Load(), cpuTime().Microseconds())
		case "memory":
			answer = strconv.FormatInt(ownMemory(), 10)
		}
		if err != nil {
			return err
		}
		fmt.Println(answer)
	}
	return nil
}

// newCrowdMachine starts the agent of the machine that joined with a home.
func newCrowdMachine(ctx context.Context, home string, wire *atomic.Int64) (*crowdMachine, error) {
	if err := os.Setenv("HOME", home); err != nil {
		return nil, err
	}
	m, err := OpenMember()
	if err != nil {
		return nil, err
	}
	buses, err := m.dialAll(true, nats.SetCustomDialer(meteredDialer{wire}))
	if err != nil {
		return nil, err
	}
	c := &crowdMachine{reg: guard.NewRegistry(guard.Config{Opener: vfs.Opener()})}
	if c.puppet, err = newPuppet(m, buses, home); err != nil {
		return nil, err
	}
	files := filepath.Join(home, "audit")
	recordLog, err := audit.Open(audit.Options{Dir: files, Session: RecordsSession, Anchor: filepath.Join(home, "anchor")})
	if err != nil {
		return nil, err
	}
	c.agent.record = func(r guard.Record) error { return cmp.Or(recordLog.Record(r), recordLog.Flush()) }
	c.carryOut = c.revoke
	if c.ship, err = newShippers(m, buses, home, files, func() bool { return true }, slog.New(slog.DiscardHandler)); err != nil {
		return nil, err
	}
	if err := c.listen(ctx); err != nil {
		return nil, err
	}
	err = m.answerStatus(c.bus, func() MachineStatus {
		st := MachineStatus{Version: "test", Sessions: []SessionStatus{{Name: "s", Roots: len(c.reg.Roots())}}, Standing: c.standing()}
		st.Sent, st.RecordsWait = c.ship.status()
		return st
	})
	if err != nil {
		return nil, err
	}
	go c.follow(ctx)
	c.ship.start(ctx)
	for end := time.Now().Add(time.Minute); !c.bus.Conn.IsConnected(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return nil, fmt.Errorf("%s does not connect", m.Machine)
		}
	}
	return c, c.bus.Conn.Flush()
}

// grant grants a root, and opens a file of it.
func (c *crowdMachine) grant(ctx context.Context, dir string) error {
	if _, err := c.reg.Grant(ctx, guard.Grant{Root: "code", Dir: names.Foreign(dir), Policy: guard.Policy{Rights: guard.ReadWrite}, Origin: "test"}); err != nil {
		return err
	}
	p, err := guard.NewPath("code", "file")
	if err == nil {
		c.file, _, err = vfs.New(c.reg).Open(ctx, crowdReader, vfs.At{Path: p}, unix.O_RDONLY)
	}
	if err == nil && !c.reads(ctx) {
		err = fmt.Errorf("the file of %s cannot be read", c.m.Machine)
	}
	return err
}

func (c *crowdMachine) reads(ctx context.Context) bool {
	_, err := c.file.ReadAt(ctx, crowdReader, make([]byte, 4), 0)
	return err == nil
}

// revoke ends the roots of the registry.
func (c *crowdMachine) revoke(ctx context.Context, due []Revocation) (ended []Ended, err error) {
	if len(due) == 0 {
		return nil, nil
	}
	all, err := c.reg.RevokeAll(ctx)
	for _, e := range all {
		ended = append(ended, Ended{"s", control.Ended{Root: names.Foreign(e.Root), State: e.State.String(), TookMS: float64(e.Took.Microseconds()) / 1000}})
		err = cmp.Or(err, e.Err)
	}
	return ended, err
}

// meteredDialer counts the bytes that its connections pass to TCP and get from TCP, after encryption.
type meteredDialer struct{ wire *atomic.Int64 }

func (d meteredDialer) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	return &meteredConn{c, d.wire}, err
}

type meteredConn struct {
	net.Conn
	wire *atomic.Int64
}

func (c *meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.wire.Add(int64(n))
	return n, err
}

func (c *meteredConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.wire.Add(int64(n))
	return n, err
}

// ownMemory returns the size of this process's private dirty memory, in bytes.
func ownMemory() (bytes int64) {
	runtime.GC()
	debug.FreeOSMemory()
	text, _ := os.ReadFile("/proc/self/smaps_rollup") // 0 if it is not there
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Private_Dirty:" {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			bytes += n << 10 // the file counts in KiB
		}
	}
	return bytes
}

// cpuTime returns how long this process has used a processor.
func cpuTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // it cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// onDisk returns the number of files below a directory, and the sum of their sizes.
func onDisk(dir string) (files, bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil // files that cannot be read are not counted
		}
		if st, err := e.Info(); err == nil {
			files, bytes = files+1, bytes+st.Size()
		}
		return nil
	})
	return files, bytes
}

// crowdDir returns a directory for the homes of machines. It is in memory if possible, because one disk
// would be slower than a disk for each machine.
func crowdDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "rootsfs-crowd-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// crowdProcess is a running Crowd.
type crowdProcess struct {
	*lab
	in  io.WriteCloser
	out *bufio.Scanner
}

// startCrowd starts a process with the agents of the machines whose homes are in dir.
func (l *lab) startCrowd(dir string) *crowdProcess {
	l.Helper()
	exe, err := os.Executable()
	l.must(err)
	cmd := &exec.Cmd{Path: exe, Args: []string{"fleet-crowd", dir, l.TempDir()}, Stderr: os.Stderr, Env: append(os.Environ(), "XDG_RUNTIME_DIR="+dir, "GORACE=atexit_sleep_ms=0")}
	p := &crowdProcess{lab: l}
	p.in, err = cmd.StdinPipe()
	l.must(err)
	out, err := cmd.StdoutPipe()
	l.must(err)
	p.out = bufio.NewScanner(out)
	l.must(cmd.Start())
	l.Cleanup(func() {
		_ = p.in.Close()
		_ = cmd.Wait()
	})
	if got := p.line(); got != "ready" {
		l.Fatal(got)
	}
	return p
}

func (p *crowdProcess) line() string {
	p.Helper()
	if !p.out.Scan() {
		p.Fatal("the process of the machines has ended")
	}
	if strings.HasPrefix(p.out.Text(), "failed:") {
		p.Fatal(p.out.Text())
	}
	return p.out.Text()
}

// ask sends the process a line, and returns the numbers of its answer.
func (p *crowdProcess) ask(what string) (numbers []int64) {
	p.Helper()
	_, err := fmt.Fprintln(p.in, what)
	p.must(err)
	for _, f := range strings.Fields(p.line()) {
		n, err := strconv.ParseInt(f, 10, 64)
		p.must(err)
		numbers = append(numbers, n)
	}
	return numbers
}

// Every machine of a large fleet carries out each revocation. After that, the machine's open file cannot
// be read. Every machine answers an owner who asks for its status. The machines are in a process of their
// own. With -v the test prints times. ROOTSFS_SOAK=1 runs a thousand machines, and prints memory, files
// and bytes on the wire, too.
func TestThousandMachines(t *testing.T) {
	n, rounds, rest := 8, 1, time.Duration(0)
	if os.Getenv("ROOTSFS_SOAK") != "" {
		n, rounds, rest = 1000, 10, 2*time.Minute
	}
	l := newLab(t)
	_, disk := onDisk(string(l.server.dir))
	dir := crowdDir(t)
	for i := range n {
		home := filepath.Join(dir, fmt.Sprintf("m%d", i))
		l.must(os.Mkdir(home, 0o700))
		l.Setenv("HOME", home)
		_, err := Join(context.Background(), l.invite(filepath.Base(home)), nil)
		l.must(err)
	}
	l.Setenv("HOME", l.home)
	begun := time.Now()
	p := l.startCrowd(dir)
	t.Logf("%d machines are connected after %v", n, time.Since(begun))
	for range rounds {
		l.revokeCrowd(p, n)
	}
	begun = time.Now()
	all, err := l.owner.Machines(context.Background(), time.Minute)
	l.must(err)
	t.Logf("the status of %d machines: %v", n, time.Since(begun))
	for _, m := range all {
		if m.MachineStatus == nil || m.Behind != nil {
			t.Fatalf("%s: %+v", m.Name, m)
		}
	}
	if rest == 0 {
		return
	}
	time.Sleep(5 * shipEvery) // until the records of the last order are sent
	perMachine := func(what string, number int64) { t.Logf("%s: %d for each machine", what, number/int64(n)) }
	perMachine("bytes of memory of a machine's agent, with a session's registry", p.ask("memory")[0])
	perMachine("bytes of memory of the server, the keeper and this test, all of it", ownMemory())
	files, bytes := onDisk(string(l.server.dir))
	perMachine("bytes of files of the server and keeper", bytes-disk)
	perMachine("number of files of the server and keeper", files)
	_, bytes = onDisk(l.server.records.dir())
	perMachine("bytes of records and checkpoints, included in the bytes above", bytes)
	before, used := p.ask("wire"), cpuTime()
	time.Sleep(rest)
	after, hours := p.ask("wire"), rest.Hours()
	perMachine(fmt.Sprintf("bytes on the wire in an hour at rest, with a lease of %v", l.owner.Charter.lease()), int64(float64(after[0]-before[0])/hours))
	t.Logf("processor at rest: the keeper %v and %d machines %v, in %v", cpuTime()-used, n, time.Duration(after[1]-before[1])*time.Microsecond, rest)
}

// revokeCrowd grants a root on every machine, opens a file of each root, and revokes all roots.
func (l *lab) revokeCrowd(p *crowdProcess, n int) {
	l.Helper()
	p.ask("grant")
	if dead := p.ask("dead")[0]; dead != 0 {
		l.Fatalf("%d of %d files cannot be read before the order", dead, n)
	}
	begun := time.Now()
	var acks []time.Duration // from the order to each ack
	sub, err := l.owner.Bus.Conn.Subscribe(l.owner.Names.ofMachines("ack"), func(*nats.Msg) { acks = append(acks, time.Since(begun)) })
	l.must(err)
	out := l.give(revokeAll, time.Minute)
	took := time.Since(begun)
	l.must(sub.Drain())
	testkit.Until(l, "the subscription has ended", func() bool { return !sub.IsValid() })
	for _, m := range out.Machines {
		if m.State != OrderDone || len(m.Ended) != 1 || m.Ended[0].State != guard.RevokedState.String() {
			l.Fatalf("%s: %+v", m.Name, m)
		}
	}
	if dead := p.ask("dead")[0]; len(out.Machines) != n || dead != int64(n) {
		l.Fatalf("%d machines have answered, and %d of %d files cannot be read", len(out.Machines), dead, n)
	}
	slices.Sort(acks)
	l.Logf("revoked on %d machines: %v; acks: %d, p50 %v, p99 %v, last %v", n, took, len(acks), acks[len(acks)/2], acks[len(acks)*99/100], acks[len(acks)-1])
}
