package fleet

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// knownKeys has the signing keys that an owner knows of a machine. The keeper says which keys a machine
// has. The owner believes the keeper the first time, and for one more key after the owner has invited
// the machine again. A keeper that names another key cannot pass off its own records as the machine's.
type knownKeys struct {
	Keys []knownKey `json:"keys"`
	// Expected says that this owner has invited the machine again, so that it may have one more key.
	Expected bool `json:"expected,omitempty"`
}

type knownKey struct {
	Key   string    `json:"key"`
	Since time.Time `json:"since"`
}

// loadKeys reads what this owner knows of a machine.
func (o *Owner) loadKeys(machine string) (k knownKeys, err error) {
	err = readJSON(o.dir.keys(machine), &k)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return k, err
}

// expectKey lets the machine have one more key than this owner knows.
func (o *Owner) expectKey(machine string) error {
	k, err := o.loadKeys(machine)
	if err != nil || len(k.Keys) == 0 {
		return err // checkKeys believes the first keys anyway
	}
	k.Expected = true
	return writeJSON(o.dir.keys(machine), k)
}

// checkKeys compares the keys that the keeper names for a machine with those that the owner knows. It
// records new keys if the owner may believe them, and otherwise returns an error.
func (o *Owner) checkKeys(machine string, named []string) error {
	k, err := o.loadKeys(machine)
	if err != nil {
		return err
	}
	var fresh []knownKey
	for _, key := range named {
		if !k.knows(key) {
			fresh = append(fresh, knownKey{key, time.Now().UTC().Truncate(time.Second)})
		}
	}
	switch {
	case len(fresh) == 0:
		return nil
	case len(k.Keys) > 0 && (!k.Expected || len(fresh) > 1):
		return fmt.Errorf("the keeper names the key %s, and this owner knows %s; if %s has joined again by another owner's invite, compare that key with the one that join printed there, and remove %s",
			keyName(fresh[0].Key), keyName(k.Keys[len(k.Keys)-1].Key), machine, names.Quote(o.dir.keys(machine)))
	}
	k.Keys, k.Expected = append(k.Keys, fresh...), false
	return writeJSON(o.dir.keys(machine), k)
}

func (k *knownKeys) knows(key string) bool {
	return slices.ContainsFunc(k.Keys, func(one knownKey) bool { return one.Key == key })
}

// keyOfDir returns the key whose records a directory has; "": the key is unknown.
func (k *knownKeys) keyOfDir(machine, dir string) string {
	for _, one := range k.Keys {
		if recordDirName(machine, one.Key) == dir {
			return one.Key
		}
	}
	return ""
}
