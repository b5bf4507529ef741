package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/atomicfile"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

// tokenPrefix begins a token, and says its version.
const tokenPrefix = "rfl1:"

// maxToken bounds a token.
const maxToken = 16 << 10

// token has everything that the bearer of an invite needs, on one line.
type token struct {
	Server  string `json:"s"` // HOST:PORT
	Pin     string `json:"p"` // the fingerprint of the fleet's certificate authority
	Fleet   string `json:"f"` // ID
	Invite  string `json:"i"`
	Machine string `json:"m,omitempty"` // the name, where the server is not the fleet's own
	Charter string `json:"c"`           // the hash of the fleet's charter
	JWT     string `json:"j"`
	Seed    string `json:"k"`
}

func (t *token) encode() (string, error) {
	data, err := json.Marshal(t)
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(data), err
}

// decodeToken is the reverse of encode.
func decodeToken(text string) (*token, error) {
	bad := func() (*token, error) {
		return nil, &names.Error{Kind: names.Invalid, Err: errors.New("this is no invite: paste the whole line that rootsfs fleet invite has printed")}
	}
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), tokenPrefix)
	if !ok || len(rest) > maxToken {
		return bad()
	}
	data, err := base64.RawURLEncoding.DecodeString(rest)
	var t token
	if err != nil || json.Unmarshal(data, &t) != nil || !idSyntax.MatchString(t.Fleet) || !inviteSyntax.MatchString(t.Invite) {
		return bad()
	}
	return &t, nil
}

// hashOf returns the hash of a signed document. A token names a charter by this hash, and an ack names an
// order by it.
func hashOf(document []byte) string {
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:])
}

// Owner acts for an owner of a fleet.
type Owner struct {
	Names   Names
	Charter *Charter
	Bus     *Bus // to the first of the servers that answer, in the charter's order

	buses    []*Bus // to all that answer
	info     ownedFleet
	key      *Key
	cred     credential
	dir      ownerDir
	charters charters
	charter  []byte
	order    func(context.Context, orderRequest) (map[string]orderAnswer, error) // askOrder; tests replace it
	copies   store                                                               // this owner's own copies of orders
	// HasRestoredOrders reports whether a keeper was restored from an older copy, and this owner
	// has brought back its orders.
	HasRestoredOrders bool
}

// OpenOwner reads the owner's keys of this user and connects to the fleet's servers.
func OpenOwner() (*Owner, error) {
	o, err := ReadOwner()
	if err != nil {
		return nil, err
	}
	if err := readJSON(o.dir.connection(), &o.cred); err != nil {
		return nil, err
	}
	o.order = o.askOrder
	if o.buses, err = o.dial(o.Charter); err != nil {
		return nil, err
	}
	o.Bus = o.buses[0]
	return o, nil
}

// dial connects the owner to the servers of a charter.
func (o *Owner) dial(c *Charter) ([]*Bus, error) {
	return dialAll(c.servers(o.info.Address), false, func(to Address) (*Bus, error) {
		near := to
		if to == o.info.Address {
			near = o.info.near()
		}
		b, err := dial(o.Names, near, partyOwner, func() (credential, error) { return o.cred, nil }, false)
		if err == nil {
			b.at = to
		}
		return b, err
	})
}

// ReadOwner reads the owner's keys of this user, for work that needs no server.
func ReadOwner() (*Owner, error) {
	state, err := stateDir("owner")
	if err != nil {
		return nil, err
	}
	dir := ownerDir(state)
	o := &Owner{dir: dir, charters: dir.charters(), copies: store{filepath.Join(state, "standing")}}
	err = readJSON(dir.fleet(), &o.info)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &control.Error{Class: control.NoSuch, Text: "this user owns no fleet on this machine; make one: rootsfs fleet init NAME"}
	}
	if err != nil {
		return nil, err
	}
	o.Names = Names{o.info.ID}
	if o.key, err = loadKey(dir.signing()); err != nil {
		return nil, err
	}
	if o.Charter, o.charter, err = o.charters.load(o.Names.ID); err != nil {
		return nil, err
	}
	return o, nil
}

// near returns the address of the server as this machine reaches it: without the network, if the
// server runs here.
func (f ownedFleet) near() Address {
	if _, port, err := splitServer(f.Server); err == nil && f.Dir != "" && !f.isExternal() {
		return Address{"localhost:" + port, f.Pin}
	}
	return f.Address
}

