package console

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Whose a connection is, is told by the kernel.
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
		t.Fatalf("the user: %q", got)
	}
	if got := ask(65533); got != "" {
		t.Errorf("another user got %q", got)
	}
}

// Connections that are in use and never come to their end, of somebody without the
// secrets, do not keep the owner out.
func TestManySlowRequests(t *testing.T) {
	l := newLab(t)
	b := l.enter()
	more := func(n int) {
		for range n {
			_, _ = fmt.Fprint(l.dial(), "GET / HTTP/1.1\r\nX-Slow: ") // or it is turned away already
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

// The owner's stream outlives any number of strangers.
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
