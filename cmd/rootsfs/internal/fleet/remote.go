package fleet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Remote is a machine at which its owner acts.
type Remote struct {
	Machine string

	o       *Owner
	signing string        // the machine's key
	wait    time.Duration // how long the machine may take to answer a challenge, and then to begin an answer
}

// Remotes returns the named machines, or all machines if none is named.
func (o *Owner) Remotes(ctx context.Context, machines []string, wait time.Duration) ([]*Remote, error) {
	recs, err := o.recipients(ctx, machines)
	if err != nil {
		return nil, err
	}
	var list []*Remote
	for _, rec := range recs {
		list = append(list, &Remote{Machine: rec.Name, o: o, signing: rec.Signing, wait: wait})
	}
	return list, nil
}

// sessions returns the live sessions of the machine. The machine may have made up all of them.
func (r *Remote) sessions(ctx context.Context) (all []control.Info, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.wait+silenceTime)
	defer cancel()
	got, err := r.act(ctx, control.Info{}, listPath, nil)
	if err != nil {
		return nil, err
	}
	defer got.Close()
	if got.Status == control.RefusalStatus {
		return nil, fmt.Errorf("the machine %s cannot list its sessions", r.Machine)
	}
	return all, json.NewDecoder(io.LimitReader(got, maxSealed)).Decode(&all)
}

// act sends a request to a session of the machine. The caller reads and closes the answer.
func (r *Remote) act(ctx context.Context, in control.Info, path string, body []byte) (*Answer, error) {
	number, bus, err := r.challenge(ctx)
	if err != nil {
		return nil, err
	}
	a := &Answer{r: r, bus: bus, stream: rand.Text(), messages: make(chan *nats.Msg, 8*frameWindow), queue: make(chan frame, 2*frameWindow), closed: make(chan struct{})}
	if a.sub, err = bus.Conn.ChanSubscribe(bus.Names.frames(r.Machine, a.stream), a.messages); err != nil {
		return nil, err
	}
	sealed, err := seal(r.o.key, r.o.Names.ID, kindAct, act{
		Machine: r.Machine, Number: number, Stream: a.stream, Session: in.Name, PID: in.PID, Start: in.Start, Path: path, Body: body,
	})
	if err == nil {
		err = a.send(toMachine{Act: sealed})
	}
	if err != nil {
		_ = a.sub.Unsubscribe()
		return nil, err
	}
	go a.receive()
	if err := a.begin(ctx); err != nil {
		_ = a.Close()
		return nil, err
	}
	return a, nil
}

// challenge asks the machine for a number. It tries one server after the other, until the machine
// answers. It returns the connection to that server, too.
func (r *Remote) challenge(ctx context.Context) (number string, b *Bus, err error) {
	question, err := toMachine{Challenge: true}.encode()
	if err != nil {
		return "", nil, err
	}
	for _, b := range r.o.buses {
		var m *nats.Msg
		limit, cancel := context.WithTimeout(ctx, r.wait)
		m, err = b.Conn.RequestWithContext(limit, b.Names.Do(r.Machine), question)
		cancel()
		if err == nil {
			var c challenge
			err := decode(m.Data, &c)
			return c.Number, b, err
		}
		if ctx.Err() != nil {
			return "", nil, ctx.Err()
		}
	}
	return "", nil, r.silentError(err)
}

// silentError returns the error for a machine that does not answer or cannot be asked. err says why
// no answer came.
func (r *Remote) silentError(err error) error {
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) {
		return fmt.Errorf("the machine %s does not answer; see: rootsfs fleet machines", r.Machine)
	}
	return fmt.Errorf("the machine %s cannot be asked: %w", r.Machine, err)
}

// send sends a message to the machine.
func (a *Answer) send(t toMachine) error {
	data, err := t.encode()
	if err != nil {
		return err
	}
	return a.bus.Conn.Publish(a.bus.Names.Do(a.r.Machine), data)
}

// Answer is the answer of a session of a machine. Read returns its body.
type Answer struct {
	Status int

	r        *Remote
	bus      *Bus // by which the machine answers
	stream   string
	sub      *nats.Subscription
	messages chan *nats.Msg // from the machine, not checked yet
	queue    chan frame     // checked frames; closed at the end of the answer
	rest     []byte         // of the frame that Read has begun
	end      sync.Once
	closed   chan struct{}

	mu   sync.Mutex // guards the fields below
	last uint64     // the number of the last frame that came
	read uint64     // the number of the last frame that was read
	err  error      // why the answer ended early
}

