package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Owners add and remove owners and keepers. To exchange a key, an owner adds the new key and removes
// the old one.

// Amendment is a change of a fleet's charter.
type Amendment func(c *Charter) error

// removeKey returns the index of the key with a name, and a copy of keys without that key.
func removeKey(keys []string, name string) (int, []string, error) {
	i := slices.IndexFunc(keys, func(key string) bool { return keyName(key) == name })
	if i < 0 {
		return i, nil, fmt.Errorf("the fleet has no such key; see: rootsfs fleet charter")
	}
	return i, slices.Delete(slices.Clone(keys), i, i+1), nil
}

// RemoveKeeper removes a keeper and its server. It finds the keeper by the name of its key.
func RemoveKeeper(name string) Amendment {
	return func(c *Charter) error {
		i, rest, err := removeKey(c.Keepers, name)
		if err != nil {
			return err
		}
		c.Keepers = rest
		if i < len(c.Servers) {
			c.Servers = slices.Delete(slices.Clone(c.Servers), i, i+1)
		}
		return nil
	}
}

// RemoveOwner removes the owner whose key has the name.
func RemoveOwner(name string) Amendment {
	return func(c *Charter) (err error) {
		_, c.Owners, err = removeKey(c.Owners, name)
		return err
	}
}

// AddKeeper adds a keeper whose server other machines reach at server, HOST:PORT. The first call makes
// the keeper's directory dir. When the keeper runs there, the next call adds it to the fleet's
// charter. serves is false if the keeper does not run yet.
func (o *Owner) AddKeeper(ctx context.Context, dir ServerDir, server string) (serves bool, err error) {
	if o.info.isExternal() {
		server = o.info.Server
	}
	port, err := Address{server, o.info.Pin}.port()
	if err != nil {
		return false, err
	}
	key, err := loadKey(dir.signing())
	if errors.Is(err, fs.ErrNotExist) {
		return false, o.makeKeeper(dir, port)
	}
	if err != nil {
		return false, err
	}
	b, err := dial(o.Names, Address{server, o.info.Pin}, partyOwner, func() (credential, error) { return o.cred, nil }, false)
	if err != nil {
		return false, nil // the caller tells the owner to start the keeper
	}
	defer b.Close()
	got, err := o.sendCharters(ctx, &Charter{Fleet: o.Names.ID, Keepers: []string{key.Public()}}, []*Bus{b})
	if err != nil {
		return false, err
	}
	if err := got.requireOne(); err != nil {
		return false, nil
	}
	return true, o.Amend(ctx, func(c *Charter) error {
		if c.isKeeper(key.Public()) {
			return errors.New("it is a keeper of the fleet already")
		}
		c.Keepers = append(slices.Clone(c.Keepers), key.Public())
		if o.info.isExternal() {
			return nil // the external server serves all keepers
		}
		if len(c.Servers) == 0 {
			c.Servers = []string{o.info.Server}
		}
		c.Servers = append(slices.Clone(c.Servers), server)
		return nil
	})
}

// keeperParts are the files that keepers have in common. A keeper at an external
// server has only some of them.
var keeperParts = []string{
	"operator.jwt", "system.jwt", "account.jwt", "charter", "charters",
	"keeper/operator.nk", "keeper/machines.nk", "keeper/invites.nk", "keeper/connection.json", "keeper/authority.pem",
	"keeper/machines", "keeper/removed", "keeper/standing",
}

// makeKeeper makes the directory of a keeper: a copy of the directory of the keeper on this
// machine, with a signing key of its own. The new directory has no mark (see isMarked), so the new
// keeper gives no lease before an owner has brought it the orders.
func (o *Owner) makeKeeper(dir ServerDir, port string) error {
	own, err := o.keeperHere()
	if err != nil {
		return err
	}
	if entries, err := os.ReadDir(string(dir)); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is there already: write another directory", names.Quote(string(dir)))
	}
	for _, part := range keeperParts {
		if err := copyFiles(own.file(part), dir.file(part)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	info := serverInfo{ID: o.Names.ID, Port: port}
	if o.info.isExternal() {
		info.External = o.info.Server
	}
	if err := writeJSON(dir.fleet(), info); err != nil {
		return err
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	return key.save(dir.signing())
}

// keeperHere returns the directory of the keeper on this machine. The files of an owner who was
// added later do not name the directory. Then keeperHere tries the default directory.
func (o *Owner) keeperHere() (ServerDir, error) {
	if o.info.Dir != "" {
		return ServerDir(o.info.Dir), nil
	}
	dir, err := DefaultServerDir()
	if err != nil {
		return "", err
	}
	var info serverInfo
	if err := readJSON(dir.fleet(), &info); err != nil || info.ID != o.Names.ID {
		return "", refused("the keeper's directory is copied for a new keeper, and it is not on this machine, in %s", names.Quote(string(dir)))
	}
	return dir, nil
}

// copyFiles copies a file, or the files below a directory.
func copyFiles(from, to string) error {
	return filepath.WalkDir(from, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		data, err := readOwn(file)
		if err != nil {
			return err
		}
		return writeSynced(filepath.Join(to, rel), data)
	})
}

// AddOwner adds an owner, and makes the directory dir with the owner's keys.
func (o *Owner) AddOwner(ctx context.Context, dir string) (key string, err error) {
	to := ownerDir(dir)
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return "", fmt.Errorf("%s is there already: write another directory", names.Quote(dir))
	}
	own, err := newKey()
	if err != nil {
		return "", err
	}
	if err := errors.Join(own.save(to.signing()), o.connectionFor(to)); err != nil {
		return "", err
	}
	err = o.Amend(ctx, func(c *Charter) error {
		c.Owners = append(slices.Clone(c.Owners), own.Public())
		return nil
	})
	if err != nil {
		return "", err
	}
	for _, part := range []string{"charter", "charters", "standing", "removed"} {
		if err := copyFiles(filepath.Join(string(o.dir), part), filepath.Join(dir, part)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	info := o.info
	info.Dir = "" // the server stays where it is
	return keyName(own.Public()), writeJSON(to.fleet(), info)
}

// connectionFor writes the credential of another owner's connection.
func (o *Owner) connectionFor(to ownerDir) error {
	if o.info.isExternal() {
		return writeJSON(to.connection(), o.cred)
	}
	account, err := readKey(o.dir.account())
	if err != nil {
		return err
	}
	return errors.Join(writeKey(to.account(), account), newConnection(partyOwner, account, to.connection()))
}

// Party is an owner or a keeper of a charter.
type Party struct {
	Role   string `json:"role"` // owner or keeper
	Key    string `json:"key"`  // the fingerprint
	Server string `json:"server,omitempty"`
	Self   bool   `json:"self,omitempty"`
}

// Parties returns the owners and keepers of the fleet, by the charter that the keepers have.
func (o *Owner) Parties(ctx context.Context) ([]Party, error) {
	if _, err := o.syncKeepers(ctx); err != nil {
		return nil, err
	}
	var list []Party
	for _, key := range o.Charter.Owners {
		list = append(list, Party{Role: "owner", Key: keyName(key), Self: key == o.key.Public()})
	}
	servers := o.Charter.servers(o.info.Address)
	for i, key := range o.Charter.Keepers {
		list = append(list, Party{Role: "keeper", Key: keyName(key), Server: servers[min(i, len(servers)-1)].Server})
	}
	return list, nil
}
