package fleet

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/rootsfs/rootsfs/guard/names"
)

// A machine joins through one keeper. It brings the other keepers a record that this keeper has signed.

const kindEnrolment = "enrolment"

// enrolment returns the record of a machine, signed for other keepers. present is the signed record that
// the machine has; nil: it has none. enrolment returns nil if there are no other keepers, or if present is
// valid and of the same invite.
func (r *registrar) enrolment(rec *machineRecord, present []byte) ([]byte, error) {
	c, err := r.charter()
	if err != nil || len(c.Keepers) == 1 {
		return nil, err
	}
	var old machineRecord
	if _, err := openSigned(present, r.s.Names.ID, kindEnrolment, c.isKeeper, &old); err == nil && old.Invite == rec.Invite {
		return nil, nil
	}
	return seal(r.key, r.s.Names.ID, kindEnrolment, rec)
}

// maxEnrolment bounds the signed record, which a machine sends with each request for a lease. With a
// longer record, from a hostile keeper, the request would be too long for the server, and would reach no
// keeper.
const maxEnrolment = 4 << 10

// isEnrolled reports whether enrolment is a record of this machine that a keeper of the charter has
// signed.
func (m *Member) isEnrolled(enrolment []byte) bool {
	if len(enrolment) == 0 || len(enrolment) > maxEnrolment {
		return false
	}
	var rec machineRecord
	_, err := openSigned(enrolment, m.ID, kindEnrolment, m.Charter.isKeeper, &rec)
	return err == nil && rec.Name == m.Machine && rec.Signing == m.key.Public()
}

// learn stores the record that a machine brings with its request for a lease, if this keeper has no
// record of the machine. A keeper of the charter must have signed the record.
func (r *registrar) learn(m *nats.Msg) error {
	name := r.s.Names.machineOf(m.Subject)
	if name == "" {
		return nil
	}
	if _, err := os.Stat(r.machineFile(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.charter()
	if err != nil {
		return err
	}
	var q request[leaseRequest]
	by, err := openSigned(m.Data, r.s.Names.ID, kindLease, anyKey, &q)
	if err != nil || q.Body.Enrolment == nil {
		return err
	}
	var rec machineRecord
	if _, err := openSigned(q.Body.Enrolment, r.s.Names.ID, kindEnrolment, c.isKeeper, &rec); err != nil {
		return err
	}
	if rec.Name != name || rec.Signing != by || !inviteSyntax.MatchString(rec.Invite) || slices.Contains(r.removed(), rec.Invite) {
		return refused("%s was removed, or is another machine", names.Quote(name))
	}
	r.s.log.Info("a machine of another keeper is known", "machine", rec.Name, "key", keyName(rec.Signing))
	return writeJSON(r.machineFile(rec.Name), rec)
}

// numberOf returns the number of a request for a lease. It does not check who has signed the request.
func numberOf(data []byte, fleet string) (string, error) {
	var q request[leaseRequest]
	_, err := openSigned(data, fleet, kindLease, anyKey, &q)
	return q.Number, err
}

func (r *registrar) removedDir() string { return r.s.dir.file("keeper", "removed") }

// recordRemoval records that the machine that joined by an invite was removed.
func (r *registrar) recordRemoval(invite string) error {
	if !inviteSyntax.MatchString(invite) {
		return errors.New("it names no invite")
	}
	return writeSynced(r.s.dir.file("keeper", "removed", invite), nil)
}

// removed returns the invites of the machines that were removed.
func (r *registrar) removed() (invites []string) {
	entries, _ := os.ReadDir(r.removedDir()) // the directory is missing before the first removal
	for _, e := range entries {
		if inviteSyntax.MatchString(e.Name()) {
			invites = append(invites, e.Name())
		}
	}
	return invites
}
