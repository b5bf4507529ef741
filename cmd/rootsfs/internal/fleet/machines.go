package fleet

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rootsfs/rootsfs/guard/names"
)

// MachineStatus is what a machine says of itself.
type MachineStatus struct {
	Version  string          `json:"version"`
	Sessions []SessionStatus `json:"sessions"`
}

// SessionStatus is one live session of a machine.
type SessionStatus struct {
	Name      names.Foreign `json:"name"`
	Roots     int           `json:"roots"`
	Questions int           `json:"questions"`
	Paused    bool          `json:"paused"`
}

// MachineState says how a machine is, as far as an owner knows.
type MachineState string

// The states of machines.
const (
	MachineLive     MachineState = "live"      // it has answered
	MachineNoAnswer MachineState = "no_answer" // it has not answered in time
)

// Machine is a machine of the fleet.
type Machine struct {
	Name   string       `json:"name"`
	State  MachineState `json:"state"`
	Key    string       `json:"key"` // the fingerprint of its signing key
	Joined time.Time    `json:"joined"`
	TookMS float64      `json:"took_ms,omitempty"` // until its answer
	*MachineStatus
}

// KeyName is the fingerprint of a signing key, which people compare.
func KeyName(public string) string {
	sum := sha256.Sum256([]byte(public))
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])[:16]
}

// list asks the keeper which machines there are.
func (o *Owner) list(ctx context.Context) ([]machineRecord, error) {
	return askKeeper[struct{}, []machineRecord](ctx, o, o.Names.machines(), kindMachines, struct{}{})
}

// statusAnswer is a machine's signed answer to the question how it is.
type statusAnswer struct {
	Number  string        `json:"number"`
	Machine string        `json:"machine"`
	Status  MachineStatus `json:"status"`
}

// statusQuestion is the question. It needs no signature: every owner may ask.
type statusQuestion struct {
	Number string `json:"number"`
}

// Machines returns all machines of the fleet: those that have answered within a time, and the
// others. An answer counts if the machine of its name has signed it.
func (o *Owner) Machines(ctx context.Context, wait time.Duration) ([]Machine, error) {
	recs, err := o.list(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Machine, 0, len(recs))
	for _, rec := range recs {
		all = append(all, Machine{Name: rec.Name, State: MachineNoAnswer, Key: KeyName(rec.Signing), Joined: rec.Joined})
	}
	answers := make(chan *nats.Msg, 2*len(recs)+16)
	sub, err := o.Bus.Conn.ChanSubscribe(o.Bus.Conn.NewInbox(), answers)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	number, begun := rand.Text(), time.Now()
	question, err := json.Marshal(statusQuestion{number})
	if err != nil {
		return nil, err
	}
	if err := o.Bus.Conn.PublishRequest(o.Names.Status(), sub.Subject, question); err != nil {
		return nil, err
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for missing := len(recs); missing > 0; {
		select {
		case m := <-answers:
			i, got := o.answerOf(recs, m.Data, number)
			if i < 0 || all[i].State == MachineLive {
				continue
			}
			all[i].State, all[i].MachineStatus = MachineLive, got
			all[i].TookMS = float64(time.Since(begun).Microseconds()) / 1000
			missing--
		case <-timeout.C:
			return all, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return all, nil
}

// answerOf returns which machine has signed an answer, and the answer; -1: none of them.
func (o *Owner) answerOf(recs []machineRecord, data []byte, number string) (int, *MachineStatus) {
	var a statusAnswer
	by, err := Open(data, o.Names.ID, kindStatus, anyKey, &a)
	i := slices.IndexFunc(recs, func(rec machineRecord) bool { return rec.Name == a.Machine && rec.Signing == by })
	if err != nil || a.Number != number {
		return -1, nil
	}
	return i, &a.Status
}

// AnswerStatus has the machine answer owners that ask how it is, until the connection ends.
func (m *Member) AnswerStatus(b *Bus, status func() MachineStatus) error {
	_, err := b.Conn.Subscribe(b.Names.Status(), func(q *nats.Msg) {
		var asked statusQuestion
		if decode(q.Data, &asked) != nil || q.Reply == "" || !strings.HasPrefix(q.Reply, inbox(partyOwner)+".") {
			return
		}
		if data, err := Seal(m.key, m.ID, kindStatus, statusAnswer{asked.Number, m.Machine, status()}); err == nil {
			_ = q.Respond(data) // an owner who hears nothing says so
		}
	})
	return err
}

// RunAgent connects the machine and answers owners until ctx ends. It calls ready when it has
// begun: the connection may be made later.
func (m *Member) RunAgent(ctx context.Context, log *slog.Logger, status func() MachineStatus, ready func() error) error {
	b, err := m.dial(true)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := m.AnswerStatus(b, status); err != nil {
		return err
	}
	if err := ready(); err != nil {
		return err
	}
	for {
		if b.Conn.IsConnected() {
			if err := m.renewCredential(ctx, b); err != nil && ctx.Err() == nil {
				log.Warn("the credential was not renewed", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(renewTime):
		}
	}
}

// renewTime is how often the age of the credential is looked at.
const renewTime = time.Hour

// KeyName is the fingerprint of the machine's signing key.
func (m *Member) KeyName() string { return KeyName(m.key.Public()) }
