package fleet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// machineRecord has the keys by which the keeper knows a machine.
type machineRecord struct {
	Name       string    `json:"name"`
	Signing    string    `json:"signing"`    // the key that signs what the machine says
	Connection string    `json:"connection"` // the key of its connection
	Invite     string    `json:"invite"`
	Joined     time.Time `json:"joined"`

	// The keeper adds these fields when it answers an owner.
	Heard  time.Time         `json:"heard,omitzero"`   // when the machine last asked for a lease, since the keeper began
	Newest map[string]uint64 `json:"newest,omitempty"` // the numbers of the orders that the machine should have, by recipient
}

// inviteRecord is an invite and its use.
type inviteRecord struct {
	ID       string    `json:"id"`
	Machine  string    `json:"machine"`
	Public   string    `json:"public"` // the key of the bearer's connection
	Expires  time.Time `json:"expires"`
	UsedBy   string    `json:"used_by,omitempty"` // the signing key of the machine that joined
	Refusals int       `json:"refusals,omitempty"`
}

// registrar is the part of the keeper that knows which machines there are. It syncs its own files
// before it answers. So no invite is used twice, even if the message server loses its data.
type registrar struct {
	s        *Server
	key      *Key // the keeper's signing key
	requests *limits

	mu sync.Mutex // held during a change of the files
}

// machineTime is how long a machine's connection credential is valid. The machine renews it when half of
// that time is over.
const machineTime = 30 * 24 * time.Hour

// maxInvite bounds how long an invite is valid.
const maxInvite = 7 * 24 * time.Hour

// newRegistrar returns the registrar of a server. It serves nobody yet.
func newRegistrar(s *Server) (*registrar, error) {
	key, err := loadKey(s.dir.signing())
	return &registrar{s: s, key: key, requests: newLimits(requestRate, requestBurst)}, err
}

// serve begins to answer machines, owners and the bearers of invites. It answers until the connection is
// closed.
func (r *registrar) serve() error {
	n := r.s.Names
	for subject, handle := range map[string]nats.MsgHandler{
		n.join("*"):           r.bounded(r.onJoin),
		n.ofMachines("renew"): r.bounded(r.onRenew),
		n.ofMachines("leave"): r.bounded(r.onLeave),
		n.invites():           fromOwner(r, kindInvite, r.invite),
		n.removals():          fromOwner(r, kindRemove, r.remove),
		n.charters():          r.onCharters,
	} {
		if _, err := r.s.Bus.Conn.Subscribe(subject, handle); err != nil {
			return err
		}
	}
	return r.s.Bus.Conn.Flush()
}

// request is a request of an owner or a machine to the keeper, and reply the answer. The number is
// chosen anew for each request, so that no old answer fits a new request.
type request[T any] struct {
	Number string `json:"number"`
	Body   T      `json:"body"`
}

type reply[T any] struct {
	Number  string `json:"number"`
	Refused string `json:"refused,omitempty"`
	Body    T      `json:"body"`
}

// Kinds of signed documents between owners, machines and the registrar.
const (
	kindInvite   = "invite"
	kindMachines = "machines"
	kindRemove   = "remove"
	kindJoin     = "join"
	kindRenew    = "renew"
	kindLeave    = "leave"
	kindStatus   = "status"
	replySuffix  = ".reply"
)

// fromOwner returns the handler of a request that only owners may make. The bus can repeat an old
// request. So each request names the state that it changes, and does nothing in another state. An
// invite has an ID that is used once. An order has a number that is higher than the numbers of all
// orders before it. A removal names the invite by which the machine joined.
func fromOwner[In, Out any](r *registrar, kind string, handle func(In) (Out, error)) nats.MsgHandler {
	return func(m *nats.Msg) {
		var q request[In]
		c, err := r.charter()
		if err == nil {
			_, err = openSigned(m.Data, r.s.Names.ID, kind, c.isOwner, &q)
		}
		if err != nil {
			r.s.log.Warn("a request that no owner signed was refused", "kind", kind, "error", err)
			return
		}
		r.mu.Lock()
		out, err := handle(q.Body)
		r.mu.Unlock()
		if err != nil {
			r.s.log.Warn("a request was refused", "kind", kind, "error", err)
		}
		answer(r, m, partyOwner, kind, q.Number, out, err)
	}
}

