package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// networkName is the name for -only.
const networkName = "network"

// Peers of the network rows. netDirect is a client without a sandbox, on the loopback interface.
const (
	netDirect = "direct"
	netOurs   = "rootsfs --net=HOST"
	netSlirp  = "slirp4netns"
	netPasta  = "pasta"
	netSrt    = "srt"
)

// Goals of the network rows.
const (
	netSlirpGoal  = 2.0                    // least download speed, as a multiple of slirp4netns's
	netSrtGoal    = 5.0                    // least download speed, as a multiple of srt's
	netFirstGoal  = 500 * time.Microsecond // until the first byte of a connection, added by --net=HOST
	netStartGoal  = 0.002                  // seconds for the start of rootsfs run, added by --net=HOST
	netMemoryGoal = 20 << 10               // bytes for each connection
	netRevokeGoal = 0.5                    // seconds that rootsfs revoke --net takes
)

// heldConnections is how many connections are open, for -size full, while their memory and their
// revocation are measured.
const heldConnections = 3000

// networkPeer has the results of one peer; there is one sample a repetition.
type networkPeer struct {
	Name     string    `json:"name"`
	Download []float64 `json:"downloadPerSecond"`
	Upload   []float64 `json:"uploadPerSecond"`
	First    []float64 `json:"firstByteSeconds"` // the time of the connect included
	Broken   string    `json:"broken,omitempty"`
}

// isOwn reports whether the peer is netDirect or netOurs. A failure of one of these two breaks the
// rows; a failure of another peer does not.
func (p *networkPeer) isOwn() bool { return p.Name == netDirect || p.Name == netOurs }

// networkReport is everything about the network.
type networkReport struct {
	Peers []*networkPeer `json:"peers"`
	// Plain and WithNet are the seconds of `rootsfs run -- true` without and with --net=HOST.
	Plain   []float64 `json:"startSeconds"`
	WithNet []float64 `json:"startWithNetSeconds"`
	Held    int       `json:"held"`          // connections
	Each    []float64 `json:"bytesEach"`     // resident memory of rootsfs for each connection
	Revoke  []float64 `json:"revokeSeconds"` // of rootsfs revoke --net, process start included
	Broken  string    `json:"broken,omitempty"`
}

func (n *networkReport) peer(name string) *networkPeer {
	for _, p := range n.Peers {
		if p.Name == name && p.Broken == "" && len(p.First) > 0 {
			return p
		}
	}
	return nil
}

// networkLab holds the files and servers that the rows need.
type networkLab struct {
	*lab
	dir    string // holds client, and is the root of rootsfs run
	client string // path of a copy of this program
	port   string
	env    []string
	bytes  int64 // of a transfer
	firsts int64 // connections whose first byte is timed in a repetition
	held   int
	tries  int // starts of rootsfs run in a repetition
}

// networkLabFor returns the lab for the rows of that name. n is nil if the rows are not wanted, or
// if they cannot be measured; in the second case the report lists them as skipped.
func (l *lab) networkLabFor(name string, r *report, wanted *regexp.Regexp) (n *networkLab, done func(), err error) {
	if !wanted.MatchString(name) {
		return nil, nil, nil
	}
	if missing := l.fuseMissing + l.rootsfsMissing; missing != "" {
		r.Skipped = append(r.Skipped, name+": "+missing)
		return nil, nil, nil
	}
	return l.newNetworkLab()
}

