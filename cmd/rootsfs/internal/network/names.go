package network

import (
	"errors"
	"hash/fnv"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Addresses inside of the namespace. 198.18.0.0/15 is set apart for tests of networks
// (RFC 2544) and has no public owner. The first 256 addresses are the gate's own.
var (
	namedNet = netip.MustParsePrefix("198.18.0.0/15")
	// loopbackNet replaces namedNet if no routes can be made.
	loopbackNet  = netip.MustParsePrefix("127.18.0.0/16")
	resolverAddr = netip.MustParseAddr("198.18.0.1") // in /etc/resolv.conf
	ownAddr      = netip.MustParseAddr("198.18.0.2") // the source of connections over IPv4
	ownAddr6     = netip.MustParseAddr("fd72:6f6f:7473::2")
)

const (
	firstNamed = 256

	// maxNames bounds the names of one program; more are refused.
	maxNames = 4096
	// newNames is how many new names a program may look up at once, and then in each minute. Below
	// a wildcard, nothing else bounds the data that can leave in the labels of names.
	newNames = 256
)

var errTooManyNames = errors.New("the program asked for too many names")

// nameTable gives each name an address of its own, and never gives that address to another
// name. So a connection to the address is meant for that name. It is safe for concurrent use.
type nameTable struct {
	net   netip.Prefix
	fresh *rate.Limiter // bounds the rate of new names

	mu     sync.Mutex // guards the fields below
	byName map[string]netip.Addr
	byAddr map[netip.Addr]string
}

func newNameTable(net netip.Prefix) *nameTable {
	return &nameTable{
		net: net, byName: map[string]netip.Addr{}, byAddr: map[netip.Addr]string{},
		fresh: rate.NewLimiter(rate.Every(time.Minute/newNames), newNames),
	}
}

// address returns the address of name. A hash of the name chooses the address, so that
// programs that remember addresses, such as ssh, usually get the same one in the next run.
func (t *nameTable) address(name string) (netip.Addr, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a, ok := t.byName[name]; ok {
		return a, nil
	}
	if len(t.byName) >= maxNames || !t.fresh.Allow() {
		return netip.Addr{}, errTooManyNames
	}
	h := fnv.New32a()
	h.Write([]byte(name))
	count := uint32(1)<<(32-t.net.Bits()) - 2*firstNamed
	for n := h.Sum32() % count; ; n = (n + 1) % count {
		i := n + firstNamed
		b := t.net.Addr().As4()
		a := netip.AddrFrom4([4]byte{b[0], b[1] + byte(i>>16), byte(i >> 8), byte(i)})
		if _, taken := t.byAddr[a]; !taken {
			t.byName[name], t.byAddr[a] = a, name
			return a, nil
		}
	}
}

// name returns the name that has addr, "" if none has. isOurs reports whether addr is of the net
// that names get their addresses from.
func (t *nameTable) name(addr netip.Addr) (name string, isOurs bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byAddr[addr], t.net.Contains(addr)
}
