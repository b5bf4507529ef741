package console

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// LinkFor is how long a link can be used.
	LinkFor = 5 * time.Minute
	// loginFor is how long the login of an idle browser lasts.
	loginFor = 12 * time.Hour
	// maxLogins is how many browsers are logged in at a time. A further one ends the oldest
	// login.
	maxLogins = 8
	// keyHeader carries the key that belongs to a cookie.
	keyHeader = "X-Rootsfs-Key"
)

// secret is the hash of a random text: comparing hashes reveals nothing about the text.
type secret [sha256.Size]byte

func newSecret() (text string, s secret) {
	text = rand.Text() // 128 bits
	return text, sha256.Sum256([]byte(text))
}

// is reports whether text is the secret, in constant time.
func (s *secret) is(text string) bool {
	sum := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(s[:], sum[:]) == 1
}

// access decides which requests may use the console.
type access struct {
	host   string // 127.0.0.1:PORT: the address that requests must name
	cookie string // the cookie's name, with the port in it, because all ports share cookies
	now    func() time.Time

	mu        sync.Mutex // guards the fields below
	link      secret
	linkUntil time.Time // zero: there is no link
	logins    []*login  // the oldest first
}

type login struct {
	cookie, key secret
	until       time.Time
}

// newLink makes the secret of a new link. It voids the earlier link.
func (a *access) newLink() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	text, s := newSecret()
	a.link, a.linkUntil = s, a.now().Add(LinkFor)
	return text
}

// redeem exchanges a link's secret for a cookie and a key, once.
func (a *access) redeem(text string) (cookie, key string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.now().Before(a.linkUntil) || !a.link.is(text) {
		return "", "", false
	}
	a.linkUntil = time.Time{}
	in := &login{until: a.now().Add(loginFor)}
	cookie, in.cookie = newSecret()
	key, in.key = newSecret()
	a.logins = append(a.logins, in)
	if len(a.logins) > maxLogins {
		a.logins = a.logins[1:]
	}
	return cookie, key, true
}

// known reports whether a request has the cookie and the key of a login that has not ended. If so,
// it prolongs the login.
func (a *access) known(r *http.Request) bool {
	key := r.Header.Get(keyHeader)
	a.mu.Lock()
	defer a.mu.Unlock()
	now, found := a.now(), false
	for _, in := range a.logins {
		// Compare both secrets of every login, so that the time reveals no partial match.
		both := in.key.is(key)
		both = a.hasCookie(r, in) && both
		if both && now.Before(in.until) {
			in.until, found = now.Add(loginFor), true
		}
	}
	return found
}

// hasCookie reports whether a request has a login's cookie. It compares every cookie of that name,
// because another server on the loopback address may have set a second one.
func (a *access) hasCookie(r *http.Request, in *login) bool {
	found := false
	for _, c := range r.CookiesNamed(a.cookie) {
		found = in.cookie.is(c.Value) || found
	}
	return found
}

// forget ends the login of a request.
func (a *access) forget(r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, in := range a.logins {
		if a.hasCookie(r, in) {
			in.until = time.Time{}
		}
	}
}

// foreign returns the reason why a request cannot be from the page itself, or "" if it can.
func (a *access) foreign(r *http.Request) string {
	change := r.Method != http.MethodGet && r.Method != http.MethodHead
	api := strings.HasPrefix(r.URL.Path, "/api/")
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	switch {
	case r.Host != a.host:
		return "it is addressed to another host"
	case origin != "" && origin != "http://"+a.host, len(r.Header.Values("Origin")) > 1:
		return "it comes from another origin"
	case change && origin == "":
		return "a change must say its origin"
	case change && r.Header.Get("Content-Type") != "application/json":
		return "a change is sent as application/json"
	case api && site != "" && site != "same-origin":
		return "it comes from another site"
	}
	return ""
}

// ownListener accepts only connections of one user, and of root. It closes connections of other
// users before it reads a byte. Both ends are on this machine and in this network namespace, so
// the kernel's table has the user of the other end. This is an additional protection: only the
// secrets keep out programs of the same user.
type ownListener struct {
	net.Listener
	log *slog.Logger
	uid uint32
}

// Accept implements net.Listener.
func (l *ownListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		uid, err := peerUID(c)
		if err == nil && (uid == l.uid || uid == 0) {
			return c, nil
		}
		if err == nil {
			l.log.Warn("a foreign user was turned away", "uid", uid)
		}
		_ = c.Close() // after an error, too: the other end has gone, and its user is unknown
	}
}

// tcpTable lists the connections of the network namespace.
const tcpTable = "/proc/self/net/tcp"

// peerUID returns the user of the other end of a connection over the loopback address.
func peerUID(c net.Conn) (uint32, error) {
	local, err1 := netip.ParseAddrPort(c.LocalAddr().String())
	remote, err2 := netip.ParseAddrPort(c.RemoteAddr().String())
	if err := errors.Join(err1, err2); err != nil {
		return 0, err
	}
	for try := 1; ; try++ {
		uid, err := lookUp(local, remote)
		if err == nil && uid == 0 {
			// A row can be written while the socket is being closed, and then has a wrong uid.
			// A second look-up then finds that the socket is closed.
			uid, err = lookUp(local, remote)
		}
		// The kernel writes the table in parts, and can leave out a row that moves meanwhile.
		if err == nil || try == 3 {
			return uid, err
		}
	}
}

// lookUp finds the user of the socket at remote that is connected to local.
func lookUp(local, remote netip.AddrPort) (uint32, error) {
	f, err := os.Open(tcpTable)
	if err != nil {
		return 0, fmt.Errorf("read the table of connections: %w", err)
	}
	defer f.Close()
	return ownerIn(f, local, remote)
}

// The columns of a row of tcpTable: sl local_address rem_address st tx:rx tr:when retrnsmt
// uid timeout inode.
const (
	columnLocal, columnRemote, columnState = 1, 2, 3
	columnUID, columnInode                 = 7, 9
	established                            = "01"
)

// ownerIn finds the user of the socket at remote in tcpTable. After a program has closed a socket,
// the kernel shows uid 0 and inode 0 for the socket, whichever user made it. So a socket
// with inode 0 counts as gone, and uid 0 counts as root only if the connection is established.
func ownerIn(table io.Reader, local, remote netip.AddrPort) (uint32, error) {
	// In the entry of the other end, our address is the remote one.
	want, from := tableAddr(remote), tableAddr(local)
	for in := bufio.NewScanner(table); in.Scan(); {
		row := strings.Fields(in.Text())
		if len(row) <= columnInode || row[columnLocal] != want || row[columnRemote] != from {
			continue
		}
		uid, err := strconv.ParseUint(row[columnUID], 10, 32)
		if row[columnInode] == "0" || uid == 0 && row[columnState] != established {
			break
		}
		return uint32(uid), err
	}
	return 0, errors.New("the other end of the connection is gone")
}

// tableAddr returns an address as in the kernel's table: in hexadecimal, with the bytes of the
// address as one number in this machine's byte order.
func tableAddr(a netip.AddrPort) string {
	ip := a.Addr().As4()
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(ip[:]), a.Port())
}