// networkRows measures the available peers, the start of rootsfs run, and the cost of many
// connections.
func (l *lab) networkRows(ctx context.Context, r *report, wanted *regexp.Regexp) error {
	n, done, err := l.networkLabFor(networkName, r, wanted)
	if n == nil || err != nil {
		return err
	}
	defer done()
	r.Network = &networkReport{Held: n.held}
	for _, p := range n.networkWays() {
		if p.missing != "" {
			r.Skipped = append(r.Skipped, networkName+", "+p.name+": "+p.missing)
			continue
		}
		r.Network.Peers = append(r.Network.Peers, &networkPeer{Name: p.name})
	}
	for rep := range r.Repetitions {
		fmt.Fprintf(l.log, "bench: %4.0f s  %s %d/%d\n", time.Since(r.When).Seconds(), networkName, rep+1, r.Repetitions)
		for i := range r.Network.Peers {
			row := r.Network.Peers[turn(i, rep, len(r.Network.Peers))]
			if row.Broken != "" {
				continue
			}
			if err := n.measurePeer(ctx, row); err != nil {
				if row.Broken = err.Error(); !row.isOwn() {
					r.Skipped = append(r.Skipped, networkName+", "+row.Name+": "+row.Broken)
				}
			}
		}
		if r.Network.Broken == "" {
			if err := errors.Join(n.measureStarts(ctx, r.Network), n.measureMany(ctx, r.Network)); err != nil {
				r.Network.Broken = err.Error()
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// newNetworkLab copies this program into the lab and starts the server. done closes the server
// and removes the directory of the sessions.
func (l *lab) newNetworkLab() (n *networkLab, done func(), err error) {
	n = &networkLab{lab: l, dir: l.path("network"), bytes: 256 << 20, firsts: 300, held: heldConnections, tries: startTries}
	if l.size.Name != "full" {
		n.bytes, n.firsts, n.held, n.tries = 1<<20, 5, 20, 2
	}
	n.client = filepath.Join(n.dir, "client")
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return nil, nil, err
	}
	program, err := os.ReadFile(l.self)
	if err == nil {
		err = os.WriteFile(n.client, program, 0o755)
	}
	if err != nil {
		return nil, nil, err
	}
	if n.env, err = l.privateHome("network"); err != nil {
		return nil, nil, err
	}
	sessions, err := os.MkdirTemp("/dev/shm", "rootsfs-bench-") // in memory, as is usual
	if err != nil {
		return nil, nil, err
	}
	n.env = append(append(os.Environ(), n.env...), "XDG_RUNTIME_DIR="+sessions)
	server, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(sessions))
	}
	go serveNetwork(server)
	_, n.port, _ = net.SplitHostPort(server.Addr().String())
	return n, func() { server.Close(); os.RemoveAll(sessions) }, nil
}

// netWay is the way to start a client in one peer's network.
type netWay struct {
	name    string
	missing string // why the peer is not available
	argv    []string
	attach  func(ctx context.Context, pid int) (stop func(), err error) // serves the client's network from outside; nil: not needed
}

func (n *networkLab) networkWays() []netWay {
	local := "127.0.0.1:" + n.port
	ways := []netWay{
		{name: netDirect, argv: []string{n.client, childNetwork, local}},
		{name: netOurs, argv: n.run("bench-network", "--net="+local, n.client, childNetwork, local)},
		{name: netSlirp, argv: []string{n.client, childNetwork, "10.0.2.2:" + n.port}, attach: attachSlirp},
		// The gateway of pasta's network stands for this machine's loopback interface.
		// Without --runas, pasta started by root would become the user nobody.
		{name: netPasta, argv: []string{"pasta", "--config-net", "-q", "-f", "--runas", fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()), "-a", "10.9.9.2", "-n", "24", "-g", "10.9.9.1", "--",
			n.client, childNetwork, "10.9.9.1:" + n.port}},
		{name: netSrt, argv: []string{"srt", "--settings", n.srtSettings(), "-c", strings.Join([]string{n.client, childNetwork, local, childProxied}, " ")}},
	}
	for i, program := range map[int]string{2: "slirp4netns", 3: "pasta", 4: "srt"} {
		if _, err := exec.LookPath(program); err != nil {
			ways[i].missing = err.Error()
		}
	}
	return ways
}

// run returns a command line of rootsfs run.
func (n *networkLab) run(name, net string, command ...string) []string {
	argv := []string{n.rootsfs, "run", "--name", name, "--mcp", "off", "--root", n.dir}
	if net != "" {
		argv = append(argv, net)
	}
	return append(append(argv, "--"), command...)
}

// srtSettings writes the settings of srt, and returns their path.
func (n *networkLab) srtSettings() string {
	file := filepath.Join(n.dir, "srt.json")
	_ = os.WriteFile(file, []byte(`{"network": {"allowedDomains": ["127.0.0.1"], "deniedDomains": []},
		"filesystem": {"denyRead": [], "allowWrite": [], "denyWrite": []}}`), 0o644) // srt reports a missing file
	return file
}

