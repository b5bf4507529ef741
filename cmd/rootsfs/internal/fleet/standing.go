package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Standing is the owners' order that holds for a machine, or for all machines. Orders are not a log: the
// order with the highest number replaces all earlier ones.
type Standing struct {
	For    string    `json:"for"` // a machine's name, or allMachines
	Number uint64    `json:"n"`
	At     time.Time `json:"at"`
	// Locked says why no session may do anything; "": the machines are not locked.
	Locked string `json:"locked,omitempty"`
	// Since is the number up to which revocations are no longer listed. A machine ends everything if
	// the last order that it has carried out has a lower number.
	Since   uint64       `json:"since,omitempty"`
	Revoked []Revocation `json:"revoked,omitempty"`
	// Ceiling bounds the grants on the machines; nil: there was no ceiling yet.
	Ceiling *CeilingText `json:"ceiling,omitempty"`
}

// CeilingText is a ceiling that owners have set for machines. Its number counts the changes of the
// ceilings for the same machines.
type CeilingText struct {
	Number uint64 `json:"n"`
	Text   string `json:"text"` // as in /etc/rootsfs/ceiling.toml; "": it was removed
}

// Revocation ends the roots and hosts that it names, if they were granted before the machine carried out
// the order with this Number. A later grant is a new decision.
type Revocation struct {
	Number  uint64 `json:"n"`
	Session string `json:"session,omitempty"` // "": every session
	Root    string `json:"root,omitempty"`
	Subject string `json:"subject,omitempty"` // a server, whose own roots end
	Net     bool   `json:"net,omitempty"`     // the hosts of a command's network
	All     bool   `json:"all,omitempty"`
}

const kindStanding = "standing"

// Bounds of an order. A machine can send the order in a signed request, and the size of a request has a
// limit.
const (
	maxStanding = 32 << 10
	maxRevoked  = 64
	maxText     = 256
	maxCeiling  = 12 << 10 // of the text of a ceiling
)

// openStanding opens an order. It refuses an order that no owner of c has signed, whose field For is not
// the given recipient, or that is not well-formed.
func openStanding(data []byte, c *Charter, recipient string) (signedOrder, error) {
	if len(data) > maxStanding*2 { // base64 takes a third more
		return signedOrder{}, errors.New("the order is too long")
	}
	h := signedOrder{signed: data}
	var err error
	if h.by, err = openSigned(data, c.Fleet, kindStanding, c.isOwner, &h.Standing); err != nil {
		return signedOrder{}, err
	}
	if h.For != recipient {
		return signedOrder{}, fmt.Errorf("the order is for %s", names.Quote(h.For))
	}
	return h, h.check()
}

// check refuses an order that is not well-formed.
func (s *Standing) check() error {
	if s.Number == 0 || s.Since > s.Number || len(s.Locked) > maxText || len(s.Revoked) > maxRevoked {
		return errors.New("the order has no number, or too much in it")
	}
	if c := s.Ceiling; c != nil && (c.Number == 0 || len(c.Text) > maxCeiling) {
		return &names.Error{Kind: names.Invalid, Err: fmt.Errorf("the ceiling has no number, or more than %d bytes", maxCeiling)}
	}
	last := s.Since + 1
	for _, r := range s.Revoked {
		if r.Number < last || r.Number > s.Number {
			return errors.New("the order's revocations are not in order")
		}
		if err := r.check(); err != nil {
			return err
		}
		last = r.Number
	}
	return nil
}

// check refuses a revocation unless it names exactly one thing to revoke. It also refuses bad names.
func (r *Revocation) check() error {
	given := 0
	for _, is := range []bool{r.All, r.Root != "", r.Subject != "", r.Net} {
		if is {
			given++
		}
	}
	if given != 1 {
		return &names.Error{Kind: names.Invalid, Err: errors.New("say what to revoke: a root, a server's roots, the network or everything, one of these")}
	}
	if r.Session != "" {
		if err := control.CheckName(r.Session); err != nil {
			return err
		}
	}
	if len(r.Root) > maxText || len(r.Subject) > maxText {
		return &names.Error{Kind: names.Invalid, Err: fmt.Errorf("a name to revoke has at most %d bytes", maxText)}
	}
	return nil
}

// request returns the revocation as a request to a session.
func (r *Revocation) request() control.RevokeRequest {
	q := control.RevokeRequest{All: r.All, Subject: r.Subject, Net: r.Net}
	if r.Root != "" {
		q.Names = []string{r.Root}
	}
	return q
}

// nextNumber returns a number for the order that follows the order with the number previous. The number
// is at least the time in milliseconds, so that it is also higher than the number of an order that a
// restored keeper has lost.
func nextNumber(previous uint64) uint64 { return max(previous+1, uint64(time.Now().UnixMilli())) }

// numberAhead is how far the number of an order may be ahead of a clock.
const numberAhead = 366 * 24 * time.Hour

// isUsable reports whether an order may have this number. An order with the highest possible number would
// be the last one: nobody could give an order after it, even after the owner who signed it was removed.
func isUsable(number uint64) bool {
	return number <= uint64(time.Now().Add(numberAhead).UnixMilli())
}

// errNumber says that an order's number is not usable.
var errNumber = errors.New("the number of the order is more than a year ahead of the clock here: see that the clocks are right")

// next returns the order that follows s: a copy of s that has the given recipient and number, and that
// change has altered. If the order is too long or has too many revocations, next leaves out the oldest
// revocations.
func (s Standing) next(recipient string, number uint64, change func(*Standing)) (Standing, error) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	n := Standing{For: recipient, Number: number, At: now, Locked: s.Locked, Since: s.Since, Revoked: slices.Clone(s.Revoked), Ceiling: s.Ceiling}
	change(&n)
	for {
		data, err := json.Marshal(n)
		if err != nil {
			return n, err
		}
		if len(data) <= maxStanding && len(n.Revoked) <= maxRevoked {
			return n, n.check()
		}
		if len(n.Revoked) == 0 {
			return n, errors.New("the order is too long")
		}
		n.Since = n.Revoked[0].Number
		n.Revoked = slices.DeleteFunc(n.Revoked, func(r Revocation) bool { return r.Number <= n.Since })
	}
}

// due returns the revocations that a machine still has to carry out. applied is the number of the last
// order that the machine has carried out.
func (s *Standing) due(applied uint64) (out []Revocation) {
	if applied < s.Since {
		return []Revocation{{Number: s.Number, All: true}}
	}
	for _, r := range s.Revoked {
		if r.Number > applied {
			out = append(out, r)
		}
	}
	return out
}
