package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

func init() {
	// series connects to args[1:], one after the other, sends args[0] to each, and prints each
	// outcome.
	programs["series"] = func(args []string) error {
		for _, address := range args[1:] {
			fmt.Println(exchangeWith(address, args[0]))
		}
		return nil
	}
	// many connects to args[1:] at the same time, sends args[0] to each, and prints each outcome.
	programs["many"] = func(args []string) error {
		var all sync.WaitGroup
		results := make([]string, len(args)-1)
		for i, address := range args[1:] {
			all.Go(func() { results[i] = exchangeWith(address, args[0]) })
		}
		all.Wait()
		fmt.Println(strings.Join(results, "\n"))
		return nil
	}
}

// exchangeWith connects, sends, and returns the bytes that come until the end, or the error.
func exchangeWith(address, send string) string {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return "error: " + err.Error()
	}
	defer c.Close()
	_, err = io.WriteString(c, send)
	if err == nil {
		err = c.(*net.TCPConn).CloseWrite()
	}
	var b []byte
	if err == nil {
		b, err = io.ReadAll(c)
	}
	if err != nil { // the kernel reports a reset once, to a write or a read
		return "error: " + err.Error()
	}
	return string(b)
}

// person answers questions with answer, and keeps the questions.
type person struct {
	mu     sync.Mutex
	asked  []Question
	denied string // host that was denied before
	answer func(ctx context.Context, q Question) error
}

func (p *person) ask(ctx context.Context, q Question) error {
	p.mu.Lock()
	p.asked = append(p.asked, q)
	p.mu.Unlock()
	return p.answer(ctx, q)
}

func (p *person) questions() []Question {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Question{}, p.asked...)
}

// waitAsked waits until at least n questions were asked, and returns them.
func (p *person) waitAsked(t *testing.T, n int) []Question {
	t.Helper()
	var q []Question
	if !testkit.Eventually(func() bool { q = p.questions(); return len(q) >= n }) {
		t.Fatalf("%d questions, want %d", len(q), n)
	}
	return q
}

func yes(_ context.Context, q Question) error { return q.Permit() }

// nobody waits until a question is over, and does not answer it.
func nobody(ctx context.Context, _ Question) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// askOptions returns the options of a gate that asks p and resolves names to this machine.
func askOptions(t *testing.T, p *person, rules string, wait time.Duration) Options {
	t.Helper()
	denied := func(host string, _ uint16) error {
		if host == p.denied {
			return ErrDenied
		}
		return nil
	}
	o := Options{Ask: &Ask{Put: p.ask, Denied: denied, For: wait}, Resolver: resolver(&atomic.Int64{}, local)}
	if rules != "" {
		o.Rules = mustRules(t, rules)
	}
	return o
}

func TestQuestionIsAnswered(t *testing.T) {
	port := echo(t)
	release := make(chan struct{})
	p := &person{answer: func(_ context.Context, q Question) error {
		<-release
		if q.Host == "no.test" {
			return ErrDenied
		}
		return q.Permit()
	}}
	n := newNamespace(t, askOptions(t, p, "127.0.0.1", time.Minute))
	cmd, out := n.start("many", "hi", "a.test:"+port, "A.test:"+port, "no.test:"+port, "a.test:"+port)
	for _, q := range p.waitAsked(t, 2) {
		if q.Program.PID != cmd.Process.Pid || q.Program.Path.Raw() != exe(t) {
			t.Errorf("the program is %+v, want %d %s", q.Program, cmd.Process.Pid, exe(t))
		}
	}
	close(release)
	b, _ := io.ReadAll(out)
	lines := strings.Split(string(b), "\n")
	if lines[0] != "you said hi" || lines[1] != lines[0] || lines[3] != lines[0] || !strings.Contains(lines[2], "error: ") {
		t.Errorf("got %q", b)
	}
	if q := p.questions(); len(q) != 2 {
		t.Errorf("%d questions: %+v", len(q), q)
	}
	if e := n.find(Refused, "no.test"); !errors.Is(e.Reason, ErrDenied) || errors.Is(e.Reason, ErrNoRule) {
		t.Errorf("%+v", e)
	}
	if r := fmt.Sprint(n.g.Rules()); r != "[127.0.0.1 a.test:"+port+"]" {
		t.Errorf("rules are %s", r)
	}
}

