package console

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// The kernel says to which user a connection belongs.
func TestPeerUID(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 20 {
		ours, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if uid, err := peerUID(theirs); err != nil || uid != uint32(os.Geteuid()) {
			t.Errorf("%d, %v", uid, err)
		}
		_, _ = ours.Close(), theirs.Close()
	}
}

// In the kernel's table of connections, a socket that a program has closed belongs to root.
// peerUID returns an error for such a socket, and does not take the connection for root's.
func TestPeerHasGone(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, end := range map[string]func(*net.TCPConn) error{
		"closed": (*net.TCPConn).Close,
		"shut down, then closed": func(c *net.TCPConn) error {
			return errors.Join(c.CloseWrite(), c.Close())
		},
		"reset": func(c *net.TCPConn) error {
			return errors.Join(c.SetLinger(0), c.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			ours, err := net.Dial("tcp4", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			theirs, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer theirs.Close()
			if _, err := ours.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
				t.Fatal(err)
			}
			if err := end(ours.(*net.TCPConn)); err != nil {
				t.Fatal(err)
			}
			if uid, err := peerUID(theirs); err == nil {
				t.Errorf("a connection that its program has closed is taken for one of user %d", uid)
			}
		})
	}
}

// ownerIn returns the user that a row of the kernel's table of connections names. It returns an
// error if no row reliably names the user of the other end.
func TestTableRows(t *testing.T) {
	local, remote := netip.MustParseAddrPort("127.0.0.1:8080"), netip.MustParseAddrPort("127.0.0.1:4660")
	ends := tableAddr(remote) + " " + tableAddr(local)
	const counters = " 00000000:00000000 00:00000000 00000000 "
	for name, c := range map[string]struct {
		row     string
		uid     uint32
		wantErr bool
	}{
		"a user's":              {row: ends + " 01" + counters + " 1001        0 4711 1 0", uid: 1001},
		"root's":                {row: ends + " 01" + counters + "    0        0 4711 1 0"},
		"a user's, half shut":   {row: ends + " 05" + counters + " 1001        0 4711 1 0", uid: 1001},
		"root's, half shut":     {row: ends + " 05" + counters + "    0        0 4711 1 0", wantErr: true},
		"root's, no program":    {row: ends + " 01" + counters + "    0        0 0 1 0", wantErr: true},
		"in TIME-WAIT":          {row: ends + " 06" + counters + "    0        0 0 3 0", wantErr: true},
		"not accepted yet":      {row: ends + " 03" + counters + "    0        0 0 1 0", wantErr: true},
		"a row without its end": {row: ends + " 01" + counters + "    0        0", wantErr: true},
		"the other direction":   {row: tableAddr(local) + " " + tableAddr(remote) + " 01" + counters + "    0        0 4711 1 0", wantErr: true},
		"not a number":          {row: ends + " 01" + counters + "    x        0 4711 1 0", wantErr: true},
		"a user's, no program":  {row: ends + " 04" + counters + " 1001        0 0 1 0", wantErr: true},
	} {
		uid, err := ownerIn(strings.NewReader("  sl  local_address rem_address   st\n   7: "+c.row+"\n"), local, remote)
		if (err != nil) != c.wantErr || uid != c.uid {
			t.Errorf("%s: user %d, %v", name, uid, err)
		}
	}
}

// A request of another user is not read, even if the user has closed the connection before the
// console checks it.
func TestAnotherUserWhoHasGone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	inner, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &ownListener{Listener: inner, log: slog.New(slog.DiscardHandler)}
	defer l.Close()
	host, port, err := net.SplitHostPort(inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	const times = 20
	cmd := exec.CommandContext(t.Context(), "/bin/bash", "-c", fmt.Sprintf(`for i in {1..%d}; do exec 3<>/dev/tcp/%s/%s; echo foreign >&3; exec 3>&-; done`, times, host, port))
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65533, Gid: 65533}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	to := tableAddr(netip.MustParseAddrPort(inner.Addr().String()))
	testkit.Until(t, "the kernel no longer knows the user of the connections", func() bool {
		table, err := os.ReadFile(tcpTable)
		testkit.Must(t, err)
		return !strings.Contains(string(table), " "+to+" 04 ") // FIN-WAIT-1
	})
	own, err := net.Dial("tcp4", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if _, err := own.Write([]byte("own\n")); err != nil {
		t.Fatal(err)
	}
	foreign := 0
	for range times + 1 {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		_ = c.Close()
		if line == "own\n" {
			break
		}
		t.Logf("%q, %v", line, err)
		foreign++
	}
	if foreign > 0 {
		t.Errorf("%d of %d connections of another user were let in", foreign, times)
	}
}

// Another user of the machine gets nothing, not even the page.
func TestAnotherUserIsTurnedAway(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	l := newLab(t)
	host, port, err := net.SplitHostPort(l.s.access.host)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(uid uint32) string {
		script := fmt.Sprintf(`exec 3<>/dev/tcp/%s/%s; printf 'GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' >&3; head -c 12 <&3`, host, port, l.s.access.host)
		cmd := exec.CommandContext(t.Context(), "/bin/bash", "-c", script)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.Output()
		if len(out) == 0 && err == nil {
			return ""
		}
		return string(out)
	}
	if got := ask(0); got != "HTTP/1.1 200" {
		t.Fatalf("the user of the console got %q", got)
	}
	if got := ask(65533); got != "" {
		t.Errorf("another user got %q", got)
	}
}

// Many unfinished requests from somebody without the secrets do not keep the owner out.
func TestManySlowRequests(t *testing.T) {
	l := newLab(t)
	b := l.enter()
	more := func(n int) {
		for range n {
			_, _ = fmt.Fprint(l.dial(), "GET / HTTP/1.1\r\nX-Slow: ") // fails if the connection is turned away already
		}
	}
	more(2 * maxConns)
	fresh := &http.Transport{DisableKeepAlives: true}
	defer fresh.CloseIdleConnections()
	for range 10 {
		more(5)
		r, err := fresh.RoundTrip(b.request("GET", "/api/verify", "", nil))
		if err != nil {
			t.Fatalf("the owner is kept out: %v", err)
		}
		_ = r.Body.Close()
		if r.StatusCode != 200 {
			t.Errorf("the owner is kept out: %d", r.StatusCode)
		}
	}
}

// The owner's stream goes on while strangers open more connections than the console serves.
func TestStrangersDoNotEndTheStream(t *testing.T) {
	l := newLab(t)
	b := l.enter()
	stream, err := b.open("/api/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	in := bufio.NewReader(stream)
	if _, err := in.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for range 3 * maxConns {
		l.dial()
	}
	l.session("late", "x")
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ended: %v", err)
		}
		if strings.Contains(line, `"late"`) {
			return
		}
	}
}