// attachSlirp makes slirp4netns serve the network namespace of a process.
func attachSlirp(ctx context.Context, pid int) (stop func(), err error) {
	ready, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	cmd := exec.CommandContext(ctx, "slirp4netns", "--configure", "--mtu=65520", "--ready-fd=3", strconv.Itoa(pid), "tap0")
	cmd.ExtraFiles = []*os.File{theirs}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return nil, err
	}
	stop = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	if _, err := io.ReadFull(ready, make([]byte, 1)); err != nil {
		stop()
		return nil, fmt.Errorf("slirp4netns is not ready: %w", err)
	}
	return stop, nil
}

// netClient is a client that is running.
type netClient struct {
	cmd     *exec.Cmd
	orders  *json.Encoder
	results *json.Decoder
	stop    func()
}

func (n *networkLab) startClient(ctx context.Context, way netWay) (*netClient, error) {
	cmd := exec.CommandContext(ctx, way.argv[0], way.argv[1:]...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = n.env, n.dir, 10*time.Second
	if way.attach != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &netClient{cmd: cmd, orders: json.NewEncoder(in), results: json.NewDecoder(out)}
	detach := func() {}
	if way.attach != nil {
		if detach, err = way.attach(ctx, cmd.Process.Pid); err != nil {
			detach = func() {}
		}
	}
	c.stop = func() {
		in.Close()     // then the client ends
		_ = cmd.Wait() // the results show any failure
		detach()
	}
	if err != nil {
		c.stop()
	}
	return c, err
}

// do makes the client carry out an order.
func (c *netClient) do(what string, count int64) (float64, error) {
	if err := c.orders.Encode(networkOrder{what, count}); err != nil {
		return 0, err
	}
	var r networkResult
	err := c.results.Decode(&r)
	if r.Error != "" {
		err = errors.New(r.Error)
	}
	if err != nil {
		return r.Value, fmt.Errorf("%s: %w", what, err)
	}
	return r.Value, nil
}

// measurePeer measures one repetition of one peer.
func (n *networkLab) measurePeer(ctx context.Context, row *networkPeer) error {
	for _, way := range n.networkWays() {
		if way.name != row.Name {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, runLimit)
		defer cancel()
		c, err := n.startClient(ctx, way)
		if err != nil {
			return err
		}
		defer c.stop()
		if _, err := c.do("first", 1); err != nil { // so that the start is not measured
			return err
		}
		for _, m := range []struct {
			what  string
			count int64
			to    *[]float64
		}{{"download", n.bytes, &row.Download}, {"upload", n.bytes, &row.Upload}, {"first", n.firsts, &row.First}} {
			v, err := c.do(m.what, m.count)
			if err != nil {
				return err
			}
			*m.to = append(*m.to, v)
		}
	}
	return nil
}

// measureStarts times `rootsfs run -- true` without and with --net=HOST, in turns.
func (n *networkLab) measureStarts(ctx context.Context, r *networkReport) error {
	var plain, withNet []float64
	for range n.tries {
		for _, c := range []struct {
			to  *[]float64
			net string
		}{{&plain, ""}, {&withNet, "--net=127.0.0.1:" + n.port}} {
			argv := n.run("bench-start", c.net, "/bin/true")
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
			cmd.Env = n.env
			began := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%v: %w: %s", argv, err, out)
			}
			*c.to = append(*c.to, time.Since(began).Seconds())
		}
	}
	r.Plain, r.WithNet = append(r.Plain, median(plain)), append(r.WithNet, median(withNet))
	return nil
}

