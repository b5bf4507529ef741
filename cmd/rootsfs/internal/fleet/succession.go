package fleet

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
)

// charters are a party's copies of the fleet's charters. The first is trusted because an invite or
// an owner names it. Each later charter is signed by an owner of the one before.
type charters struct{ dir string }

func (s charters) newest() string { return filepath.Join(s.dir, "charter") }
func (s charters) file(n uint64) string {
	return filepath.Join(s.dir, "charters", strconv.FormatUint(n, 10))
}
func (d ServerDir) charters() charters { return charters{string(d)} }
func (d ownerDir) charters() charters  { return charters{string(d)} }
func (d memberDir) charters() charters { return charters{string(d)} }
func (n Names) charters() string       { return n.keeper("charters") }

// maxChain bounds the charters in one message.
const maxChain = 16

// load returns the newest charter.
func (s charters) load(fleet string) (*Charter, []byte, error) {
	data, err := readOwn(s.newest())
	if err != nil {
		return nil, nil, err
	}
	c, err := openCharter(data, fleet)
	return c, data, err
}

// since returns the charters that follow the one with the number n, at most maxChain of them.
func (s charters) since(n uint64) (chain [][]byte, err error) {
	for n++; len(chain) < maxChain; n++ {
		data, err := readOwn(s.file(n))
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, err
		}
		chain = append(chain, data)
	}
	return chain, nil
}

// adopt stores the charters of a chain, and returns the newest. The first must follow c, and each other
// one the charter before it. After an error, adopt returns the newest charter before the error.
func (s charters) adopt(c *Charter, chain [][]byte) (*Charter, error) {
	for _, data := range chain {
		next, err := c.openSuccessor(data)
		if err != nil {
			return c, err
		}
		// The copy by number comes first: a party must be able to give others the charter that it
		// follows.
		if err := errors.Join(writeSynced(s.file(next.Number), data), writeSynced(s.newest(), data)); err != nil {
			return c, err
		}
		c = next
	}
	return c, nil
}

// chainMessage has charters that follow each other. It needs no signature of its own.
type chainMessage struct {
	Since    uint64   `json:"since"`
	Charters [][]byte `json:"charters"`
}

// charterNumber is a keeper's answer: the number of its newest charter, and the charter's hash.
type charterNumber struct {
	Number uint64 `json:"n"`
	Hash   string `json:"hash"`
}

const kindCharters = "charters"

// onCharters takes charters from any party: an owner of each charter has signed the next.
func (r *registrar) onCharters(m *nats.Msg) {
	var q request[chainMessage]
	if _, err := openSigned(m.Data, r.s.Names.ID, kindCharters, anyKey, &q); err != nil {
		r.s.log.Warn("charters were refused", "error", err)
		return
	}
	out, err := r.adopt(q.Body)
	if err != nil {
		r.s.log.Warn("charters were refused", "error", err)
	}
	answer(r, m, partyOwner, kindCharters, q.Number, out, err)
}

// adopt keeps the charters that this keeper lacks.
func (r *registrar) adopt(q chainMessage) (charterNumber, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.charter()
	if err != nil {
		return charterNumber{}, err
	}
	if q.Since <= c.Number && c.Number-q.Since < uint64(len(q.Charters)) {
		was := c.Number
		if c, err = r.s.dir.charters().adopt(c, q.Charters[c.Number-q.Since:]); err != nil {
			return charterNumber{}, err
		}
		r.s.log.Info("a charter is kept", "number", c.Number, "before", was, "owners", len(c.Owners), "keepers", len(c.Keepers))
	}
	_, data, err := r.s.dir.charters().load(r.s.Names.ID)
	return charterNumber{c.Number, hashOf(data)}, err
}

// Amend makes the next charter, and has the keepers keep it. The same change, given again after an
// error, makes the same charter.
func (o *Owner) Amend(ctx context.Context, change Amendment) error {
	if _, err := o.syncKeepers(ctx); err != nil {
		return err
	}
	next := *o.Charter
	next.Number++
	if err := change(&next); err != nil {
		return err
	}
	if !next.isOwner(o.key.Public()) {
		// The newest orders would be signed by a key that counts no more: a lock would not hold.
		return refused("an owner is removed by another one: give this command with the keys of an owner who stays")
	}
	if err := o.signAgain(ctx, &next); err != nil {
		return err
	}
	data, err := seal(o.key, o.Names.ID, kindCharter, next)
	if err != nil {
		return err
	}
	if err := o.distribute(ctx, data); err != nil {
		return err
	}
	_, err = o.syncKeepers(ctx) // this brings the orders to a new keeper
	return err
}

// signAgain replaces each order of an owner whom next removes by the same order of this owner: nobody
// takes an order of a former owner.
func (o *Owner) signAgain(ctx context.Context, next *Charter) error {
	state, err := o.states(ctx)
	if err != nil {
		return err
	}
	for to := range heads(state) {
		h, err := o.current(ctx, to)
		if err != nil {
			return err
		}
		if !next.isOwner(h.by) {
			if _, err := o.place(ctx, to, func(*Standing) {}); err != nil {
				return err
			}
		}
	}
	return nil
}

