package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// agent carries out the owners' orders for one machine, and gets the machine's leases. The sequence
// of the agent's steps is a promise: it stores an order on disk, writes the lease file, carries out
// the order in every session, and only then extends the lease.
type agent struct {
	m      *Member
	bus    *Bus   // to the first server
	buses  []*Bus // to all
	log    *slog.Logger
	dir    memberDir
	copies store         // of orders
	wake   chan struct{} // asks for a lease now
	status atomic.Pointer[StandingStatus]

	// The functions by which the agent acts on the machine. Tests replace them.
	carryOut   func(context.Context, []Revocation) ([]Ended, error)
	lower      func(context.Context) ([]Ended, error)
	writeLease func(control.Lease) error
	record     func(guard.Record) error
	member     fs.FileInfo // of the membership's file; nil: there is none, in tests

	mu          sync.Mutex // guards the fields below; held while an order is carried out
	known       map[string]signedOrder
	applied     map[string]uint64
	acks        map[string][]byte
	missing     map[string][]byte // orders that the keeper lacks
	sentMissing bool              // the last request for a lease had orders that the keeper lacked
	until       time.Duration     // the end of the lease, by control.BootTime
	leaseLock   string            // why the machine is locked, as the lease file says; "": it is not
	retired     bool              // the agent has to begin anew
	isLow       bool              // every session keeps to the ceilings of the known orders
}

// ack is a machine's signed confirmation that an order is carried out.
type ack struct {
	Machine string        `json:"machine"`
	For     string        `json:"for"`
	Number  uint64        `json:"n"`
	Sum     string        `json:"sum"` // of the order with its signature: two owners can have given the same number
	TookMS  float64       `json:"took_ms"`
	Locked  names.Foreign `json:"locked,omitempty"` // why the machine is locked, by any order
	Ended   []Ended       `json:"ended,omitempty"`  // at most maxEnded of them
	More    int           `json:"more,omitempty"`   // how many others ended
}

const kindAck = "ack"

// maxEnded bounds an ack, which has to fit into a message.
const maxEnded = 128

// The times of an agent.
const (
	applyTime   = 15 * time.Second       // for the sessions to carry out an order
	longestWait = time.Minute            // between two requests for a lease, however long the lease is
	retryTime   = time.Second            // after a request without a lease
	sliceTime   = 5 * time.Second        // after which a wait checks the clock: Go's timers stand still while a machine sleeps
	offlineTime = 250 * time.Millisecond // between two checks for a connection
)