func exe(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// A question lists the hosts that the program has reached so far. A yes holds for later
// connections.
func TestQuestionTellsWhatWasReached(t *testing.T) {
	port := echo(t)
	p := &person{answer: yes}
	n := newNamespace(t, askOptions(t, p, "127.0.0.1,a.test", time.Minute))
	if got := n.run("series", "hello", "a.test:"+port, "b.test:"+port, "a.test:"+port, "b.test:"+port); got != strings.Repeat("you said hello\n", 3)+"you said hello" {
		t.Errorf("got %q", got)
	}
	q := p.questions()
	if len(q) != 1 || len(q[0].Reached) != 1 || fmt.Sprintf("%+v", q[0].Reached[0]) != "{Host:a.test Port:"+port+" Sent:5 Received:14}" {
		t.Errorf("%+v", q)
	}
}

// A question does not list a host as reached if the connection to it could not be put on record, so
// that nothing was carried.
func TestUnrecordedHostIsNotReached(t *testing.T) {
	port := echo(t)
	p := &person{answer: yes}
	n := newNamespace(t, askOptions(t, p, "127.0.0.1,a.test", time.Minute))
	record := n.g.opt.Record
	n.g.opt.Record = func(e Event) error {
		if e.State == Opened && e.Host == "a.test" {
			return errors.New("the log is full")
		}
		return record(e)
	}
	if got := n.run("series", "hello", "a.test:"+port, "b.test:"+port); !strings.HasPrefix(got, "error:") || !strings.HasSuffix(got, "you said hello") {
		t.Errorf("got %q", got)
	}
	if q := p.waitAsked(t, 1); len(q) != 1 || len(q[0].Reached) != 0 {
		t.Errorf("%+v", q)
	}
}

// If nobody answers a question in time, the connection is refused. The next connection to the host
// causes another question. A late yes permits nothing.
func TestQuestionTimesOut(t *testing.T) {
	port := echo(t)
	late := make(chan error, 1)
	p := &person{answer: func(ctx context.Context, q Question) error {
		<-ctx.Done()
		late <- q.Permit()
		return nil
	}}
	n := newNamespace(t, askOptions(t, p, "127.0.0.1", 50*time.Millisecond))
	if got := n.run("series", "hello", "a.test:"+port, "a.test:"+port); !strings.Contains(got, "error: ") {
		t.Errorf("got %q", got)
	}
	if e := n.find(Refused, "a.test"); !errors.Is(e.Reason, ErrUnanswered) || !errors.Is(e.Reason, ErrNoRule) || e.Duration < 50*time.Millisecond {
		t.Errorf("%+v", e)
	}
	if err := <-late; !errors.Is(err, ErrUnanswered) {
		t.Errorf("a late answer: %v", err)
	}
	if len(p.questions()) != 2 || len(n.g.Rules()) != 1 {
		t.Errorf("%d questions, rules %v", len(p.questions()), n.g.Rules())
	}
}

// Addresses that are closed by default are refused without a question about them, also if an
// allowed name leads to them. A name is not sent to a resolver before the answer is yes.
func TestClosedAddressesAreNotAsked(t *testing.T) {
	port := echo(t)
	p := &person{answer: func(context.Context, Question) error { return ErrDenied }}
	var asked atomic.Int64
	o := askOptions(t, p, "", time.Minute)
	o.Resolver = resolver(&asked, local)
	n := newNamespace(t, o)
	got := n.run("many", "hi", "169.254.169.254:80", "10.0.0.1:80", "192.168.1.1:443", "100.100.100.200:80", "[fd00::1]:80", "[fe80::1]:80",
		"[::ffff:10.0.0.1]:80", "[64:ff9b::a00:1]:80", "198.18.9.9:80", "127.0.0.1:"+port, "no.test:"+port)
	if strings.Count(got, "error: ") != 11 {
		t.Errorf("got %q", got)
	}
	if q := p.questions(); len(q) != 1 || q[0].Host != "no.test" || asked.Load() != 0 {
		t.Errorf("questions: %+v; a resolver was asked %d times", q, asked.Load())
	}
	p = &person{answer: yes}
	n = newNamespace(t, askOptions(t, p, "", time.Minute))
	if got := n.run("get", "a.test:"+port, "hi"); strings.Contains(got, "you said") {
		t.Errorf("a name that leads to this machine: %q", got)
	}
	if e := n.find(Refused, "a.test"); !errors.Is(e.Reason, ErrClosed) {
		t.Errorf("%+v", e)
	}
}

// Public addresses are asked about like names.
func TestAddressIsAsked(t *testing.T) {
	p := &person{answer: func(_ context.Context, q Question) error {
		if r := q.Rule().String(); r != "1.1.1.1:7" && r != "[2606:4700::1]:7" {
			t.Errorf("the rule is %s", r)
		}
		return ErrDenied
	}}
	n := newNamespace(t, askOptions(t, p, "", time.Minute))
	n.run("many", "hi", "1.1.1.1:7", "[2606:4700::1]:7", "[::ffff:1.1.1.1]:7")
	if q := p.questions(); len(q) < 2 || len(q) > 3 { // the third comes while the first is open, or after
		t.Errorf("%+v", q)
	}
}

// A host that was denied causes no further question, however often it is tried.
func TestDeniedIsNotAskedAgain(t *testing.T) {
	port := echo(t)
	p := &person{answer: yes, denied: "no.test"}
	n := newNamespace(t, askOptions(t, p, "127.0.0.1", time.Minute))
	args := []string{"hi"}
	for range 2 * maxQuestions {
		args = append(args, "no.test:"+port)
	}
	if got := n.run("series", append(args, "a.test:"+port)...); strings.Count(got, "error: ") != 2*maxQuestions || !strings.HasSuffix(got, "you said hi") {
		t.Errorf("got %q", got)
	}
	if q := p.questions(); len(q) != 1 || q[0].Host != "a.test" {
		t.Errorf("%+v", q)
	}
}

// After RemoveAll there are no questions: a host without a rule is refused at once, with a
// record.
func TestNobodyIsAskedAfterRemoveAll(t *testing.T) {
	port := echo(t)
	p := &person{answer: yes}
	n := newNamespace(t, askOptions(t, p, "127.0.0.1", time.Minute))
	if _, err := n.g.names.address("late.test"); err != nil { // the program knows its address
		t.Fatal(err)
	}
	n.g.RemoveAll()
	if err := n.g.Add(mustRules(t, "127.0.0.1,b.test")...); err != nil {
		t.Fatal(err)
	}
	known, _ := n.g.names.address("late.test")
	got := n.run("series", "hi", "a.test:"+port, known.String()+":"+port, "1.1.1.1:80", "b.test:"+port)
	if strings.Count(got, "error: ") != 3 || !strings.Contains(got, "no such host") || !strings.HasSuffix(got, "you said hi") {
		t.Errorf("got %q", got)
	}
	for _, host := range []string{"a.test", "late.test", "1.1.1.1"} {
		if e := n.find(Refused, host); !errors.Is(e.Reason, ErrNoRule) {
			t.Errorf("%+v", e)
		}
	}
	if q := p.questions(); len(q) != 0 || n.g.IsAsking() {
		t.Errorf("%+v", q)
	}
}

// Remove and Close answer open questions with no. A rule that permits the host answers them
// with yes.
func TestQuestionIsOver(t *testing.T) {
	port := echo(t)
	for _, c := range []struct {
		what string
		end  func(g *Gate)
		want error
	}{
		{"all rules are removed", func(g *Gate) { g.Remove(g.Rules()...) }, ErrRevoked},
		{"another rule is removed", func(g *Gate) { g.Remove(g.Rules()[1]) }, ErrRevoked},
		{"the gate is closed", func(g *Gate) { g.Close() }, ErrEnded},
		{"a rule is added", func(g *Gate) { g.Add(Rule{Name: "*.a.test"}, Rule{Name: "a.test"}) }, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			late := make(chan error, 1)
			p := &person{answer: func(ctx context.Context, q Question) error {
				<-ctx.Done()
				late <- q.Permit()
				return nil
			}}
			n := newNamespace(t, askOptions(t, p, "127.0.0.1,other.test", time.Minute))
			_, out := n.start("get", "a.test:"+port, "hello")
			p.waitAsked(t, 1)
			n.g.Expire(Rule{Name: "none.test"}) // ends no question
			c.end(n.g)
			b, _ := io.ReadAll(out)
			if err := <-late; err == nil {
				t.Error("permitted after the end")
			}
			if c.want == nil {
				if string(b) != "you said hello\n" {
					t.Errorf("got %q", b)
				}
				return
			}
			if e := n.find(Refused, "a.test"); !errors.Is(e.Reason, c.want) || !strings.Contains(string(b), "error: ") {
				t.Errorf("%+v, got %q", e, b)
			}
		})
	}
}