// measureMany measures the memory of many connections, and how long revoke --net takes to end
// them.
func (n *networkLab) measureMany(ctx context.Context, r *networkReport) error {
	const session = "bench-many"
	local := "127.0.0.1:" + n.port
	c, err := n.startClient(ctx, netWay{argv: n.run(session, "--net="+local, n.client, childNetwork, local)})
	if err != nil {
		return err
	}
	defer c.stop()
	if _, err := c.do("first", 10); err != nil {
		return err
	}
	before := resident(c.cmd.Process.Pid)
	if _, err := c.do("hold", int64(n.held)); err != nil {
		return err
	}
	after := resident(c.cmd.Process.Pid)
	revoke := exec.CommandContext(ctx, n.rootsfs, "revoke", "--net", "--session", session)
	revoke.Env = n.env
	began := time.Now()
	if out, err := revoke.CombinedOutput(); err != nil {
		return fmt.Errorf("revoke: %w: %s", err, out)
	}
	took := time.Since(began).Seconds()
	left, err := c.do("end", 0)
	if err == nil && left > 0 {
		err = fmt.Errorf("%.0f connections are open when revoke has returned", left)
	}
	if err != nil {
		return err
	}
	r.Each = append(r.Each, float64(after-before)/float64(n.held))
	r.Revoke = append(r.Revoke, took)
	return nil
}

// resident returns the resident memory of a process, 0 if that is not known.
func resident(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if kb, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 10, 64)
			return n << 10
		}
	}
	return 0
}

func (r *report) networkTable() string {
	n := r.Network
	if n == nil {
		return ""
	}
	table := [][]string{{"network", "download", "upload", "connect and first byte"}}
	for _, p := range n.Peers {
		line := []string{p.Name, "-", "-", "-"}
		if p.Broken == "" {
			line = []string{p.Name, fmt.Sprintf("%.0f MB/s", median(p.Download)/1e6), fmt.Sprintf("%.0f MB/s", median(p.Upload)/1e6),
				fmt.Sprintf("%.0f µs", median(p.First)*1e6)}
		}
		table = append(table, line)
	}
	text := format(table)
	if n.Broken == "" {
		text += fmt.Sprintf("\n`rootsfs run -- true` takes %.1f ms, with --net=HOST %.1f ms. %d connections take %.1f KB each; `rootsfs revoke --net` ends them in %.0f ms.\n",
			median(n.Plain)*1e3, median(n.WithNet)*1e3, n.Held, median(n.Each)/1024, median(n.Revoke)*1e3)
	}
	return text
}

func judgeNetwork(r *report) []outcome {
	n := r.Network
	if n == nil {
		return nil
	}
	var all []outcome
	ours, direct := n.peer(netOurs), n.peer(netDirect)
	for _, against := range []struct {
		peer  string
		limit float64
	}{{netSlirp, netSlirpGoal}, {netSrt, netSrtGoal}} {
		theirs, ratio := n.peer(against.peer), 0.0
		if ours != nil && theirs != nil {
			ratio = median(ours.Download) / median(theirs.Download)
		}
		all = append(all, judge("download of --net=HOST against "+against.peer, fmt.Sprintf("at least %.0f", against.limit), ratio > 0,
			fmt.Sprintf("%.1f", ratio), ratio >= against.limit))
	}
	var added time.Duration
	if ours != nil && direct != nil {
		added = time.Duration((median(ours.First) - median(direct.First)) * 1e9)
	}
	all = append(all, judge("connect and first byte, added by --net=HOST", netFirstGoal.String(), ours != nil && direct != nil,
		added.Round(time.Microsecond).String(), added <= netFirstGoal))
	ok := n.Broken == "" && len(n.Revoke) > 0
	start, each, revoke := median(n.WithNet)-median(n.Plain), median(n.Each), median(n.Revoke)
	return append(all,
		judge("start, added by --net=HOST", fmt.Sprintf("%.0f ms", netStartGoal*1e3), ok, fmt.Sprintf("%.1f ms", start*1e3), start <= netStartGoal),
		judge(fmt.Sprintf("memory for each of %d connections", n.Held), fmt.Sprintf("%d KB", netMemoryGoal>>10), ok, fmt.Sprintf("%.1f KB", each/1024), each <= netMemoryGoal),
		judge(fmt.Sprintf("revoke --net, %d connections", n.Held), fmt.Sprintf("%.0f ms", netRevokeGoal*1e3), ok, fmt.Sprintf("%.0f ms", revoke*1e3), revoke <= netRevokeGoal))
}
