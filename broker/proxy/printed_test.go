package proxy_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/rootsfs/rootsfs/broker/proxy"
)

// lines is a log that is read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Text that a server prints among its messages is in the log: marked, escaped, and bounded in
// length and number. (Only the number of such lines was.)
func TestPrinted(t *testing.T) {
	var log lines
	n := newLab(t, nil).connect(func(o *proxy.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	n.server.say("ACME_TOKEN is not set\x1b[2J\n")
	n.server.say("long" + strings.Repeat("é", 2000) + "end\n")
	n.server.say(strings.Repeat("noise\n", 1000))
	n.ping(n.server, n.host)
	said := log.String()
	if want := `text="ACME_TOKEN is not set\x1b[2J"`; !strings.Contains(said, want) || !strings.Contains(said, "the server printed") {
		t.Errorf("the log has no %s:\n%.400s", want, said)
	}
	if strings.Contains(said, "end\"") || !strings.Contains(said, "é…") {
		t.Errorf("a long line is not cut: %.3000s", said)
	}
	if got := strings.Count(said, "noise"); got < 90 || got > 110 {
		t.Errorf("%d lines of 1000 are logged", got)
	}
}
