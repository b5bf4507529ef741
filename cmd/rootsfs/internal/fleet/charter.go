package fleet

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Charter says who owns a fleet, who keeps it, and how long a lease is.
type Charter struct {
	Fleet   string   `json:"fleet"`
	Number  uint64   `json:"n"`
	Owners  []string `json:"owners"`
	Keepers []string `json:"keepers"`
	// Servers are the keepers' servers, HOST:PORT, in the order of the keepers. An empty list: the
	// fleet has one server, at the address by which a party joined.
	Servers []string `json:"servers,omitempty"`
	LeaseMS int64    `json:"lease_ms"` // 0: for ever
}

const kindCharter = "charter"

func (c *Charter) isOwner(by string) bool  { return slices.Contains(c.Owners, by) }
func (c *Charter) isKeeper(by string) bool { return slices.Contains(c.Keepers, by) }

// lease returns the length of a lease.
func (c *Charter) lease() time.Duration {
	if c.LeaseMS <= 0 {
		return forever
	}
	return time.Duration(c.LeaseMS) * time.Millisecond
}

// forever stands for a lease that does not end.
const forever = 10 * 365 * 24 * time.Hour

// openCharter opens a charter that this party has on disk, or whose hash it knows. A fleet's first
// charter must be signed by one of the owners that it names.
func openCharter(data []byte, fleet string) (*Charter, error) {
	var c Charter
	by, err := openSigned(data, fleet, kindCharter, anyKey, &c)
	switch {
	case err != nil:
	case c.Fleet != fleet:
		err = errors.New("the charter is of another fleet")
	case c.Number <= 1 && !c.isOwner(by):
		err = errors.New("none of its owners has signed the charter")
	}
	return &c, err
}

// openSuccessor opens the charter that follows c. An owner of c must have signed it, and it must have
// the next number.
func (c *Charter) openSuccessor(data []byte) (*Charter, error) {
	var next Charter
	if _, err := openSigned(data, c.Fleet, kindCharter, c.isOwner, &next); err != nil {
		return nil, err
	}
	switch {
	case next.Fleet != c.Fleet:
		return nil, errors.New("the charter is of another fleet")
	case next.Number != c.Number+1:
		return nil, fmt.Errorf("the charter has the number %d, and %d is the next", next.Number, c.Number+1)
	case len(next.Owners) == 0 || len(next.Owners) > maxParties || len(next.Keepers) == 0 || len(next.Keepers) > maxParties:
		return nil, fmt.Errorf("the charter has no owner or keeper, or more than %d", maxParties)
	case next.LeaseMS != c.LeaseMS:
		return nil, errors.New("the charter has another lease, and owners have counted on this one")
	case len(next.Servers) > 0 && len(next.Servers) != len(next.Keepers):
		return nil, errors.New("the charter has not one server for each keeper")
	case hasDuplicate(next.Keepers) || hasDuplicate(next.Owners):
		return nil, errors.New("the charter has a key twice")
	case len(c.Keepers)-countCommon(c.Keepers, next.Keepers) > 1:
		return nil, errors.New("the charter removes two keepers at once: an order could be lost with them")
	}
	return &next, nil
}

func hasDuplicate(list []string) bool {
	return len(slices.Compact(slices.Sorted(slices.Values(list)))) < len(list)
}

// countCommon returns how many of list are in other, too.
func countCommon(list, other []string) (n int) {
	for _, one := range list {
		if slices.Contains(other, one) {
			n++
		}
	}
	return n
}

// maxParties bounds the number of a fleet's owners, and that of its keepers.
const maxParties = 8