// answer signs and sends an answer.
func answer[Out any](r *registrar, m *nats.Msg, party, kind, number string, out Out, err error) {
	a := reply[Out]{Number: number, Body: out}
	if err != nil {
		a = reply[Out]{Number: number, Refused: refusalText(err)}
	}
	data, err := seal(r.key, r.s.Names.ID, kind+replySuffix, a)
	if err == nil {
		err = r.s.Bus.answer(m, party, data)
	}
	if err != nil {
		r.s.log.Warn("a request was not answered", "kind", kind, "error", err)
	}
}

// refusalText returns the text of a keeper's error for the party that asked. That party may run on
// another machine, so the text says that a full disk is the keeper's.
func refusalText(err error) string {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Sprintf("the keeper's disk is full (%v): make room there, and give the command again", err)
	}
	return err.Error()
}

// charter returns the fleet's charter.
func (r *registrar) charter() (*Charter, error) {
	c, _, err := r.s.dir.charters().load(r.s.Names.ID)
	return c, err
}

func (r *registrar) inviteFile(id string) string {
	return r.s.dir.file("keeper", "invites", id+".json")
}

func (r *registrar) machineFile(name string) string {
	return r.s.dir.file("keeper", "machines", name+".json")
}

// machine returns the record of a machine; nil: there is no such machine.
func (r *registrar) machine(name string) (*machineRecord, error) {
	var rec machineRecord
	err := readJSON(r.machineFile(name), &rec)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return &rec, err
}

// inviteRequest is an owner's request for an invite.
type inviteRequest struct {
	ID      string    `json:"id"`
	Machine string    `json:"machine"`
	Public  string    `json:"public"`
	Expires time.Time `json:"expires"`
}

// inviteAnswer has the claim with which the bearer of an invite connects.
type inviteAnswer struct {
	JWT string `json:"jwt"`
}

func (r *registrar) invite(q inviteRequest) (inviteAnswer, error) {
	if err := CheckName("a machine", q.Machine); err != nil {
		return inviteAnswer{}, err
	}
	if left := time.Until(q.Expires); left <= 0 || left > maxInvite || !inviteSyntax.MatchString(q.ID) {
		return inviteAnswer{}, errors.New("the invite has expired, or is longer valid than a week")
	}
	switch rec, err := r.machine(q.Machine); {
	case err != nil:
		return inviteAnswer{}, err
	case rec != nil:
		return inviteAnswer{}, fmt.Errorf("there is a machine %s; to let another one have the name: rootsfs fleet remove %s", q.Machine, names.ShellWord(q.Machine))
	}
	file := r.inviteFile(q.ID)
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return inviteAnswer{}, errors.New("the invite is there already")
	}
	token, err := r.s.sign(invitesKey, q.Public, q.ID, q.Expires)
	if err != nil {
		return inviteAnswer{}, err
	}
	r.forgetInvites()
	return inviteAnswer{token}, writeJSON(file, inviteRecord{ID: q.ID, Machine: q.Machine, Public: q.Public, Expires: q.Expires})
}

// forgetInvites removes the records of invites that ended long ago: their claims have expired,
// so that the server accepts them no more.
func (r *registrar) forgetInvites() {
	files, _ := filepath.Glob(r.inviteFile("*")) // the pattern is good
	for _, file := range files {
		var inv inviteRecord
		if readJSON(file, &inv) == nil && time.Since(inv.Expires) > maxInvite {
			_ = os.Remove(file) // it is tried again with the next invite
		}
	}
}

// joinRequest is a machine's request to be enrolled by an invite. The machine's new signing key signs it.
type joinRequest struct {
	Invite     string `json:"invite"`
	Connection string `json:"connection"`
}

