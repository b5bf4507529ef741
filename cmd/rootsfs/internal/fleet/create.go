package fleet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/xdg"
	"github.com/rootsfs/rootsfs/guard/names"
)

// stateDir returns the directory in which this user keeps the files of fleets, or a path below it. No
// root may overlap it.
func stateDir(elem ...string) (string, error) {
	return xdg.State(append([]string{"fleet"}, elem...)...)
}

// DefaultServerDir returns the ServerDir for an owner who names none.
func DefaultServerDir() (ServerDir, error) {
	dir, err := stateDir("server")
	return ServerDir(dir), err
}

// Plan has an owner's choices for a new fleet.
type Plan struct {
	Name   string
	Server string        // HOST:PORT, where machines reach the server
	Creds  *Creds        // for an external server; nil: the fleet has a server of its own
	Lease  time.Duration // how long a machine goes on without hearing from the fleet; 0: for ever
}

// Created is a new fleet.
type Created struct {
	Fleet  string `json:"fleet"`
	ID     string `json:"id"`
	Server string `json:"server"`
	Dir    string `json:"dir"`   // of the server and keeper
	Owner  string `json:"owner"` // the directory of the owner's keys
}

// Create makes a fleet: the keys of its server and keeper in dir, and those of its first owner
// in the user's state directory. It fails if one of these directories has files already.
func Create(dir ServerDir, plan Plan) (Created, error) {
	if err := CheckName("a fleet", plan.Name); err != nil {
		return Created{}, err
	}
	owner, err := stateDir("owner")
	if err != nil {
		return Created{}, err
	}
	for _, d := range []struct{ path, refusal string }{
		{string(dir), "%s is there already: move it away first, or write another --dir"},
		{owner, "%s has the keys of an owner already: move it away first"},
	} {
		if entries, err := os.ReadDir(d.path); err == nil && len(entries) > 0 {
			return Created{}, fmt.Errorf(d.refusal, names.Quote(d.path))
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Created{}, err
		}
	}
	n := newNames(plan.Name)
	c := creation{dir: dir, owner: ownerDir(owner), names: n, plan: plan, keys: map[string]nkeys.KeyPair{}}
	steps := []func() error{c.makeKeys, c.makeAccounts, c.makeAuthority, c.makeCharter, c.finish}
	if plan.Creds != nil {
		steps = []func() error{c.useCreds, c.makeCharter, c.finish}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return Created{}, xdg.Unwritable(err)
		}
	}
	return Created{Fleet: plan.Name, ID: n.ID, Server: plan.Server, Dir: string(dir), Owner: owner}, nil
}

// creation is a fleet that is being made.
type creation struct {
	dir     ServerDir
	owner   ownerDir
	names   Names
	plan    Plan
	keys    map[string]nkeys.KeyPair // the server's, by their files' names
	account nkeys.KeyPair
	pin     string
}

// makeKeys makes the keys of the server, and the account's own key. The account's key can give every
// right: it is in the owner's directory, and never in the server's.
func (c *creation) makeKeys() error {
	for of, create := range map[string]func() (nkeys.KeyPair, error){
		operatorKey: nkeys.CreateOperator, machinesKey: nkeys.CreateAccount, invitesKey: nkeys.CreateAccount,
	} {
		kp, err := create()
		if err != nil {
			return err
		}
		c.keys[of] = kp
		if err := writeKey(c.dir.key(of), kp); err != nil {
			return err
		}
	}
	var err error
	if c.account, err = nkeys.CreateAccount(); err != nil {
		return err
	}
	return writeKey(c.owner.account(), c.account)
}

func writeKey(file string, kp nkeys.KeyPair) error {
	seed, err := kp.Seed()
	if err != nil {
		return err
	}
	return writeSynced(file, seed)
}

