package fleet

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// store is the directory of a party's own copies of the newest orders. The copy of an order is on disk
// before the party acts by the order. An owner, a keeper and each machine have a store, in which a newer
// copy replaces the older one.
type store struct{ dir string }

// signedOrder is an order with its signature.
type signedOrder struct {
	Standing
	signed []byte // nil: there is no order
	by     string // the owner's key that has signed it
}

func (s store) file(to string) string { return filepath.Join(s.dir, to) }

// load returns the copy of the order for a machine or all machines; the zero signedOrder: there is none.
func (s store) load(c *Charter, to string) (signedOrder, error) {
	data, err := readOwn(s.file(to))
	if errors.Is(err, fs.ErrNotExist) {
		return signedOrder{}, nil
	}
	if err != nil {
		return signedOrder{}, err
	}
	// The owner who signed the order may have been removed since the order was saved.
	withSigner := *c
	h := signedOrder{signed: data}
	if h.by, err = openSigned(data, c.Fleet, kindStanding, anyKey, &h.Standing); err != nil {
		return signedOrder{}, err
	}
	withSigner.Owners = []string{h.by}
	return openStanding(data, &withSigner, to)
}

// save makes the order durable.
func (s store) save(h signedOrder) error { return writeSynced(s.file(h.For), h.signed) }

// newer opens an order, and reports whether it has a higher number than old.
func newer(data []byte, c *Charter, to string, old signedOrder) (signedOrder, bool, error) {
	h, err := openStanding(data, c, to)
	if err == nil && !isUsable(h.Number) {
		err = errNumber
	}
	if err != nil {
		return old, false, err
	}
	return h, h.Number > old.Number, nil
}

// appliedFile is the name of the file with the numbers of the orders that a machine has carried out.
// No machine has such a name.
const appliedFile = ".applied"

func (s store) loadApplied() (map[string]uint64, error) {
	applied := map[string]uint64{}
	err := readJSON(s.file(appliedFile), &applied)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return applied, err
}

func (s store) saveApplied(applied map[string]uint64) error {
	return writeJSON(s.file(appliedFile), applied)
}
