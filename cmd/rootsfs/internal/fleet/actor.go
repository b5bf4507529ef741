package fleet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// actor carries out the acts of owners at this machine.
type actor struct {
	m      *Member
	bus    *Bus
	log    *slog.Logger
	allows func() []control.Access // what the machine's user allows, besides AccessLook and AccessStop
	record func(guard.Record) error

	mu      sync.Mutex               // guards the fields below
	numbers map[string]time.Duration // when each number was given out, by control.BootTime
	answers map[string]*answerWriter // answers under way, by the names of their streams
	looked  map[string]time.Duration // when the last look was recorded, by owner and session
}

// listen subscribes to the messages of owners until the connection ends. Acts end with ctx.
func (c *actor) listen(ctx context.Context) error {
	c.numbers, c.answers, c.looked = map[string]time.Duration{}, map[string]*answerWriter{}, map[string]time.Duration{}
	_, err := c.bus.Conn.Subscribe(c.bus.Names.Do(c.m.Machine), func(m *nats.Msg) {
		if err := c.hear(ctx, m); err != nil {
			c.log.Warn("an owner's act was refused", "error", err)
		}
	})
	return err
}

// hear handles a message to the machine.
func (c *actor) hear(ctx context.Context, m *nats.Msg) error {
	var t toMachine
	if err := decode(m.Data, &t); err != nil {
		return err
	}
	switch {
	case t.Challenge:
		return c.challenge(m)
	case t.Act != nil:
		var a act
		by, err := openSigned(t.Act, c.m.ID, kindAct, c.m.Charter.isOwner, &a)
		if err != nil {
			return err
		}
		to, ctx, err := c.begin(ctx, &a)
		if err != nil {
			return err
		}
		go func() {
			to.end(c.perform(ctx, &a, by, to))
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.answers, a.Stream)
		}()
		return nil
	}
	var p progress
	if _, err := openSigned(t.Progress, c.m.ID, kindProgress, c.m.Charter.isOwner, &p); err != nil {
		return err
	}
	if p.Machine != c.m.Machine {
		return errors.New("it is for another machine")
	}
	c.mu.Lock()
	to := c.answers[p.Stream]
	c.mu.Unlock()
	if to != nil {
		to.progress(p)
	}
	return nil
}

// challenge answers an owner with a new number for an act.
func (c *actor) challenge(m *nats.Msg) error {
	if !strings.HasPrefix(m.Reply, inbox(partyOwner)+".") {
		return errors.New("no owner asks")
	}
	now, err := control.BootTime()
	if err != nil {
		return err
	}
	number := rand.Text()
	c.mu.Lock()
	c.expire(now)
	if len(c.numbers) >= maxChallenges {
		c.numbers = map[string]time.Duration{} // somebody asks for numbers and does not use them
	}
	c.numbers[number] = now
	c.mu.Unlock()
	data, err := json.Marshal(challenge{number})
	if err != nil {
		return err
	}
	return m.Respond(data)
}

// expire forgets numbers that are too old. The caller holds mu.
func (c *actor) expire(now time.Duration) {
	for number, given := range c.numbers {
		if now-given > challengeTime {
			delete(c.numbers, number)
		}
	}
}

// begin uses up the number of an act, and begins its answer. The returned context ends with the
// answer.
func (c *actor) begin(ctx context.Context, a *act) (*answerWriter, context.Context, error) {
	now, err := control.BootTime()
	if err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire(now)
	_, isGiven := c.numbers[a.Number]
	switch {
	case a.Machine != c.m.Machine:
		return nil, nil, errors.New("it is for another machine")
	case !isGiven:
		return nil, nil, errors.New("its number is not one that this machine gave out, or was used, or is too old")
	case !inviteSyntax.MatchString(a.Stream) || c.answers[a.Stream] != nil:
		return nil, nil, errors.New("its stream is no name, or in use")
	case len(c.answers) >= maxActs:
		return nil, nil, errors.New("there are too many at a time")
	}
	delete(c.numbers, a.Number)
	ctx, cancel := context.WithCancel(ctx)
	to := &answerWriter{c: c, stream: a.Stream, cancel: cancel, read: make(chan struct{}, 1)}
	to.watchdog = time.AfterFunc(silenceTime, cancel)
	c.answers[a.Stream] = to
	return to, ctx, nil
}