// makeAccounts makes the claims that the server starts with, and the credentials of the owner's and the
// keeper's connections, which have every right in the fleet's account.
func (c *creation) makeAccounts() error {
	operator, err := c.keys[operatorKey].PublicKey()
	if err != nil {
		return err
	}
	system, err := nkeys.CreateAccount() // its key is forgotten: nobody connects to it
	if err != nil {
		return err
	}
	oc := jwt.NewOperatorClaims(operator)
	oc.Name = c.names.ID
	if oc.SystemAccount, err = system.PublicKey(); err != nil {
		return err
	}
	sc := jwt.NewAccountClaims(oc.SystemAccount)
	sc.Name = c.names.ID + " system"
	account, err := c.account.PublicKey()
	if err != nil {
		return err
	}
	ac := jwt.NewAccountClaims(account)
	ac.Name = c.names.ID
	ac.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: jwt.NoLimit, MemoryStorage: jwt.NoLimit, Streams: 16, Consumer: 1024}
	if err := setRights(ac, c.names, c.keys); err != nil {
		return err
	}
	for of, claims := range map[string]jwt.Claims{"operator": oc, "system": sc, "account": ac} {
		text, err := claims.Encode(c.keys[operatorKey])
		if err != nil {
			return err
		}
		if err := writeSynced(c.dir.claims(of), []byte(text)); err != nil {
			return err
		}
	}
	for party, file := range map[string]string{partyKeeper: c.dir.connection(), partyOwner: c.owner.connection()} {
		if err := newConnection(party, c.account, file); err != nil {
			return err
		}
	}
	return nil
}

// newConnection makes a credential for a connection with every right in the account, and writes the
// credential to a file.
func newConnection(party string, account nkeys.KeyPair, file string) error {
	public, seed, err := newConnectionKey()
	if err != nil {
		return err
	}
	uc := jwt.NewUserClaims(public)
	uc.Name = party
	text, err := uc.Encode(account)
	if err != nil {
		return err
	}
	return writeJSON(file, credential{text, seed})
}

func (c *creation) makeAuthority() error {
	ca, err := newAuthority(c.names)
	if err != nil {
		return err
	}
	c.pin = fingerprint(ca.der)
	text, err := ca.encode()
	if err != nil {
		return err
	}
	return writeSynced(c.dir.authority(), text)
}

// useCreds makes the owner and the first keeper use the same credentials.
func (c *creation) useCreds() error {
	return errors.Join(writeJSON(c.dir.connection(), c.plan.Creds.credential), writeJSON(c.owner.connection(), c.plan.Creds.credential))
}

// finish writes the files that mark the fleet as created.
func (c *creation) finish() error {
	port, err := Address{c.plan.Server, c.pin}.port()
	if err != nil {
		return err
	}
	info := serverInfo{ID: c.names.ID, Port: port}
	if c.plan.Creds != nil {
		info.External = c.plan.Server
	}
	return errors.Join(writeJSON(c.owner.fleet(), ownedFleet{ID: c.names.ID, Address: Address{c.plan.Server, c.pin}, Dir: string(c.dir)}),
		c.dir.writeMark(nil), writeJSON(c.dir.fleet(), info))
}

// ownerDir is the directory of an owner's keys.
type ownerDir string

func (d ownerDir) fleet() string      { return filepath.Join(string(d), "fleet.json") }
func (d ownerDir) account() string    { return filepath.Join(string(d), "account.nk") }
func (d ownerDir) connection() string { return filepath.Join(string(d), "connection.json") }
func (d ownerDir) signing() string    { return filepath.Join(string(d), "owner.key") }

// removed is the directory with a file for each machine that this owner has removed. The name of the
// file is the machine's invite.
func (d ownerDir) removed() string { return filepath.Join(string(d), "removed") }

// keys is the file with the keys that the owner knows of a machine.
func (d ownerDir) keys(machine string) string {
	return filepath.Join(string(d), "machines", machine+".json")
}

// ownedFleet is the file fleet.json of an ownerDir.
type ownedFleet struct {
	ID string `json:"id"`
	Address
	Dir string `json:"dir"` // of the server, if it runs on this machine
}

// makeCharter makes the signing keys of the first owner and keeper, and the charter that names
// them.
func (c *creation) makeCharter() error {
	owner, err := newKey()
	if err != nil {
		return err
	}
	keeper, err := newKey()
	if err != nil {
		return err
	}
	charter, err := seal(owner, c.names.ID, kindCharter, Charter{
		Fleet: c.names.ID, Number: 1, Owners: []string{owner.Public()}, Keepers: []string{keeper.Public()}, LeaseMS: c.plan.Lease.Milliseconds(),
	})
	if err != nil {
		return err
	}
	return errors.Join(owner.save(c.owner.signing()), keeper.save(c.dir.signing()), writeSynced(c.owner.charters().newest(), charter), writeSynced(c.dir.charters().newest(), charter))
}