// newAgent returns an agent with the orders and the lease that the machine has on disk, and with the
// numbers of the orders that the machine has carried out.
func newAgent(m *Member, buses []*Bus, dir string, log *slog.Logger, record func(guard.Record) error) (*agent, error) {
	a := &agent{
		m: m, bus: buses[0], buses: buses, log: log, dir: memberDir(dir), copies: store{filepath.Join(dir, "standing", m.ID)}, wake: make(chan struct{}, 1),
		carryOut: carryOut, lower: lowerSessions, writeLease: control.WriteLease, record: record,
		known: map[string]signedOrder{}, acks: map[string][]byte{},
	}
	var err error
	if a.applied, err = a.copies.loadApplied(); err != nil {
		return nil, err
	}
	for _, to := range a.recipients() {
		if a.known[to], err = a.copies.load(m.Charter, to); err != nil {
			return nil, fmt.Errorf("the machine's copy of an order cannot be read: %w", err)
		}
	}
	if old, err := control.ReadLease(); err == nil && old.Fleet == m.Fleet && old.Machine == m.Machine {
		a.until, a.leaseLock = time.Duration(old.Until), old.Locked
	}
	a.show()
	if a.member, err = os.Stat(a.dir.member()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	// The last agent may have ended before every session kept to the ceilings.
	a.isLow = !slices.ContainsFunc(a.recipients(), func(to string) bool { return a.known[to].Ceiling.isSet() })
	return a, a.keepCeilings() // the file of the ceilings may have been changed or removed
}

// recipients returns the recipients of the orders that this machine carries out: all machines, and
// this machine.
func (a *agent) recipients() []string { return []string{allMachines, a.m.Machine} }

// heads returns the numbers of the known orders. The caller holds mu.
func (a *agent) heads() map[string]uint64 {
	heads := map[string]uint64{}
	for _, to := range a.recipients() {
		heads[to] = a.known[to].Number
	}
	return heads
}

// lockReason returns why an order locks the machine, or "". The caller holds mu.
func (a *agent) lockReason() string {
	for _, to := range a.recipients() {
		if why := a.known[to].Locked; why != "" {
			return why
		}
	}
	return ""
}

// write writes the lease file. It ends the lease if an order locks the machine. It records the end of
// a lock before it writes the file. The caller holds mu.
func (a *agent) write() error {
	l := control.Lease{Fleet: a.m.Fleet, Machine: a.m.Machine, Until: int64(a.until), Heads: a.heads(), Locked: a.lockReason()}
	if l.Locked != "" {
		a.until, l.Until = 0, 0 // after an unlock the machine needs a new lease
	}
	if l.Locked == "" && a.leaseLock != "" {
		if err := a.recordUnlock(); err != nil {
			return err
		}
	}
	if err := a.writeLease(l); err != nil {
		return err
	}
	a.leaseLock = l.Locked
	return nil
}

// show updates the machine's status. The caller holds mu, or no other goroutine has the agent yet.
func (a *agent) show() {
	st := &StandingStatus{Applied: map[string]uint64{}, Locked: names.Foreign(a.lockReason()), until: a.until}
	for _, to := range a.recipients() {
		st.Applied[to] = a.applied[to]
		st.Behind = st.Behind || a.applied[to] < a.known[to].Number
	}
	a.status.Store(st)
}

// standing returns the machine's status, with the time that is left of its lease now.
func (a *agent) standing() *StandingStatus {
	st := *a.status.Load()
	if now, err := control.BootTime(); err == nil {
		st.LeftMS = max(st.until-now, 0).Milliseconds()
	}
	return &st
}

// receive stores an order if it is new, and carries it out.
func (a *agent) receive(ctx context.Context, to string, data []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer a.show()
	h, isNewer, err := newer(data, a.m.Charter, to, a.known[to])
	if err != nil {
		return fmt.Errorf("an order was refused: %w", err)
	}
	if isNewer {
		if err := a.copies.save(h); err != nil {
			return err
		}
		a.known[to] = h
	}
	return a.settle(ctx, to)
}

// settle carries out the known order for a recipient, and acknowledges the order to the owners. An
// order that was carried out before is only acknowledged again, because the ack may have been lost.
// The caller holds mu.
func (a *agent) settle(ctx context.Context, to string) error {
	h := a.known[to]
	if h.Number == 0 {
		return nil
	}
	if a.applied[to] < h.Number {
		begun := time.Now()
		// A session that begins after the call of write reads the order and its ceiling. A session
		// that began before is in the list that carryOut reads.
		ceilingErr := a.keepCeilings() // after an error, the order still revokes
		if err := a.write(); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, applyTime)
		ended, err := a.carryOut(ctx, h.due(a.applied[to]))
		if err == nil {
			err = ceilingErr
		}
		if err == nil {
			ended, err = a.lowerAll(ctx, ended)
		}
		cancel()
		if err != nil {
			return fmt.Errorf("the order %d for %s is not carried out yet, and there is no lease before: %w", h.Number, to, err)
		}
		took := float64(time.Since(begun).Microseconds()) / 1000
		if err := a.recordOrder(h, time.Since(begun), ended); err != nil {
			return fmt.Errorf("the order %d for %s cannot be recorded, and there is no lease before: %w", h.Number, to, err)
		}
		was := a.applied[to]
		a.applied[to] = h.Number
		if err := a.copies.saveApplied(a.applied); err != nil {
			a.applied[to] = was
			return err
		}
		a.log.Info("an order is carried out", "for", to, "number", h.Number, "by", keyName(h.by), "ended", len(ended), "locked", h.Locked, "took_ms", took)
		if a.acks[to], err = a.ackOf(to, took, ended); err != nil {
			return err
		}
		if a.until == 0 && a.lockReason() == "" {
			a.askNow()
		}
	}
	if a.acks[to] == nil {
		var err error
		if a.acks[to], err = a.ackOf(to, 0, nil); err != nil {
			return err
		}
	}
	var errs []error
	for _, b := range a.buses {
		errs = append(errs, b.Conn.Publish(b.Names.ack(a.m.Machine), a.acks[to]))
	}
	return errors.Join(errs...)
}

