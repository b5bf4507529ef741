package sandbox

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/ipv4"

	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// netTargets has the fields that the hostile program reads.
type netTargets struct {
	Approved, Address, TLS, UDP, Evil, Rebound, Metadata, Own, Port, Group, Everybody string
}

// provenOnNetwork lists attempts that work without rootsfs, on every machine and for every
// user.
var provenOnNetwork = []string{
	"connect to the host's loopback, IPv4", "connect to an approved name that leads to the host", "connect to another port of an approved name",
	"look up a name that is not approved", "ask an approved host for another server by TLS", "the same at an approved address", "send by UDP to an approved host",
}

// A hostile program with a network of approved hosts gets no answer from another host, at every
// level that has a network, as root and as a user.
func TestNetworkAttacks(t *testing.T) {
	targets := serveAttacks(t)
	eachUser(t, func(t *testing.T, o *outside) {
		raw, err := json.Marshal(targets)
		testkit.Must(t, err)
		net := fmt.Sprintf("--net=%s:%s,%[1]s:%[3]s,%[4]s,%[5]s,%[6]s:%[2]s", targets.Approved, targets.TLS, targets.UDP, targets.Rebound, targets.Metadata, targets.Address)
		names, table := []string{}, map[string]map[string]result{}
		for _, level := range append([]sandbox.Level{bare}, netLevels...) {
			ord := o.networkOrder(level, net, "./hostile -network '"+string(raw)+"'")
			if level == bare {
				ord.Args = []string{o.root + "/hostile", "-network", string(raw)}
				ord.Bare, ord.Env = true, append(o.env, "HOME="+o.home)
			}
			stdout, log, code := o.run(ord)
			results := map[string]result{}
			for lines := bufio.NewScanner(strings.NewReader(stdout)); lines.Scan(); {
				var res result
				testkit.Must(t, json.Unmarshal(lines.Bytes(), &res))
				results[res.Name] = res
				switch {
				case level == bare:
					names = append(names, res.Name)
					if !res.Worked && slices.Contains(provenOnNetwork, res.Name) {
						t.Errorf("%q does not work without rootsfs (%s): it shows nothing", res.Name, res.Detail)
					}
				case res.Worked:
					t.Errorf("%s: %q works", level, res.Name)
				}
			}
			if len(results) != len(names) || len(names) < 20 || code != 0 {
				t.Fatalf("level %d: exit code %d, %d attempts of %d were made\n%s%s", level, code, len(results), len(names), stdout, log)
			}
			table[level.String()] = results
		}
		rows := attacksTable(names, table)
		t.Log("\n" + rows)
		if o.caller.uid == 0 {
			compareRows(t, "security", rows)
		}
	})
}

// With --net=false the same program reaches no host either, although rootsfs receives the program's
// look-ups.
func TestNetworkAttacksWithoutHosts(t *testing.T) {
	raw, err := json.Marshal(serveAttacks(t))
	testkit.Must(t, err)
	for i, level := range netLevels {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			o := newOutside(t, callers[i])
			stdout, log, code := o.run(o.networkOrder(level, "--net=false", "./hostile -network '"+string(raw)+"'"))
			tried := 0
			for lines := bufio.NewScanner(strings.NewReader(stdout)); lines.Scan(); tried++ {
				var res result
				testkit.Must(t, json.Unmarshal(lines.Bytes(), &res))
				if res.Worked {
					t.Errorf("%q works", res.Name)
				}
			}
			if tried < 20 || code != 0 || !strings.Contains(log, "the command has no network") {
				t.Errorf("exit code %d, %d attempts were made\n%s%s", code, tried, stdout, log)
			}
		})
	}
}

func attacksTable(names []string, table map[string]map[string]result) string {
	out := "| attempt, with `--net=HOSTS` | outcome |\n|---|---|\n"
	for _, n := range names {
		out += fmt.Sprintf("| %s | %s |\n", n, table[sandbox.Namespaces.String()][n].Detail)
	}
	return out
}

// serveAttacks starts the servers that the hostile program attacks.
func serveAttacks(t *testing.T) netTargets {
	t.Helper()
	repeat := func(c net.Conn) { _, _ = io.Copy(c, c) }
	cert := certificate(t)
	all, err := net.Listen("tcp", ":0")
	testkit.Must(t, err)
	go func() {
		for {
			c, err := all.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); repeat(c) }()
		}
	}()
	t.Cleanup(func() { all.Close() })
	udp := repeatDatagrams(t, "127.0.0.5:0")
	listener := repeatDatagrams(t, "0.0.0.0:0")
	group := net.IPv4(224, 0, 0, 77)
	_ = ipv4.NewPacketConn(listener).JoinGroup(nil, &net.UDPAddr{IP: group}) // a machine without a network has no multicast
	targets := netTargets{
		Approved: "api.example.com", Address: "127.0.0.5", Evil: "evil.example.com", Rebound: "rebound.test", Metadata: "metadata.test",
		TLS:  answerConns(t, func(c net.Conn) { repeat(tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}})) }),
		Port: portOf(all), UDP: udpPort(udp), Own: "192.0.2.1", // an unused address, for a machine that has only loopback addresses
		Group: net.JoinHostPort(group.String(), udpPort(listener)), Everybody: "255.255.255.255:" + udpPort(listener),
	}
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			targets.Own = n.IP.String()
		}
	}
	return targets
}

func udpPort(c net.PacketConn) string { return fmt.Sprint(c.LocalAddr().(*net.UDPAddr).Port) }

// repeatDatagrams sends datagrams back.
func repeatDatagrams(t *testing.T, address string) net.PacketConn {
	t.Helper()
	c, err := net.ListenPacket("udp4", address)
	testkit.Must(t, err)
	go func() {
		b := make([]byte, 64)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(b[:n], from)
		}
	}()
	t.Cleanup(func() { c.Close() })
	return c
}

// compareRows fails the test unless the help topic has each row of the table. Only the first column
// is compared, because the reason why an attempt fails depends on the kernel.
func compareRows(t *testing.T, topic, table string) {
	t.Helper()
	text, err := os.ReadFile("../../cmd/rootsfs/help/" + topic + ".md")
	testkit.Must(t, err)
	for line := range strings.Lines(table) {
		first, _, _ := strings.Cut(line[1:], "|")
		first = "|" + first + "|"
		if !strings.Contains(string(text), first) {
			t.Errorf("cmd/rootsfs/help/%s.md has no row %q; paste the table that this test logs with -v", topic, first)
		}
	}
}
