package fleet

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rootsfs/rootsfs/guard/names"
)

// MachineStatus is a machine's own report.
type MachineStatus struct {
	Version     names.Foreign   `json:"version"`
	Sessions    []SessionStatus `json:"sessions"`
	Standing    *StandingStatus `json:"standing,omitempty"`
	Allow       []names.Foreign `json:"allow,omitempty"`        // what owners may do from afar, besides looking and stopping
	Sent        []SentSession   `json:"sent,omitempty"`         // the newest sessions whose records a keeper has confirmed
	RecordsWait names.Foreign   `json:"records_wait,omitempty"` // why no keeper gets audit records
}

// SentSession is how far a keeper has confirmed the records of a session to its machine.
type SentSession struct {
	Session names.Foreign `json:"session"`
	Record  uint64        `json:"record"` // the number of the last confirmed record
}

// StandingStatus is how far a machine has carried out its fleet's orders, and its lease.
type StandingStatus struct {
	Applied map[string]uint64 `json:"applied"` // the numbers of the orders carried out
	Behind  bool              `json:"behind"`  // some orders are not carried out
	Locked  names.Foreign     `json:"locked,omitempty"`
	LeftMS  int64             `json:"lease_left_ms"`

	until time.Duration // the end of the lease, by control.BootTime
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
	MachineLive     MachineState = "live"      // its sessions can work
	MachinePaused   MachineState = "paused"    // its lease is over, or all of its sessions are paused
	MachineLocked   MachineState = "locked"    // by an order
	MachineBehind   MachineState = "behind"    // it has not carried out the newest order
	MachineNoAnswer MachineState = "no_answer" // it has not answered in time
)

// Lag is an order that a machine has not carried out.
type Lag struct {
	For     string `json:"for"`
	Applied uint64 `json:"applied"` // the number of the last one that it has carried out; 0: none
	Newest  uint64 `json:"newest"`
}

// Machine is a machine of the fleet.
type Machine struct {
	Name   string       `json:"name"`
	State  MachineState `json:"state"`
	Key    string       `json:"key"` // the fingerprint of its signing key
	Joined time.Time    `json:"joined"`
	Heard  time.Time    `json:"last_heard,omitzero"` // when it answered, or else last asked the keeper for a lease
	TookMS float64      `json:"took_ms,omitempty"`   // until its answer
	Behind *Lag         `json:"behind,omitempty"`
	*MachineStatus
}

// InOrder reports whether the machine has answered, and has carried out every order.
func (m *Machine) InOrder() bool { return m.State != MachineNoAnswer && m.State != MachineBehind }

// StateText returns the state for people.
func (m *Machine) StateText() string {
	switch {
	case m.State == MachineNoAnswer:
		return "no answer"
	case m.Behind != nil:
		return fmt.Sprintf("behind: %d of %d", m.Behind.Applied, m.Behind.Newest)
	case m.State == MachineLocked:
		return fmt.Sprintf("locked: %q", m.Standing.Locked)
	}
	return string(m.State)
}

// judge sets the state of a machine that has answered. newest has the numbers of the orders for it.
func (m *Machine) judge(newest map[string]uint64) {
	st := StandingStatus{LeftMS: 1} // without a report: no order is carried out, and the lease is not over
	if m.Standing != nil {
		st = *m.Standing
	}
	for _, to := range []string{m.Name, allMachines} {
		if st.Applied[to] < newest[to] {
			m.Behind = &Lag{to, st.Applied[to], newest[to]}
		}
	}
	works := func(s SessionStatus) bool { return !s.Paused }
	switch {
	case m.Behind != nil || st.Behind:
		m.State = MachineBehind
	case st.Locked != "":
		m.State = MachineLocked
	case st.LeftMS <= 0 || len(m.Sessions) > 0 && !slices.ContainsFunc(m.Sessions, works):
		m.State = MachinePaused
	default:
		m.State = MachineLive
	}
}

// newest returns for each record's machine the numbers of the newest orders that the keepers or this
// owner have.
func (o *Owner) newest(recs []machineRecord) ([]map[string]uint64, error) {
	all, err := o.copies.load(o.Charter, allMachines)
	if err != nil {
		return nil, ownCopyError(err)
	}
	list := make([]map[string]uint64, len(recs))
	for i, rec := range recs {
		own, err := o.copies.load(o.Charter, rec.Name)
		if err != nil {
			return nil, ownCopyError(err)
		}
		list[i] = map[string]uint64{allMachines: max(all.Number, rec.Newest[allMachines]), rec.Name: max(own.Number, rec.Newest[rec.Name])}
	}
	return list, nil
}