// Close ends the connections.
func (o *Owner) Close() { closeAll(o.buses) }

// askKeeper sends a request that the owner signs, and returns the keeper's answer.
func askKeeper[In, Out any](ctx context.Context, o *Owner, subject, kind string, in In) (out Out, err error) {
	q := request[In]{rand.Text(), in}
	data, err := seal(o.key, o.Names.ID, kind, q)
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	got, err := o.Bus.request(ctx, subject, data)
	if err != nil {
		return out, err
	}
	return readReply[Out](got, o.Names.ID, kind, q.Number, o.Charter.isKeeper)
}

// Invite is an invite for one machine.
type Invite struct {
	Machine string    `json:"machine"`
	Fleet   string    `json:"fleet"`
	Expires time.Time `json:"expires"`
	Token   string    `json:"token"` // its bearer can join as the machine
}

// Invite makes an invite.
func (o *Owner) Invite(ctx context.Context, machine string, valid time.Duration) (Invite, error) {
	if err := CheckName("a machine", machine); err != nil {
		return Invite{}, err
	}
	if valid <= 0 || valid > maxInvite {
		return Invite{}, &names.Error{Kind: names.Invalid, Err: fmt.Errorf("--expires %v: write a duration of up to %v", valid, maxInvite)}
	}
	public, seed, err := newConnectionKey()
	if err != nil {
		return Invite{}, err
	}
	q := inviteRequest{ID: newInviteID(), Machine: machine, Public: public, Expires: time.Now().Add(valid).UTC().Truncate(time.Second)}
	got, err := askKeeper[inviteRequest, inviteAnswer](ctx, o, o.Names.invites(), kindInvite, q)
	if err != nil {
		return Invite{}, err
	}
	if err := o.expectKey(machine); err != nil {
		return Invite{}, err
	}
	t := token{Server: o.Bus.at.Server, Pin: o.info.Pin, Fleet: o.Names.ID, Invite: q.ID, Charter: hashOf(o.charter), JWT: got.JWT, Seed: seed}
	if o.info.isExternal() {
		t.Machine = machine
	}
	text, err := t.encode()
	return Invite{Machine: machine, Fleet: o.Names.Name(), Expires: q.Expires, Token: text}, err
}

// Remove removes a machine: the server accepts its connection no more, and another machine can
// get its name.
func (o *Owner) Remove(ctx context.Context, machine string) error {
	all, err := o.list(ctx)
	if err != nil {
		return err
	}
	for _, rec := range all {
		if rec.Name == machine {
			got, err := o.askRemoval(ctx, removeRequest{machine, rec.Signing, rec.Invite})
			if err != nil {
				return err
			}
			return got.requireMajority(o.Charter)
		}
	}
	return &control.Error{Class: control.NoSuch, Text: fmt.Sprintf("there is no machine %s; see: rootsfs fleet machines", names.Quote(machine))}
}

// askRemoval has the keepers remove a machine. It first records the machine's invite as removed on the
// owner's disk, if the machine has one.
func (o *Owner) askRemoval(ctx context.Context, q removeRequest) (answers[struct{}], error) {
	if inviteSyntax.MatchString(q.Invite) {
		if err := writeSynced(filepath.Join(o.dir.removed(), q.Invite), nil); err != nil {
			return answers[struct{}]{}, err
		}
	}
	return askKeepers[removeRequest, struct{}](ctx, o, o.Names.removals(), kindRemove, q)
}

// Join makes this user's machine a member of a fleet. text is the token of an invite. creds are the
// machine's credentials for an external server; nil: the fleet has a server of its own.
func Join(ctx context.Context, text string, creds *Creds) (*Member, error) {
	t, err := decodeToken(text)
	if err != nil {
		return nil, err
	}
	if old, err := OpenMember(); err == nil {
		return nil, refused("this machine belongs to the fleet %s already, as %s; to leave it: rootsfs fleet leave", old.Fleet, old.Machine)
	} else if !errors.Is(err, errNoMember) {
		return nil, err
	}
	m := &Member{Fleet: Names{t.Fleet}.Name(), ID: t.Fleet, Address: Address{t.Server, t.Pin}}
	if m.key, err = newKey(); err != nil {
		return nil, err
	}
	external := m.isExternal()
	if external == (creds == nil) {
		if external {
			return nil, errCreds
		}
		return nil, refused("this fleet has a server of its own: leave --creds out")
	}
	public, seed, err := newConnectionKey()
	if err != nil {
		return nil, err
	}
	if external {
		t.JWT, t.Seed = creds.JWT, creds.Seed
	}
	got, charter, err := t.ask(ctx, m.key, public)
	if err != nil {
		return nil, err
	}
	m.Machine, m.Charter, m.enrolment = got.Machine, charter, got.Enrolment
	if external {
		return m, m.save(creds.credential, got.Charter)
	}
	return m, m.save(credential{got.JWT, seed}, got.Charter)
}