// joinAnswer is the answer to a joinRequest: the machine's name and connection, and the fleet's
// charter.
type joinAnswer struct {
	Machine    string `json:"machine"`
	Invite     string `json:"invite"`
	Signing    string `json:"signing"`
	Connection string `json:"connection"`
	JWT        string `json:"jwt"`
	Charter    []byte `json:"charter"`
	Enrolment  []byte `json:"enrolment,omitempty"`
}

func (r *registrar) onJoin(m *nats.Msg) {
	id := r.s.Names.inviteOf(m.Subject)
	var q request[joinRequest]
	by, err := openSigned(m.Data, r.s.Names.ID, kindJoin, anyKey, &q)
	if err == nil && (id == "" || q.Body.Invite != id) {
		err = errors.New("it is for another invite")
	}
	if err != nil {
		r.s.log.Warn("a request to join was refused", "error", err)
		return
	}
	r.mu.Lock()
	out, err := r.join(q.Body, by)
	r.mu.Unlock()
	if err != nil {
		r.s.log.Warn("a machine was not let in", "invite", id, "key", keyName(by), "error", err)
	} else {
		r.s.log.Info("a machine has joined", "machine", out.Machine, "key", keyName(by))
	}
	answer(r, m, r.joiningParty(id), kindJoin, q.Number, out, err)
}

// joiningParty returns the party in whose inbox the bearer of an invite gets the answer: the invite at a
// server of the fleet's own, and the machine at an external server.
func (r *registrar) joiningParty(id string) string {
	var inv inviteRecord
	if r.s.nats == nil && readJSON(r.inviteFile(id), &inv) == nil {
		return inv.Machine
	}
	return id
}

// join enrols a machine. The same machine may ask twice, because an answer can be lost.
func (r *registrar) join(q joinRequest, by string) (joinAnswer, error) {
	var inv inviteRecord
	if err := readJSON(r.inviteFile(q.Invite), &inv); err != nil {
		return joinAnswer{}, errors.New("there is no such invite")
	}
	rec, err := r.machine(inv.Machine)
	switch {
	case err != nil:
		return joinAnswer{}, err
	case time.Now().After(inv.Expires):
		return joinAnswer{}, errors.New("the invite has expired")
	case inv.UsedBy != "" && inv.UsedBy != by:
		inv.Refusals++
		return joinAnswer{}, errors.Join(fmt.Errorf("the invite of %s has been used, by the key %s; if that is not yours, have the owner remove it: rootsfs fleet remove %s", inv.Machine, keyName(inv.UsedBy), names.ShellWord(inv.Machine)), writeJSON(r.inviteFile(q.Invite), inv))
	case inv.UsedBy != "" && (rec == nil || rec.Invite != inv.ID || rec.Connection != q.Connection):
		return joinAnswer{}, fmt.Errorf("the invite of %s has been used", inv.Machine)
	case inv.UsedBy == "" && rec != nil:
		return joinAnswer{}, fmt.Errorf("there is a machine %s", inv.Machine)
	}
	inv.UsedBy = by
	if err := writeJSON(r.inviteFile(q.Invite), inv); err != nil {
		return joinAnswer{}, err
	}
	rec = &machineRecord{Name: inv.Machine, Signing: by, Connection: q.Connection, Invite: inv.ID, Joined: time.Now().UTC().Truncate(time.Second)}
	if err := writeJSON(r.machineFile(rec.Name), rec); err != nil {
		return joinAnswer{}, err
	}
	token, err := r.s.sign(machinesKey, rec.Connection, rec.Name, time.Now().Add(machineTime))
	if err != nil {
		return joinAnswer{}, err
	}
	charter, err := readOwn(r.s.dir.charters().newest())
	if err != nil {
		return joinAnswer{}, err
	}
	enrolled, err := r.enrolment(rec, nil)
	return joinAnswer{Machine: rec.Name, Invite: inv.ID, Signing: by, Connection: rec.Connection, JWT: token, Charter: charter, Enrolment: enrolled}, err
}