// chain returns this owner's newest charters, at most maxChain of them, with the oldest first. since is
// the number of the charter before them.
func (o *Owner) chain() (since uint64, chain [][]byte, err error) {
	for since = o.Charter.Number; since > 0 && len(chain) < maxChain; since-- {
		data, err := readOwn(o.charters.file(since))
		if errors.Is(err, fs.ErrNotExist) {
			break // an owner who came later has no older ones
		}
		if err != nil {
			return 0, nil, err
		}
		chain = append([][]byte{data}, chain...)
	}
	return since, chain, nil
}

// sendCharters sends this owner's charters, and then the charters in more, on all buses. It returns the
// answers of the keepers of a charter.
func (o *Owner) sendCharters(ctx context.Context, to *Charter, buses []*Bus, more ...[]byte) (answers[charterNumber], error) {
	since, chain, err := o.chain()
	if err != nil {
		return answers[charterNumber]{}, err
	}
	q := request[chainMessage]{rand.Text(), chainMessage{since, append(chain, more...)}}
	message, err := seal(o.key, o.Names.ID, kindCharters, q)
	if err != nil {
		return answers[charterNumber]{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	return gather[charterNumber](ctx, buses, to, o.Names.charters(), kindCharters, q.Number, message), nil
}

// distribute gives the next charter to the keepers. The next charter holds when a majority of the old
// charter's keepers and a majority of its own keepers have it. From then on no majority gives a lease, or
// takes an order, by the old charter.
func (o *Owner) distribute(ctx context.Context, data []byte) error {
	next, err := o.Charter.openSuccessor(data)
	if err != nil {
		return err
	}
	both := *o.Charter
	for _, key := range next.Keepers {
		if !both.isKeeper(key) {
			both.Keepers = append(slices.Clone(both.Keepers), key)
		}
	}
	both.Servers = slices.Compact(slices.Sorted(slices.Values(append(addresses(o.Charter.servers(o.info.Address)), addresses(next.servers(o.info.Address))...))))
	buses, err := o.dial(&both)
	if err != nil {
		return err
	}
	defer closeAll(buses)
	got, err := o.sendCharters(ctx, &both, buses, data)
	if err != nil {
		return err
	}
	for _, c := range []*Charter{o.Charter, next} {
		have := 0
		for by, a := range got.of {
			if c.isKeeper(by) && a.Hash == hashOf(data) {
				have++
			}
		}
		if have < c.majority() {
			return errors.Join(fmt.Errorf("%d of %d keepers have the new charter, and %d are needed: see that they run, and give the command again", have, len(c.Keepers), c.majority()), got.refused)
		}
	}
	return o.adopt([][]byte{data})
}

func addresses(list []Address) (servers []string) {
	for _, a := range list {
		servers = append(servers, a.Server)
	}
	return servers
}

// adopt keeps newer charters, and connects to the servers of the newest.
func (o *Owner) adopt(chain [][]byte) error {
	c, err := o.charters.adopt(o.Charter, chain)
	if err != nil {
		return err
	}
	if !c.isOwner(o.key.Public()) {
		return refused("this owner was removed from the fleet")
	}
	buses, err := o.dial(c)
	if err != nil {
		return err
	}
	closeAll(o.buses)
	o.Charter, o.buses, o.Bus = c, buses, buses[0]
	_, o.charter, err = o.charters.load(o.Names.ID)
	return err
}

func closeAll(all []*Bus) {
	for _, b := range all {
		b.Close()
	}
}

// isAgreed reports whether a majority of the keepers has answered, and none has another charter at the
// index in keeperState.Charters.
func (o *Owner) isAgreed(state map[string]keeperState, index int, data []byte) bool {
	for _, s := range state {
		if index < len(s.Charters) && !bytes.Equal(s.Charters[index], data) {
			return false
		}
	}
	return len(state) >= o.Charter.majority()
}

// spread brings this owner and all keepers the newest charter that one of them has. It returns the
// states of the keepers after that.
func (o *Owner) spread(ctx context.Context, state map[string]keeperState) (map[string]keeperState, error) {
	changed := false
	var failed error
	for _, s := range state {
		for i, data := range s.Charters {
			if _, err := o.Charter.openSuccessor(data); err != nil {
				continue // this owner has the charter already, from another keeper, or it is not valid
			}
			var err error
			if i < len(s.Charters)-1 && o.isAgreed(state, i, data) {
				// The charter holds, because an owner has made the next charter. The keepers of the
				// charter have the next one already, or are gone.
				o.Charter, err = o.charters.adopt(o.Charter, [][]byte{data})
			} else {
				err = o.distribute(ctx, data)
			}
			if err != nil {
				failed = err // another keeper may bring the right one: a former owner may have signed this one
				break
			}
			changed = true
		}
	}
	if failed != nil && !changed {
		return nil, failed
	}
	behind := len(state) < len(o.Charter.Keepers) // a keeper that does not know this owner does not answer
	for _, s := range state {
		behind = behind || s.Charter < o.Charter.Number
	}
	if behind && o.Charter.Number > 1 && !changed {
		if _, err := o.sendCharters(ctx, o.Charter, o.buses); err != nil {
			return nil, err
		}
	}
	if !changed && !behind {
		return state, nil
	}
	return o.states(ctx)
}
