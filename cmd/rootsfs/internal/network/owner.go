package network

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Program is the process that made a connection, with the PID and the path that the kernel reports.
// The zero Program stands for a process that was not found.
type Program struct {
	PID  int           // in the PID namespace of the gate
	Path names.Foreign // of its executable file, as the program sees it
}

// questionSearch bounds the time of each step of owner if a question is to name the process.
// recordSearch bounds the time of each step if a record is to name the process. The bounds are needed
// because a program may have any number of processes with any number of descriptors.
const questionSearch = time.Second

// Only tests change recordSearch.
var recordSearch = 100 * time.Millisecond

// diag asks the kernel about sockets of a network namespace.
type diag struct {
	netns uint64 // inode of the namespace

	mu      sync.Mutex // guards socket and request
	socket  *os.File   // NETLINK_SOCK_DIAG, of the namespace
	request uint32     // number of the last request

	last  atomic.Int64  // PID of the process that owner found last; 0: none
	spent *rate.Limiter // limits the time, in microseconds, that owner spends for records
}

// searchPart and searchBurst limit the time that owner spends for records: a tenth of the time, and
// searchBurst beyond that. If a program makes many connections, the records of the later ones lack
// the process.
const (
	searchPart  = 100_000 // microseconds a second
	searchBurst = 500_000
)

// newDiag takes over a socket. It returns nil if socket is nil, or if the kernel does not tell the
// namespace of the socket.
func newDiag(socket *os.File) *diag {
	if socket == nil {
		return nil
	}
	var st unix.Stat_t
	fd, err := unix.IoctlRetInt(int(socket.Fd()), unix.SIOCGSKNS)
	if err == nil {
		err = unix.Fstat(fd, &st)
		unix.Close(fd)
	}
	if err != nil {
		socket.Close()
		return nil
	}
	return &diag{netns: st.Ino, socket: socket, spent: rate.NewLimiter(searchPart, searchBurst)}
}

func (d *diag) close() {
	if d != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.socket.Close()
	}
}

// owner returns a process that holds the program's end of a connection, or the zero Program if it
// finds none. (Usually this process made the connection.) If forRecord is set, the search has less
// time than for a question, and owner omits the search if searches for records have taken too long.
// owner uses nothing that the process says of itself: it learns the socket, and the file that the
// process runs, from the kernel.
func (g *Gate) owner(c *conn, forRecord bool) Program {
	g.mu.Lock()
	in := g.inside
	g.mu.Unlock()
	if in == nil || in.owners == nil || c.inside == nil {
		return Program{}
	}
	d, patience := in.owners, questionSearch
	if forRecord {
		if d.spent.Tokens() < 1 {
			return Program{}
		}
		began := time.Now()
		defer func() { d.spent.ReserveN(began, int(time.Since(began).Microseconds())) }()
		patience = recordSearch
	}
	from, to := c.ends()
	inode, err := d.inode(from, to, patience)
	if err != nil {
		return Program{}
	}
	p := holder(d.netns, inode, int(d.last.Load()), time.Now().Add(patience))
	d.last.Store(int64(p.PID))
	return p
}

// diagState and diagInode are offsets in struct inet_diag_msg, whose last field is idiag_inode.
// tcpListen is a state of a socket (include/net/tcp_states.h).
const (
	diagState = 1
	diagInode = 68
	tcpListen = 10
)

// inode returns the inode of the TCP socket that is bound to from and connected to to
// (sock_diag(7)). If that socket is closed, inode returns an error. The kernel then answers with an
// error, with a socket that listens at from, or with a socket that no process holds and whose inode
// is 0.
func (d *diag) inode(from, to netip.AddrPort, patience time.Duration) (uint32, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fd := int(d.socket.Fd())
	tv := unix.NsecToTimeval(patience.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return 0, err
	}
	d.request++
	if err := unix.Sendto(fd, diagRequest(d.request, from, to), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	for answer := make([]byte, 4096); ; {
		n, _, err := unix.Recvfrom(fd, answer, 0)
		if err != nil {
			return 0, err
		}
		msgs, err := syscall.ParseNetlinkMessage(answer[:n])
		if err != nil {
			return 0, err
		}
		for _, m := range msgs {
			switch {
			case m.Header.Seq != d.request: // the answer to a request that was given up
			case m.Header.Type == unix.SOCK_DIAG_BY_FAMILY && len(m.Data) >= diagInode+4:
				inode := binary.NativeEndian.Uint32(m.Data[diagInode:])
				if inode == 0 || m.Data[diagState] == tcpListen {
					return 0, unix.ENOENT
				}
				return inode, nil
			default:
				return 0, unix.ENOENT
			}
		}
	}
}

// diagRequest returns a message that asks for one socket: struct inet_diag_req_v2 has the family,
// the protocol, the wanted extensions, the states, and both ends.
func diagRequest(seq uint32, from, to netip.AddrPort) []byte {
	const all, noCookie = 0xffffffff, 0xffffffff
	family := byte(unix.AF_INET6)
	if from.Addr().Is4() {
		family = unix.AF_INET
	}
	address := func(a netip.Addr) []byte { return append(a.AsSlice(), make([]byte, 16-a.BitLen()/8)...) }
	port := func(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }
	body := join([]byte{family, unix.IPPROTO_TCP, 0, 0}, native32(all), port(from.Port()), port(to.Port()),
		address(from.Addr()), address(to.Addr()), native32(0), native32(noCookie), native32(noCookie))
	b := native32(uint32(unix.SizeofNlMsghdr + len(body)))
	b = binary.NativeEndian.AppendUint16(b, unix.SOCK_DIAG_BY_FAMILY)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
	return join(b, native32(seq), native32(0), body)
}

// holder returns a process that is in the network namespace netns and holds the socket with the
// inode socket. It returns the zero Program if it finds none before end. If first is not 0, it is
// the PID of the process that holder tries before all others.
func holder(netns uint64, socket uint32, first int, end time.Time) Program {
	want := fmt.Sprintf("net:[%d]", netns)
	isHolder := func(pid int) bool {
		dir := fmt.Sprintf("/proc/%d", pid)
		at, _ := os.Readlink(dir + "/ns/net")
		return at == want && holds(dir+"/fd", fmt.Sprintf("socket:[%d]", socket), end)
	}
	program := func(pid int) Program {
		path, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)) // "" if the process has just ended
		return Program{PID: pid, Path: names.Foreign(path)}
	}
	if first != 0 && isHolder(first) {
		return program(first)
	}
	proc, err := os.Open("/proc")
	if err != nil {
		return Program{}
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1) // after an error, the names that were read before it are tried
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && isHolder(pid) {
			return program(pid)
		}
		if time.Now().After(end) {
			break
		}
	}
	return Program{}
}

// holds reports whether dir, a directory of descriptors (/proc/PID/fd), has a descriptor of the file
// want. It reports false if it finds none before end.
func holds(dir, want string, end time.Time) bool {
	d, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	for {
		list, err := d.Readdirnames(256)
		for _, name := range list {
			if to, _ := os.Readlink(dir + "/" + name); to == want {
				return true
			}
		}
		if err != nil || time.Now().After(end) {
			return false
		}
	}
}