// ackOf returns the signed ack of the order for a recipient. The caller holds mu.
func (a *agent) ackOf(to string, took float64, ended []Ended) ([]byte, error) {
	slices.SortStableFunc(ended, func(x, y Ended) int { // roots with errors first
		return len(y.Error) - len(x.Error)
	})
	k := ack{Machine: a.m.Machine, For: to, Number: a.applied[to], Sum: hashOf(a.known[to].signed), TookMS: took, Locked: names.Foreign(a.lockReason()), Ended: ended}
	if len(ended) > maxEnded {
		k.Ended, k.More = ended[:maxEnded], len(ended)-maxEnded
	}
	for i := range k.Ended {
		k.Ended[i].Error = k.Ended[i].Error[:min(len(k.Ended[i].Error), maxText)]
	}
	return seal(a.m.key, a.m.ID, kindAck, k)
}

// askNow makes the agent ask for a lease at once.
func (a *agent) askNow() {
	select {
	case a.wake <- struct{}{}:
	default: // the agent is going to ask anyway
	}
}

// interval is the longest time between two requests for a lease.
func (a *agent) interval() time.Duration { return min(a.m.Charter.lease()/3, longestWait) }

// tryRenew asks for a lease, and returns how long to wait before the next request. last is the text
// of the last error, so that a repeated error is logged once.
func (a *agent) tryRenew(ctx context.Context, last *string) time.Duration {
	if !slices.ContainsFunc(a.buses, func(b *Bus) bool { return b.Conn.IsConnected() }) {
		return offlineTime
	}
	every := a.interval()
	limit, cancel := context.WithTimeout(ctx, min(every, connectTime)+applyTime)
	defer cancel()
	err := a.renew(limit)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != *last && ctx.Err() == nil {
		*last = text
		if err != nil {
			a.log.Warn("the lease is not renewed", "error", err)
		} else {
			a.log.Info("the fleet answers", "lease", a.m.Charter.lease(), "locked", a.status.Load().Locked)
		}
	}
	if err != nil {
		return min(every, retryTime)
	}
	return every - time.Duration(mathrand.Int64N(int64(every)/5+1)) // so that a thousand machines do not ask at once
}

func (a *agent) isRetired() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.retired
}

// retireIfLeft ends the agent if the machine has left the fleet, even if the machine has joined this
// fleet again, or another one.
func (a *agent) retireIfLeft() {
	now, err := os.Stat(a.dir.member())
	if a.member == nil || err == nil && os.SameFile(now, a.member) && now.ModTime().Equal(a.member.ModTime()) || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	a.log.Info("this machine has left the fleet", "fleet", a.m.Fleet, "machine", a.m.Machine)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.retired = true
}

// follow gets leases until ctx ends, there is a newer charter, the machine has left, or the clock
// cannot be read.
func (a *agent) follow(ctx context.Context) {
	last := ""
	for ctx.Err() == nil && !a.isRetired() {
		begun, err := control.BootTime()
		wait := a.tryRenew(ctx, &last)
		for now := begun; err == nil && now < begun+wait; now, err = control.BootTime() {
			select {
			case <-ctx.Done():
				return
			case <-a.wake:
				wait = 0
			case <-time.After(min(begun+wait-now, sliceTime)):
			}
			if a.retireIfLeft(); a.isRetired() {
				return
			}
		}
		if err != nil {
			a.log.Error("the clock cannot be read: the lease runs out", "error", err)
			return
		}
	}
}

