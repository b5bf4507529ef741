package sandbox

import (
	"os"
	"strconv"
	"strings"
)

// A command without a network has a namespace with a loopback interface alone. The
// kernel counts there what found no route, and what was sent to a port that nobody
// listens on, as a program does that asks for a name without a resolver.

// netCounters are these counters, as files of a process in the namespace that stay
// readable when it has ended.
type netCounters struct{ v4, v6 *os.File }

// openNetCounters opens the counters of a process's network namespace; nil if they
// cannot be opened.
func openNetCounters(pid int) *netCounters {
	dir := "/proc/" + strconv.Itoa(pid) + "/net/"
	v4, err := os.Open(dir + "snmp")
	if err != nil {
		return nil
	}
	c := &netCounters{v4: v4}
	if v6, err := os.Open(dir + "snmp6"); err == nil { // a kernel may lack IPv6
		c.v6 = v6
	}
	return c
}

// used reports whether anything tried to reach another machine, and closes the files.
func (c *netCounters) used() bool {
	if c == nil {
		return false
	}
	defer c.v4.Close()
	text := readCounters(c.v4)
	if counter(text, "Ip:", "OutNoRoutes") > 0 || counter(text, "Udp:", "NoPorts") > 0 {
		return true
	}
	if c.v6 == nil {
		return false
	}
	defer c.v6.Close()
	for line := range strings.Lines(readCounters(c.v6)) {
		if f := strings.Fields(line); len(f) == 2 && (f[0] == "Ip6OutNoRoutes" || f[0] == "Udp6NoPorts") && f[1] != "0" {
			return true
		}
	}
	return false
}

func readCounters(f *os.File) string {
	b := make([]byte, 32<<10)
	n, err := f.ReadAt(b, 0)
	if err != nil && n == 0 {
		return ""
	}
	return string(b[:n])
}

// counter is a value of /proc/net/snmp: two lines with the same beginning, the first
// of which has the names.
func counter(text, proto, name string) int {
	var heads []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != proto {
			continue
		}
		if heads == nil {
			heads = f
			continue
		}
		for i, head := range heads {
			if head == name && i < len(f) {
				n, err := strconv.Atoi(f[i])
				if err == nil {
					return n
				}
			}
		}
		return 0
	}
	return 0
}