// ask asks the keeper to enrol a machine with a signing key and a connection's key. It checks that a
// keeper of the charter that the token names has signed the answer.
func (t *token) ask(ctx context.Context, key *Key, public string) (joinAnswer, *Charter, error) {
	b, err := dial(Names{t.Fleet}, Address{t.Server, t.Pin}, cmp.Or(t.Machine, t.Invite), func() (credential, error) { return credential{t.JWT, t.Seed}, nil }, false)
	if err != nil {
		return joinAnswer{}, nil, err
	}
	defer b.Close()
	q := request[joinRequest]{rand.Text(), joinRequest{t.Invite, public}}
	data, err := seal(key, t.Fleet, kindJoin, q)
	if err != nil {
		return joinAnswer{}, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	answered, err := b.request(ctx, b.Names.join(t.Invite), data)
	if err != nil {
		return joinAnswer{}, nil, err
	}
	return t.check(answered, key, public, q.Number)
}

// check verifies the answer to a request to join, and returns its contents and the charter.
func (t *token) check(answered []byte, key *Key, public, number string) (joinAnswer, *Charter, error) {
	// The charter in the answer says which keepers may have signed the answer. The token has the
	// charter's hash.
	var unread reply[json.RawMessage]
	if _, err := openSigned(answered, t.Fleet, kindJoin+replySuffix, anyKey, &unread); err != nil {
		return joinAnswer{}, nil, err
	}
	if unread.Refused != "" {
		return joinAnswer{}, nil, refused("the fleet did not let this machine in: %s", names.EscapeQuoted(unread.Refused))
	}
	var got joinAnswer
	if err := json.Unmarshal(unread.Body, &got); err != nil {
		return joinAnswer{}, nil, err
	}
	if hashOf(got.Charter) != t.Charter {
		return joinAnswer{}, nil, errors.New("the server has another charter than the invite names: ask the owner for a new invite")
	}
	charter, err := openCharter(got.Charter, t.Fleet)
	if err != nil {
		return joinAnswer{}, nil, err
	}
	if got, err = readReply[joinAnswer](answered, t.Fleet, kindJoin, number, charter.isKeeper); err != nil {
		return joinAnswer{}, nil, err
	}
	if got.Invite != t.Invite || got.Signing != key.Public() || got.Connection != public || CheckName("a machine", got.Machine) != nil {
		return joinAnswer{}, nil, errors.New("the keeper's answer is for another machine")
	}
	return got, charter, nil
}

// Leave takes this user's machine out of its fleet, even if no keeper answers. isConfirmed reports
// whether a keeper has let the machine go. A keeper answers, and then takes the machine's credential
// back, which ends the connection, perhaps before the answer has arrived. So a credential that has
// been taken back counts as an answer.
func (m *Member) Leave(ctx context.Context) (isConfirmed bool, err error) {
	if all, err := m.dialAll(false); err == nil {
		for _, b := range all {
			_, err = askAsMachine[inviteAnswer](ctx, m, b, b.Names.leave(m.Machine), kindLeave)
			isConfirmed = isConfirmed || err == nil || m.isRefused(b.at)
		}
		closeAll(all)
	}
	dir, err := stateDir()
	if err != nil {
		return isConfirmed, err
	}
	files := memberDir(dir)
	// The file by which the machine is a member goes first: without it the others have no effect.
	for _, file := range []string{files.member(), files.connection(), files.signing(), files.charters().newest(), files.enrolment(), files.ceiling()} {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return isConfirmed, err
		}
	}
	return isConfirmed, atomicfile.SyncDir(dir)
}

// isRefused reports whether a server does not accept the machine's credential.
func (m *Member) isRefused(at Address) bool {
	b, err := m.dialAt(at, false)
	if err == nil {
		b.Close()
	}
	var answer *control.Error
	return errors.As(err, &answer) && answer.Class == control.NotApproved
}
