package broker

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Host describes the connection that a question of HostKind is about. The connection waits for
// the answer.
type Host struct {
	Name    names.Foreign `json:"name"`              // host that the program asked for, or address
	Port    uint16        `json:"port"`              // port at that host
	Program names.Foreign `json:"program,omitempty"` // executable file of the process that connects, as it sees it; "" if unknown
	PID     int32         `json:"pid,omitempty"`     // number of that process
	Reached []Reached     `json:"reached"`           // hosts that the command has reached so far, most bytes first
	Others  int           `json:"others,omitempty"`  // how many more it has reached
}

// Reached counts the bytes exchanged with a host.
type Reached struct {
	Host     names.Foreign `json:"host"`     // name or address
	Port     uint16        `json:"port"`     // port at that host
	Sent     int64         `json:"sent"`     // bytes from the command
	Received int64         `json:"received"` // bytes to the command
}

// String returns HOST:PORT, the form of the network rules.
func (h *Host) String() string { return net.JoinHostPort(h.Name.Raw(), strconv.Itoa(int(h.Port))) }

// maxNamedHosts is how many hosts the text of a question names as reached.
const maxNamedHosts = 5

// hostHeading returns the Heading of a question about a host.
func hostHeading(q *Question) string {
	var b strings.Builder
	who := "A command"
	if q.Subject != "" {
		who = "The command of session " + short(names.Escape(string(q.Subject)))
	}
	fmt.Fprintf(&b, "%s connects to a host that no rule permits, and waits.\n", who)
	if q.Host.Program == "" {
		b.WriteString("Which of its programs it is, is not known.\n")
	} else {
		fmt.Fprintf(&b, "Its program: %s (process %d)\n", short(names.Quote(q.Host.Program)), q.Host.PID)
	}
	fmt.Fprintf(&b, "Reached so far: %s\n", reachedText(q.Host))
	return b.String()
}

func reachedText(h *Host) string {
	if len(h.Reached) == 0 {
		return "no host"
	}
	var parts []string
	for _, r := range h.Reached[:min(len(h.Reached), maxNamedHosts)] {
		at := Host{Name: r.Host, Port: r.Port}
		parts = append(parts, fmt.Sprintf("%s (%d bytes sent, %d received)", names.Escape(at.String()), r.Sent, r.Received))
	}
	if more := len(h.Reached) - len(parts) + h.Others; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}
