package sandbox

import (
	"os"
	"strconv"
	"strings"
)

// A command without a network has a namespace with a loopback interface alone. The
// kernel counts there what found no route, and what was sent to a port that nobody
// listens on, as a program does that asks for a name without a resolver.

// triedNet reports, inside, whether anything tried to reach another machine.
func triedNet() bool {
	v4 := readCounters("/proc/self/net/snmp")
	if counter(v4, "Ip:", "OutNoRoutes") > 0 || counter(v4, "Udp:", "NoPorts") > 0 {
		return true
	}
	for line := range strings.Lines(readCounters("/proc/self/net/snmp6")) { // a kernel may lack IPv6
		if f := strings.Fields(line); len(f) == 2 && (f[0] == "Ip6OutNoRoutes" || f[0] == "Udp6NoPorts") && f[1] != "0" {
			return true
		}
	}
	return false
}

func readCounters(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return string(b)
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
