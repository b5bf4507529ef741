package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestProcess(t *testing.T) {
	l := newLab(t)
	ctx := context.Background()
	p, err := l.spawn.launch("shell", []string{"sh", "-c", "echo ready; echo oops >&2; read x; exit 3"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := p.line(ctx); err != nil || s != "ready" {
		t.Errorf("line: %q, %v", s, err)
	}
	if _, err := p.stdin.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := p.line(ctx); err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "oops") {
		t.Errorf("line of an ended child: %v", err)
	}
	if p, err = l.spawn.launch("cat", []string{"cat"}, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if _, err := l.spawn.launch("nothing", []string{"/nonexistent"}, nil); err == nil {
		t.Error("a program that does not exist was started")
	}
}

func TestTail(t *testing.T) {
	var l tail
	for range 1000 {
		if n, err := l.Write([]byte("0123456789")); n != 10 || err != nil {
			t.Fatal(n, err)
		}
	}
	if s := l.String(); len(s) != tailSize || !strings.HasSuffix(s, "56789") {
		t.Errorf("%d bytes kept", len(s))
	}
}

// A run that hangs is aborted, and guarded waits until it has ended.
func TestGuarded(t *testing.T) {
	released := make(chan struct{})
	var finished bool
	err := guarded(context.Background(), time.Millisecond, func() { close(released) }, func(context.Context) error {
		<-released
		finished = true
		return errors.New("transport endpoint is not connected")
	})
	if !finished || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("finished %v: %v", finished, err)
	}
	if err := guarded(context.Background(), time.Hour, func() { t.Error("aborted") }, func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
}

// A mount is removed after an orderly stop and after its daemon was killed. If the benchmark
// itself was killed, its next run removes the mount.
func TestMountsAreRemoved(t *testing.T) {
	l := newLab(t)
	p := loopback(t, l)
	for _, kill := range []bool{false, true} {
		m, err := l.start(context.Background(), p, l.path("src"))
		if err != nil {
			t.Fatal(err)
		}
		if kill {
			m.abort()
		}
		err = m.stop()
		if (err != nil) != kill {
			t.Errorf("killed %v: %v", kill, err)
		}
		if _, err := os.Lstat(m.mnt); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("killed %v: mountpoint: %v", kill, err)
		}
	}
	m, err := l.start(context.Background(), p, l.path("src"))
	if err != nil {
		t.Fatal(err)
	}
	m.abort()
	<-m.done
	if err := l.sweep(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(m.mnt); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after sweep: %v", err)
	}
}

// If a peer does not mount, start returns an error that names the peer, and leaves no mountpoint.
func TestPeerThatDoesNotMount(t *testing.T) {
	l := newLab(t)
	for _, line := range []bool{true, false} {
		p := peer{name: "liar", line: line, argv: func(string, string) []string {
			return []string{"sh", "-c", "echo mounted; echo no such device >&2"}
		}}
		if _, err := l.start(context.Background(), p, l.path("src")); err == nil || !strings.Contains(err.Error(), "liar") {
			t.Errorf("line %v: %v", line, err)
		}
	}
	if left, err := filepath.Glob(l.path("mnt", "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