// perform carries out an act, and sends the answer except its last frame. The error says why the
// answer ends early.
func (c *actor) perform(ctx context.Context, a *act, by string, to *answerWriter) error {
	if err := to.send(ctx, frame{}); err != nil { // tells the owner that the act was heard
		return err
	}
	go to.keepAlive(ctx)
	resp, err := c.request(ctx, a, by)
	if err != nil {
		return to.send(ctx, frame{Status: control.RefusalStatus, Data: control.RefusalBody(err)})
	}
	defer resp.Body.Close()
	if err := to.send(ctx, frame{Status: resp.StatusCode}); err != nil {
		return err
	}
	for buf := make([]byte, maxFrameData); ; {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if err := to.send(ctx, frame{Data: buf[:n]}); err != nil {
				return err
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
	}
}

// request passes an act on to its session, if the machine's user allows such acts, and puts the act
// on record.
func (c *actor) request(ctx context.Context, a *act, by string) (*http.Response, error) {
	if a.Session == "" && a.Path == listPath {
		if err := c.recordLook(a, by); err != nil {
			return nil, notRecorded(err)
		}
		return listSessions()
	}
	in, err := sessionOf(a)
	if err != nil {
		return nil, err
	}
	access, body, err := control.AccessOf(a.Path, a.Body)
	if err != nil {
		return nil, err
	}
	if err := c.checkAllowed(access); err != nil {
		return nil, errors.Join(err, c.recordAct(a, by, guard.Refused, err))
	}
	switch access {
	case control.AccessLook:
		err = c.recordLook(a, by)
	case control.AccessAnswer, control.AccessGrant: // without a record nothing is given
		err = c.recordAct(a, by, guard.Allowed, nil)
	}
	if err != nil {
		return nil, notRecorded(err)
	}
	resp, err := control.Dial(in).Forward(ctx, a.Path, body)
	if access == control.AccessStop {
		// A full disk must not keep anything alive.
		if recordErr := c.recordAct(a, by, guard.Allowed, nil); recordErr != nil {
			c.log.Error("an owner's act could not be put on record", "error", recordErr)
		}
	}
	return resp, err
}

func notRecorded(err error) error {
	return fmt.Errorf("the machine cannot put it on record, and does not do it: %w", err)
}

// checkAllowed returns an error unless owners may do a kind of acts at this machine.
func (c *actor) checkAllowed(access control.Access) error {
	switch {
	case access == control.AccessLook, access == control.AccessStop:
		return nil
	case access == control.AccessNone:
		return refused("this cannot be done from afar; do it at the machine %s", c.m.Machine)
	case slices.Contains(c.allows(), access):
		return nil
	}
	return refused("the machine %s does not let owners %s; its user allows it there, in the configuration (rootsfs help config): [fleet] allow = [%q]", c.m.Machine, allowWords[access], access)
}

// allowWords describe the kinds of acts that a user can allow, for people.
var allowWords = map[control.Access]string{control.AccessAnswer: "answer questions", control.AccessGrant: "grant anything"}

// listSessions answers with the live sessions of this machine.
func listSessions() (*http.Response, error) {
	all, err := control.List()
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(all)
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(data)))}, err
}

// sessionOf returns the session of an act.
func sessionOf(a *act) (control.Info, error) {
	all, err := control.List()
	if err != nil {
		return control.Info{}, err
	}
	for _, in := range all {
		if in.Name == a.Session && in.PID == a.PID && in.Start == a.Start {
			return in, nil
		}
	}
	return control.Info{}, fmt.Errorf("%w: %s has ended", control.ErrNoSession, names.Quote(a.Session))
}

