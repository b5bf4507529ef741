package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Member is this user's machine as a member of a fleet. Its directory has the file member.json, by
// which sessions know that they need a lease, and other files.
type Member struct {
	Fleet   string `json:"fleet"` // the owners' name for the fleet
	ID      string `json:"id"`
	Machine string `json:"machine"`
	Address

	Charter *Charter `json:"-"`
	key     *Key
	// enrolment is a keeper's signed record of this machine, for other keepers.
	enrolment []byte

	dir  memberDir
	mu   sync.Mutex // guards cred
	cred credential
}

// memberDir is the directory of a member's files.
type memberDir string

func (d memberDir) member() string     { return filepath.Join(string(d), "member.json") }
func (d memberDir) connection() string { return filepath.Join(string(d), "connection.json") }
func (d memberDir) signing() string    { return filepath.Join(string(d), "machine.key") }
func (d memberDir) enrolment() string  { return filepath.Join(string(d), "enrolment") }
func (d memberDir) ceiling() string    { return filepath.Join(string(d), "ceiling.json") }

// errNoMember says that the machine belongs to no fleet.
var errNoMember error = &control.Error{Class: control.NoSuch, Text: "this machine belongs to no fleet; an owner's invite lets it in: rootsfs fleet join TOKEN"}

// OpenMember reads this machine's membership.
func OpenMember() (*Member, error) {
	state, err := stateDir()
	if err != nil {
		return nil, err
	}
	dir := memberDir(state)
	m := &Member{dir: dir}
	err = readJSON(dir.member(), m)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoMember
	}
	if err == nil && (!idSyntax.MatchString(m.ID) || CheckName("a machine", m.Machine) != nil) {
		err = fmt.Errorf("%s names no fleet or machine", names.Quote(dir.member()))
	}
	if err != nil {
		return nil, err
	}
	if m.key, err = loadKey(dir.signing()); err != nil {
		return nil, err
	}
	if m.Charter, _, err = dir.charters().load(m.ID); err != nil {
		return nil, err
	}
	if m.enrolment, err = readOwn(dir.enrolment()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return m, readJSON(dir.connection(), &m.cred)
}

// save writes the membership. The file by which sessions know of the membership comes last.
func (m *Member) save(cred credential, charter []byte) error {
	state, err := stateDir()
	if err != nil {
		return err
	}
	dir := memberDir(state)
	m.cred, m.dir = cred, dir
	if err := m.key.save(dir.signing()); err != nil {
		return err
	}
	if err := writeJSON(dir.connection(), cred); err != nil {
		return err
	}
	if err := writeSynced(dir.charters().newest(), charter); err != nil {
		return err
	}
	if m.enrolment != nil {
		if err := writeSynced(dir.enrolment(), m.enrolment); err != nil {
			return err
		}
	}
	return writeJSON(dir.member(), m)
}

// dial connects the machine to the server by whose address it joined.
func (m *Member) dial(reconnects bool, more ...nats.Option) (*Bus, error) {
	return m.dialAt(m.Address, reconnects, more...)
}

// dialAt connects the machine to one server of the fleet, as the function dial does.
func (m *Member) dialAt(to Address, reconnects bool, more ...nats.Option) (*Bus, error) {
	return dial(Names{m.ID}, to, m.Machine, m.credential, reconnects, more...)
}

// dialAll connects the machine to the servers of the fleet, as the function dialAll does.
func (m *Member) dialAll(reconnects bool, more ...nats.Option) ([]*Bus, error) {
	return dialAll(m.Charter.servers(m.Address), reconnects, func(to Address) (*Bus, error) { return m.dialAt(to, reconnects, more...) })
}

func (m *Member) credential() (credential, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cred, nil
}

// askAsMachine sends a request that the machine signs, and returns the keeper's answer.
func askAsMachine[Out any](ctx context.Context, m *Member, b *Bus, subject, kind string) (out Out, err error) {
	return machineRequest[struct{}, Out](ctx, m, b, subject, kind, struct{}{})
}

// machineRequest is askAsMachine with a body.
func machineRequest[In, Out any](ctx context.Context, m *Member, b *Bus, subject, kind string, in In) (out Out, err error) {
	q := request[In]{rand.Text(), in}
	data, err := seal(m.key, m.ID, kind, q)
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	got, err := b.request(ctx, subject, data)
	if err != nil {
		return out, err
	}
	return readReply[Out](got, m.ID, kind, q.Number, m.Charter.isKeeper)
}

// renewCredential asks for a new credential if half of the old one's time is over. The next connection
// uses the new one. With an external server it does nothing.
func (m *Member) renewCredential(ctx context.Context, b *Bus) error {
	if m.isExternal() {
		return nil
	}
	old, err := m.credential()
	if err != nil {
		return err
	}
	claims, err := jwt.DecodeUserClaims(old.JWT)
	if err == nil && time.Until(time.Unix(claims.Expires, 0)) > machineTime/2 {
		return nil
	}
	got, err := askAsMachine[inviteAnswer](ctx, m, b, b.Names.renew(m.Machine), kindRenew)
	if err != nil {
		return err
	}
	return m.replaceCredential(got.JWT, claims)
}

// replaceCredential replaces the machine's credential with a new one. old has the claims of the
// present credential; nil: they cannot be read. If old is not nil, replaceCredential refuses a
// credential for another key, and one that ends earlier: the keeper's clock was behind, and the
// server would soon accept this machine no more.
func (m *Member) replaceCredential(text string, old *jwt.UserClaims) error {
	fresh, err := jwt.DecodeUserClaims(text)
	switch {
	case err != nil || old != nil && fresh.Subject != old.Subject:
		return errors.New("the keeper's new credential is for another key")
	case old != nil && fresh.Expires < old.Expires:
		return errors.New("the keeper's new credential ends before the one that this machine has: set the clock right where rootsfs fleet serve runs")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cred.JWT = text
	return writeJSON(m.dir.connection(), m.cred)
}

// splitServer returns the parts of HOST:PORT.
func splitServer(server string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(server)
	if err != nil || host == "" || port == "" {
		return "", "", &names.Error{Kind: names.Invalid, Err: fmt.Errorf("%s: write the address of the server as HOST:PORT", names.Quote(server))}
	}
	return host, port, nil
}