// openMachineRequest opens a request. The machine in the subject of m must have signed the request.
// openMachineRequest returns the record of that machine, too.
func openMachineRequest[In any](r *registrar, m *nats.Msg, kind string) (q request[In], rec *machineRecord, err error) {
	name := r.s.Names.machineOf(m.Subject)
	if name == "" {
		return q, nil, errors.New("it is of no machine")
	}
	if rec, err = r.machine(name); err != nil {
		return q, nil, err
	} else if rec == nil {
		return q, nil, fmt.Errorf("there is no machine %s", name)
	}
	_, err = openSigned(m.Data, r.s.Names.ID, kind, func(by string) bool { return by == rec.Signing }, &q)
	return q, rec, err
}

// onRenew gives a machine a new credential for its connection key, valid for machineTime from now.
func (r *registrar) onRenew(m *nats.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q, rec, err := openMachineRequest[struct{}](r, m, kindRenew)
	if err != nil {
		r.s.log.Warn("a credential was not renewed", "error", err)
		return
	}
	token, err := r.s.sign(machinesKey, rec.Connection, rec.Name, time.Now().Add(machineTime))
	answer(r, m, rec.Name, kindRenew, q.Number, inviteAnswer{token}, err)
}

// onLeave removes a machine that leaves. It answers before it ends the machine's connection.
func (r *registrar) onLeave(m *nats.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q, rec, err := openMachineRequest[struct{}](r, m, kindLeave)
	if err == nil {
		err = errors.Join(r.recordRemoval(rec.Invite), os.Remove(r.machineFile(rec.Name)))
	}
	if err != nil {
		r.s.log.Warn("a machine could not leave", "error", err)
		return
	}
	r.s.log.Info("a machine has left", "machine", rec.Name)
	answer(r, m, rec.Name, kindLeave, q.Number, struct{}{}, nil)
	_ = r.s.Bus.Conn.Flush() // if the answer is lost, the machine leaves anyway
	if err := r.s.refuse(rec.Connection); err != nil {
		r.s.log.Error("the credential of a machine that left is still valid", "machine", rec.Name, "error", err)
	}
}

// removeRequest names a machine to remove. Another machine may get its name, so the request has the
// key, too. The machine may join again with its old key, so the request has the invite, too.
type removeRequest struct {
	Machine string `json:"machine"`
	Signing string `json:"signing"`
	Invite  string `json:"invite"`
}

func (r *registrar) remove(q removeRequest) (struct{}, error) {
	if err := CheckName("a machine", q.Machine); err != nil {
		return struct{}{}, err
	}
	if err := r.recordRemoval(q.Invite); err != nil {
		return struct{}{}, err
	}
	rec, err := r.machine(q.Machine)
	switch {
	case err != nil:
		return struct{}{}, err
	case rec == nil: // of another keeper, or removed before
		return struct{}{}, nil
	case rec.Signing != q.Signing || rec.Invite != q.Invite:
		return struct{}{}, fmt.Errorf("there is no machine %s with this key and invite", q.Machine)
	}
	if err := r.s.refuse(rec.Connection); err != nil {
		return struct{}{}, err
	}
	r.s.log.Info("a machine was removed", "machine", rec.Name, "key", keyName(rec.Signing))
	return struct{}{}, os.Remove(r.machineFile(rec.Name))
}

// list returns all machines.
func (r *registrar) list() ([]machineRecord, error) {
	files, _ := filepath.Glob(r.machineFile("*")) // the pattern is good
	all := []machineRecord{}
	for _, file := range files {
		var rec machineRecord
		if err := readJSON(file, &rec); err != nil {
			return nil, err
		}
		if rec.Name != strings.TrimSuffix(filepath.Base(file), ".json") {
			return nil, fmt.Errorf("%s is about another machine", names.Quote(file))
		}
		all = append(all, rec)
	}
	return all, nil
}

// readReply opens an answer of a keeper.
func readReply[Out any](data []byte, fleet, kind, number string, isKeeper func(string) bool) (out Out, err error) {
	_, out, err = openReply[Out](data, fleet, kind, number, isKeeper)
	return out, err
}
