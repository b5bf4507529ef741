package fleet

import (
	"errors"
	"slices"
)

// Charter says who owns a fleet, who keeps it, and how long a lease is.
type Charter struct {
	Fleet   string   `json:"fleet"`
	Number  uint64   `json:"n"`
	Owners  []string `json:"owners"`
	Keepers []string `json:"keepers"`
	LeaseMS int64    `json:"lease_ms"` // 0: for ever
}

const kindCharter = "charter"

func (c *Charter) isOwner(by string) bool  { return slices.Contains(c.Owners, by) }
func (c *Charter) isKeeper(by string) bool { return slices.Contains(c.Keepers, by) }

// OpenCharter returns a charter that one of its own owners has signed.
func OpenCharter(data []byte, fleet string) (*Charter, error) {
	var c Charter
	by, err := Open(data, fleet, kindCharter, anyKey, &c)
	if err == nil && (c.Fleet != fleet || !c.isOwner(by)) {
		err = errors.New("none of its owners has signed the charter")
	}
	return &c, err
}