// errSilent says that no frames come any more.
var errSilent = errors.New("it does not answer any more")

// receive checks frames and tells the machine how far they are read, until the answer ends.
func (a *Answer) receive() {
	defer close(a.queue)
	alive, tick := time.Now(), time.NewTicker(progressTime/8)
	defer tick.Stop()
	var reported, count uint64
	for ticks := 0; ; {
		select {
		case m := <-a.messages:
			f, err := a.open(m)
			if err != nil {
				continue // from somebody else
			}
			alive = time.Now()
			if err := a.deliver(f); err != nil || f.End {
				a.fail(err)
				return
			}
			continue
		case <-a.closed:
			count++
			a.sendProgress(progress{Count: count, End: true})
			return
		case <-tick.C:
		}
		read := a.progress()
		// Every eighth tick is a sign of life. Between these, report each quarter of the window.
		if ticks++; ticks%8 == 1 || read >= reported+frameWindow/4 {
			count++
			reported = read
			a.sendProgress(progress{Count: count, Read: read})
		}
		if time.Since(alive) > silenceTime {
			a.fail(errSilent)
			return
		}
	}
}

// open returns a frame that the machine has signed for this answer.
func (a *Answer) open(m *nats.Msg) (f frame, err error) {
	_, err = openSigned(m.Data, a.r.o.Names.ID, kindFrame, func(by string) bool { return by == a.r.signing }, &f)
	if err == nil && (f.Machine != a.r.Machine || f.Stream != a.stream) {
		err = errors.New("it is of another answer")
	}
	return f, err
}

// deliver queues the next frame for the reader. It drops a frame that came before, and one that only
// shows that the machine is alive.
func (a *Answer) deliver(f frame) error {
	a.mu.Lock()
	next := a.last + 1
	if f.Number == next {
		a.last = f.Number
	}
	a.mu.Unlock()
	switch {
	case f.Number < next:
		return nil
	case f.Number > next:
		return errors.New("a part of the answer was lost")
	case f.Problem != "":
		return errors.New(names.EscapeQuoted(f.Problem.Raw()))
	case len(f.Data) == 0 && f.Status == 0 && f.Number > 1:
		return nil
	}
	select {
	case a.queue <- f:
		return nil
	default:
		return errors.New("it sends more than it may")
	}
}

// progress returns the number of the last frame that needs no more reading.
func (a *Answer) progress() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.queue) == 0 {
		return a.last
	}
	return a.read
}

// sendProgress tells the machine how far the answer is read.
func (a *Answer) sendProgress(p progress) {
	p.Machine, p.Stream = a.r.Machine, a.stream
	sealed, err := seal(a.r.o.key, a.r.o.Names.ID, kindProgress, p)
	if err == nil {
		err = a.send(toMachine{Progress: sealed})
	}
	if err != nil {
		a.fail(err) // without progress, the machine ends the answer
	}
}

// fail notes why the answer ends early, unless err is nil.
func (a *Answer) fail(err error) {
	if err == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.err = fmt.Errorf("the machine %s: %w", a.r.Machine, err)
	}
}

// begin waits until the machine has heard the act, and then for the status of the answer.
func (a *Answer) begin(ctx context.Context) error {
	heard := time.NewTimer(a.r.wait)
	defer heard.Stop()
	for {
		select {
		case f, ok := <-a.queue:
			if !ok {
				return a.endError(errors.New("no answer"))
			}
			a.noteRead(f)
			if f.Status != 0 {
				a.Status, a.rest = f.Status, f.Data
				return nil
			}
			heard.Stop()
		case <-heard.C:
			return a.r.silentError(context.DeadlineExceeded)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// noteRead notes that a frame was read.
func (a *Answer) noteRead(f frame) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read = f.Number
}

// endError returns why the answer ended early. If the answer did not end early, it returns
// fallback.
func (a *Answer) endError(fallback error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return a.err
	}
	return fallback
}

// Read implements io.Reader.
func (a *Answer) Read(p []byte) (int, error) {
	for len(a.rest) == 0 {
		f, ok := <-a.queue
		if !ok {
			return 0, a.endError(io.EOF)
		}
		a.noteRead(f)
		a.rest = f.Data
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// Close ends the answer at the machine, too.
func (a *Answer) Close() error {
	a.end.Do(func() { close(a.closed) })
	return a.sub.Unsubscribe()
}