// listen subscribes to orders. An order that was pushed while a connection was lost comes with the
// answer to the next request for a lease.
func (a *agent) listen(ctx context.Context) error {
	for _, b := range a.buses {
		b.Conn.SetReconnectHandler(func(*nats.Conn) {
			a.log.Info("connected to the fleet again")
			a.askNow()
		})
		for _, to := range a.recipients() {
			_, err := b.Conn.Subscribe(b.Names.orders(to), func(m *nats.Msg) {
				if err := a.receive(ctx, to, m.Data); err != nil {
					a.log.Warn("an order was not carried out", "error", err)
				}
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Host has the functions by which an agent asks about its machine.
type Host struct {
	Status func() MachineStatus
	// Allows returns the kinds of acts that the machine's user allows owners. AccessLook and
	// AccessStop are always allowed.
	Allows func() []control.Access
	// Shares reports whether the machine's user lets the fleet have the audit records.
	Shares func() bool
}

// RunAgent connects the machine, carries out its orders, gets its leases and answers owners, until
// ctx ends or the machine has left its fleet. It records its acts in an audit log. It calls ready
// when it has begun, which may be before it is connected.
func (m *Member) RunAgent(ctx context.Context, log *slog.Logger, records audit.Options, host Host, ready func() error) (err error) {
	dir, err := stateDir()
	if err != nil {
		return err
	}
	lock, err := lockAgent(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	recordLog, err := audit.Open(records)
	if err != nil {
		return fmt.Errorf("the records of the agent cannot be kept: %w", err)
	}
	defer func() { err = errors.Join(err, recordLog.Close()) }()
	// The record is in the file before the agent acknowledges the order.
	record := func(r guard.Record) error { return cmp.Or(recordLog.Record(r), recordLog.Flush()) }
	ready = sync.OnceValue(ready)
	for {
		if err := m.runCharter(ctx, dir, records.Dir, log, record, host, ready); !errors.Is(err, errRetired) {
			return err
		}
		if m, err = OpenMember(); errors.Is(err, errNoMember) {
			return nil // the machine has left
		} else if err != nil {
			return err
		}
	}
}

// runCharter is RunAgent under one charter. It returns errRetired if there is a newer charter, or if
// the machine has left the fleet.
func (m *Member) runCharter(ctx context.Context, dir, files string, log *slog.Logger, record func(guard.Record) error, host Host, ready func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	buses, err := m.dialAll(true, logOptions(log)...)
	if err != nil {
		return err
	}
	defer closeAll(buses)
	a, err := newAgent(m, buses, dir, log, record)
	if err != nil {
		return err
	}
	ship, err := newShippers(m, buses, dir, files, host.Shares, log)
	if err != nil {
		return err
	}
	if err := a.listen(ctx); err != nil {
		return err
	}
	for _, b := range buses {
		acts := &actor{m: m, bus: b, log: log, allows: host.Allows, record: record}
		if err := acts.listen(ctx); err != nil {
			return err
		}
		err := m.answerStatus(b, func() MachineStatus {
			st := host.Status()
			st.Standing = a.standing()
			st.Sent, st.RecordsWait = ship.status()
			for _, access := range host.Allows() {
				st.Allow = append(st.Allow, names.Foreign(access))
			}
			return st
		})
		if err != nil {
			return err
		}
	}
	if err := ready(); err != nil {
		return err
	}
	go m.keepCredential(ctx, buses, log)
	defer ship.start(ctx)()
	a.follow(ctx)
	if a.isRetired() {
		return errRetired
	}
	return nil
}

// keepCredential renews the machine's credential until ctx ends.
func (m *Member) keepCredential(ctx context.Context, buses []*Bus, log *slog.Logger) {
	for {
		if i := slices.IndexFunc(buses, func(b *Bus) bool { return b.Conn.IsConnected() }); i >= 0 {
			if err := m.renewCredential(ctx, buses[i]); err != nil && ctx.Err() == nil {
				log.Warn("the credential was not renewed", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(renewTime):
		}
	}
}

// lockAgent makes this process the machine's only agent, until the file is closed.
func lockAgent(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, ".agent"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, refused("another agent of this machine runs: end it first")
	}
	return f, nil
}
