package proxy_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/rootsfs/rootsfs/broker/proxy"
)

// lockedLog is a log that is read while it is written.
type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Text that a server prints among its messages is in the log: marked, escaped, and bounded in
// length and number.
func TestPrinted(t *testing.T) {
	var log lockedLog
	n := newLab(t, nil).connect(func(o *proxy.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	n.server.say("ACME_TOKEN is not set\x1b[2J\n")
	n.server.say("long" + strings.Repeat("é", 2000) + "end\n")
	n.server.say(strings.Repeat("noise\n", 1000))
	n.ping(n.server, n.host)
	logged := log.String()
	if want := `text="ACME_TOKEN is not set\x1b[2J"`; !strings.Contains(logged, want) || !strings.Contains(logged, "the server printed") {
		t.Errorf("the log has no %s:\n%.400s", want, logged)
	}
	if strings.Contains(logged, "end\"") || !strings.Contains(logged, "é…") {
		t.Errorf("a long line is not cut: %.3000s", logged)
	}
	if got := strings.Count(logged, "noise"); got < 90 || got > 110 {
		t.Errorf("%d lines of 1000 are logged", got)
	}
}