// answerWriter writes the frames of an answer that is under way.
type answerWriter struct {
	c        *actor
	stream   string
	cancel   context.CancelFunc
	watchdog *time.Timer
	read     chan struct{} // has a token when the owner has read more

	mu       sync.Mutex // guards the fields below
	number   uint64     // of the last frame
	count    uint64     // of the last progress
	lastRead uint64     // the number of the last frame that the owner has read
}

// progress notes how far the owner has read, and that the owner is there.
func (t *answerWriter) progress(p progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.Count <= t.count {
		return
	}
	t.count, t.lastRead = p.Count, max(t.lastRead, p.Read)
	if p.End {
		t.cancel()
		return
	}
	t.watchdog.Reset(silenceTime)
	select {
	case t.read <- struct{}{}:
	default:
	}
}

// send sends a frame. A frame with data waits until the owner has read enough of the earlier ones.
func (t *answerWriter) send(ctx context.Context, f frame) error {
	for len(f.Data) > 0 && t.isFull() {
		select {
		case <-t.read:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.number++
	f.Machine, f.Stream, f.Number = t.c.m.Machine, t.stream, t.number
	data, err := seal(t.c.m.key, t.c.m.ID, kindFrame, f)
	if err != nil {
		return err
	}
	return t.c.bus.Conn.Publish(t.c.bus.Names.frames(t.c.m.Machine, t.stream), data)
}

// isFull reports whether the owner has to read before a frame with data may be sent.
func (t *answerWriter) isFull() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.number-min(t.lastRead, t.number) >= frameWindow
}

// keepAlive sends empty frames until ctx ends.
func (t *answerWriter) keepAlive(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(progressTime):
			if t.send(ctx, frame{}) != nil {
				return
			}
		}
	}
}

// end sends the last frame, with err if the answer ends early.
func (t *answerWriter) end(err error) {
	t.watchdog.Stop()
	t.cancel()
	last := frame{End: true}
	if err != nil {
		last.Problem = names.Text(err.Error())
	}
	if err := t.send(context.Background(), last); err != nil {
		t.c.log.Warn("the end of an answer was not sent", "error", err)
	}
}

// lookTime is the time between two records of the same owner's looking at the same session.
const lookTime = time.Minute

// recordLook records that an owner looks at a session, or at the list of sessions, unless the last
// record of such a look is younger than lookTime: a console looks every second. A watch, which
// lasts, is always recorded.
func (c *actor) recordLook(a *act, by string) error {
	now, err := control.BootTime()
	if err != nil {
		return err
	}
	key := by + " " + a.Session
	c.mu.Lock()
	last, isKnown := c.looked[key]
	c.mu.Unlock()
	if isKnown && now-last < lookTime && a.Path != control.WatchPath {
		return nil
	}
	if err := c.recordAct(a, by, guard.Allowed, nil); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.looked) > maxChallenges {
		c.looked = map[string]time.Duration{}
	}
	c.looked[key] = now
	return nil
}

// recordAct records an act of an owner. The record names no files; the session's own record does.
func (c *actor) recordAct(a *act, by string, verdict guard.Verdict, why error) error {
	owner := "owner " + keyName(by)
	r := guard.Record{
		Time: time.Now(), Via: guard.ViaControl, Op: names.OpSet, Verdict: verdict, Facts: guard.Facts{Origin: owner},
		Detail: fmt.Sprintf("session %s: %s from afar by %s", a.Session, strings.TrimPrefix(a.Path, "/v1/"), owner),
	}
	if a.Session == "" {
		r.Detail = "list of sessions from afar by " + owner
	}
	if why != nil {
		r.Kind = names.Permission
	}
	return c.record(r)
}