// keyName returns the fingerprint of a signing key. People compare fingerprints.
func keyName(public string) string {
	sum := sha256.Sum256([]byte(public))
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])[:16]
}

// list returns the machines of the fleet, by the answers of the keepers.
func (o *Owner) list(ctx context.Context) ([]machineRecord, error) {
	state, err := o.syncKeepers(ctx)
	return merge(state, o.removed(state)), err
}

// statusAnswer is a machine's signed answer to a statusQuestion.
type statusAnswer struct {
	Number  string        `json:"number"`
	Machine string        `json:"machine"`
	Status  MachineStatus `json:"status"`
}

// statusQuestion asks all machines for their status. It needs no signature: every owner may ask.
type statusQuestion struct {
	Number string `json:"number"`
}

// Machines returns all machines of the fleet, with the status of those that answer within wait. An
// answer counts if the machine that it names has signed it.
func (o *Owner) Machines(ctx context.Context, wait time.Duration) ([]Machine, error) {
	recs, err := o.list(ctx)
	if err != nil {
		return nil, err
	}
	newest, err := o.newest(recs)
	if err != nil {
		return nil, err
	}
	all := make([]Machine, 0, len(recs))
	for _, rec := range recs {
		all = append(all, Machine{Name: rec.Name, State: MachineNoAnswer, Key: keyName(rec.Signing), Joined: rec.Joined, Heard: rec.Heard})
	}
	answers := make(chan *nats.Msg, (2*len(recs)+16)*len(o.buses))
	number, begun := rand.Text(), time.Now()
	question, err := json.Marshal(statusQuestion{number})
	if err != nil {
		return nil, err
	}
	for _, b := range o.buses {
		sub, err := b.Conn.ChanSubscribe(b.Conn.NewInbox(), answers)
		if err != nil {
			return nil, err
		}
		defer func() { _ = sub.Unsubscribe() }()
		if err := b.Conn.PublishRequest(o.Names.Status(), sub.Subject, question); err != nil {
			return nil, err
		}
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for missing := len(recs); missing > 0; {
		select {
		case m := <-answers:
			i, got := o.answerOf(recs, m.Data, number)
			if i < 0 || all[i].MachineStatus != nil {
				continue
			}
			all[i].MachineStatus, all[i].Heard = got, time.Now().UTC().Truncate(time.Second)
			all[i].TookMS = float64(time.Since(begun).Microseconds()) / 1000
			all[i].judge(newest[i])
			missing--
		case <-timeout.C:
			return all, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return all, nil
}

// answerOf returns the index in recs of the machine that has signed an answer, and the status in the
// answer; -1: none of these machines has signed it.
func (o *Owner) answerOf(recs []machineRecord, data []byte, number string) (int, *MachineStatus) {
	var a statusAnswer
	by, err := openSigned(data, o.Names.ID, kindStatus, anyKey, &a)
	i := slices.IndexFunc(recs, func(rec machineRecord) bool { return rec.Name == a.Machine && rec.Signing == by })
	if err != nil || a.Number != number {
		return -1, nil
	}
	return i, &a.Status
}

// answerStatus answers owners that ask for the machine's status, until the connection ends.
func (m *Member) answerStatus(b *Bus, status func() MachineStatus) error {
	_, err := b.Conn.Subscribe(b.Names.Status(), func(q *nats.Msg) {
		var asked statusQuestion
		if decode(q.Data, &asked) != nil || q.Reply == "" || !strings.HasPrefix(q.Reply, inbox(partyOwner)+".") {
			return
		}
		if data, err := seal(m.key, m.ID, kindStatus, statusAnswer{asked.Number, m.Machine, status()}); err == nil {
			_ = q.Respond(data) // the owner reports a machine without an answer
		}
	})
	return err
}

// logOptions returns options with which a connection logs when it is established or lost, and the
// errors of the server.
func logOptions(log *slog.Logger) []nats.Option {
	return []nats.Option{
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Warn("the fleet's server refuses", "error", err)
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { log.Warn("the connection to the fleet is lost", "error", err) }),
		nats.ConnectHandler(func(*nats.Conn) { log.Info("connected to the fleet") }),
	}
}

// renewTime is how often the age of the credential is checked.
const renewTime = time.Hour

// KeyName returns the fingerprint of the machine's signing key.
func (m *Member) KeyName() string { return keyName(m.key.Public()) }
