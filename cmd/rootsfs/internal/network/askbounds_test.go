package network

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

func init() {
	// crowd connects to args[1:], one after the other, and leaves the connections idle. Only to
	// the last address it sends args[0], and prints the outcome.
	programs["crowd"] = func(args []string) error {
		last := len(args) - 1
		for _, address := range args[1:last] {
			if c, err := net.Dial("tcp", address); err == nil { // otherwise it is refused already
				defer c.Close()
			}
		}
		fmt.Println(exchangeWith(args[last], args[0]))
		time.Sleep(time.Minute) // the test kills the program
		return nil
	}
}

// A program that tries many hosts causes few questions, and the other attempts are refused at
// once.
func TestFloodOfQuestions(t *testing.T) {
	port := echo(t)
	p := &person{answer: nobody}
	n := newNamespace(t, askOptions(t, p, "127.0.0.1,*.ok.test", time.Minute))
	args := []string{"hi"}
	for i := range 200 {
		args = append(args, fmt.Sprintf("h%d.test:%s", i, port))
	}
	cmd, out := n.start("many", args...)
	refused := func() (others, many int) {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, e := range n.events {
			if errors.Is(e.Reason, errTooManyQuestions) {
				many++
			}
		}
		return len(n.events) - many, many
	}
	var open, waiting int
	testkit.Eventually(func() bool {
		n.g.mu.Lock()
		open, waiting = len(n.g.questions.open), n.g.questions.waiting
		n.g.mu.Unlock()
		_, many := refused()
		return many >= 200-maxQuestions-1 && many+open == 200
	})
	if others, many := refused(); others != 0 || many < 200-maxQuestions-1 || open != 200-many || waiting != open {
		t.Errorf("%d refused otherwise, %d for too many questions, %d open, %d wait", others, many, open, waiting)
	}
	n.g.Remove()
	b, _ := io.ReadAll(out)
	_ = cmd.Wait()
	if got := strings.Count(string(b), "error: "); got != 200 {
		t.Errorf("%d connections failed, want 200", got)
	}
}

// The connections that wait for the same answer have a bound.
func TestWaitingConnectionsAreBounded(t *testing.T) {
	port := echo(t)
	p := &person{answer: nobody}
	n := newNamespace(t, askOptions(t, p, "127.0.0.1", time.Minute))
	args := []string{"hi"}
	for range maxWaiting + 10 {
		args = append(args, "a.test:"+port)
	}
	cmd, _ := n.start("many", args...)
	p.waitAsked(t, 1)
	count := func() (n0 int) {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, e := range n.events {
			if errors.Is(e.Reason, errTooManyWaiting) {
				n0++
			}
		}
		return n0
	}
	testkit.Eventually(func() bool { return count() == 10 })
	if count() != 10 || len(p.questions()) != 1 {
		t.Errorf("%d refused, %d questions", count(), len(p.questions()))
	}
	_ = cmd.Process.Kill()
}

// If too many connections wait for one host, connections to other hosts are still carried.
func TestWaitingForOneHostLeavesOthers(t *testing.T) {
	port := echo(t)
	var full atomic.Bool
	p := &person{answer: func(ctx context.Context, q Question) error {
		if q.Host == "b.test" {
			return q.Permit()
		}
		full.Store(true)
		return nobody(ctx, q)
	}}
	n := newNamespace(t, askOptions(t, p, "127.0.0.1", time.Minute))
	args := []string{"hi"}
	for range 10 * maxWaiting {
		args = append(args, "a.test:"+port)
	}
	cmd, out := n.start("crowd", append(args, "b.test:"+port)...)
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "you said hi\n" || err != nil || !full.Load() {
		t.Errorf("%q, %v", line, err)
	}
	n.g.mu.Lock()
	waiting := n.g.questions.waiting
	n.g.mu.Unlock()
	if waiting != maxWaiting {
		t.Errorf("%d connections wait", waiting)
	}
	_ = cmd.Process.Kill()
}