// A yes that comes while everything is revoked leaves no rule.
func TestYesDuringRemoveAll(t *testing.T) {
	for range 200 {
		g := New(Options{Rules: mustRules(t, "a.test")})
		var begun, all sync.WaitGroup
		begun.Add(1)
		for port := range uint16(100) {
			to := target{"b.test", port + 1}
			q := &openQuestion{}
			q.ctx, q.cancel = context.WithCancelCause(t.Context())
			g.questions.open[to] = q
			all.Go(func() {
				begun.Wait()
				_ = g.permit(to, q)
			})
		}
		begun.Done()
		gone, _ := g.RemoveAll()
		all.Wait()
		if left := g.Rules(); len(gone) == 0 || len(left) != 0 {
			t.Fatalf("removed %d rules, left %v", len(gone), left)
		}
		g.Close()
	}
}

// If the kernel lacks nf_tables, or routes cannot be made either, there are questions about
// hosts only for the ports that have a listener.
func TestAskingWithLessReach(t *testing.T) {
	port := echo(t)
	for _, c := range []struct {
		dns   string
		lacks func(*Sockets)
	}{
		{"198.18.0.1:53", func(s *Sockets) { s.Netfilter.Close(); s.Netfilter = nil }},
		{"127.0.0.1:53", func(s *Sockets) { s.Route.Close(); s.Route = nil }},
	} {
		p := &person{answer: yes}
		n := newNamespace(t, askOptions(t, p, "127.0.0.1:"+port+",a.test:"+port, time.Minute))
		n.dns, n.lacks = c.dns, c.lacks
		got := n.run("series", "hi", "b.test:"+port, "b.test:"+port, "127.0.0.1:443", "127.0.0.1:80", "a.test:"+port, "b.test:81")
		if strings.Count(got, "you said hi") != 3 || strings.Count(got, "error: ") != 3 {
			t.Errorf("%s: got %q", n.g.Reach(), got)
		}
		if q := p.questions(); len(q) != 1 || q[0].Host != "b.test" {
			t.Errorf("%s: %+v", n.g.Reach(), q)
		}
	}
}

// After Ask.Until, look-ups say that hosts without a rule do not exist.
func TestAskingEnds(t *testing.T) {
	p := &person{answer: yes}
	o := askOptions(t, p, "", time.Minute)
	o.Ask.Until = time.Now()
	n := newNamespace(t, o)
	if got := n.run("lookup", "a.test"); got != "a.test [] true" {
		t.Errorf("got %q", got)
	}
	if len(p.questions()) != 0 {
		t.Errorf("%+v", p.questions())
	}
}
