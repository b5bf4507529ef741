package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// A keeper whose directory was restored from an older copy may have lost orders that it had confirmed.
// It would then give leases to machines that have not heard of the lost orders. So a keeper marks its
// directory. If the directory is a copy, the keeper gives no lease until an owner has brought back
// the orders.

// mark is the content of the mark file: the identity of the file itself, and the numbers of the orders
// that the directory had. A copy of the file has another identity.
type mark struct {
	Inode uint64            `json:"inode"`
	Born  int64             `json:"born_ns"` // 0: the file system does not say
	Heads map[string]uint64 `json:"heads"`
}

func (d ServerDir) mark() string { return d.file("keeper", "mark") }

// identify returns a mark with the identity of a file.
func identify(f *os.File) (mark, error) {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return mark{}, err
	}
	m := mark{Inode: st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		m.Born = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return m, nil
}

// writeMark marks a directory as one that has the newest orders of its keeper. It makes a new file
// each time, so that an older copy that is written over the file is detected, too.
func (d ServerDir) writeMark(heads map[string]uint64) error {
	return writeFile(d.mark(), func(f *os.File) ([]byte, error) {
		m, err := identify(f)
		if err != nil {
			return nil, err
		}
		m.Heads = heads
		return encodeJSON(m)
	})
}

// isMarked reports whether a directory has the mark that was written there, and has lost no order of
// the mark. heads has the numbers of the directory's orders. An order may be newer than the mark, if
// the keeper ended before it wrote the mark.
func (d ServerDir) isMarked(heads map[string]uint64) (bool, error) {
	f, err := os.Open(d.mark())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	here, err := identify(f)
	if err != nil {
		return false, err
	}
	var was mark
	if err := readJSON(d.mark(), &was); err != nil {
		return false, err
	}
	for to, n := range was.Heads {
		if heads[to] < n {
			return false, nil
		}
	}
	return was.Inode == here.Inode && was.Born == here.Born, nil
}

// recipients returns the recipients of the orders in a store.
func (s store) recipients() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		if name := e.Name(); name == allMachines || CheckName("a machine", name) == nil {
			list = append(list, name)
		}
	}
	return list, nil
}

// begin reads the keeper's orders. If some may have been lost, begin calls distrust.
func (k *keeper) begin() error {
	c, err := k.r.charter()
	if err != nil {
		return err
	}
	list, err := k.copies.recipients()
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, to := range list {
		if _, err := k.orderFor(c, to); err != nil {
			return err
		}
	}
	marked, err := k.r.s.dir.isMarked(k.heads())
	if err == nil && !marked {
		k.distrust()
	}
	return err
}

// heads returns the numbers of the keeper's orders. The caller holds mu.
func (k *keeper) heads() map[string]uint64 {
	heads := map[string]uint64{}
	for to, h := range k.orders {
		if h.Number > 0 {
			heads[to] = h.Number
		}
	}
	return heads
}

// distrust makes the keeper give no lease until an owner has brought back the lost orders. The caller
// holds mu.
func (k *keeper) distrust() {
	if k.restored != "" {
		return
	}
	k.restored = rand.Text()
	// An invite of the copy may have been used since the copy was made: owners make new invites.
	if err := os.RemoveAll(k.r.s.dir.file("keeper", "invites")); err != nil {
		k.r.s.log.Error("the invites of an older copy are still there, and may be used twice", "error", err)
	}
	// Without the mark, a restarted keeper distrusts its directory again. A copied mark that cannot be
	// removed does not count, either.
	if err := os.Remove(k.r.s.dir.mark()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.r.s.log.Error("the mark of a directory that lacks orders is still there", "error", err)
	}
	k.r.s.log.Error("this keeper's directory is a copy, and may lack orders: it gives no lease until an owner has run: rootsfs fleet machines; or, for a new keeper: rootsfs fleet keeper add, once more")
}

// trust lets the keeper give leases again, after an owner has brought back the lost orders. The keeper
// first promises the numbers that keepers had promised before. restored has to contain k.restored,
// because the bus could repeat an owner's request about an earlier copy. The caller holds mu.
func (k *keeper) trust(restored []string, promised map[string]uint64) error {
	switch {
	case k.restored == "":
		return nil
	case !slices.Contains(restored, k.restored):
		return errors.New("the keeper was restored once more: run rootsfs fleet machines again")
	}
	if err := k.renounce(promised); err != nil {
		return err
	}
	if err := k.r.s.dir.writeMark(k.heads()); err != nil {
		return err
	}
	k.restored = ""
	k.r.s.log.Info("an owner has brought back the orders that this keeper lacked")
	return nil
}

// states asks the keepers for their machines and the numbers of their orders.
func (o *Owner) states(ctx context.Context) (map[string]keeperState, error) {
	got, err := askKeepers[keeperQuestion, keeperState](ctx, o, o.Names.machines(), kindMachines, keeperQuestion{o.Charter.Number})
	if err != nil {
		return nil, err
	}
	return got.of, got.requireMajority(o.Charter)
}

// heads returns, by recipient, the highest number of an order that a keeper has.
func heads(state map[string]keeperState) map[string]uint64 {
	all := map[string]uint64{}
	for _, s := range state {
		for to, n := range s.Heads {
			all[to] = max(all[to], n)
		}
	}
	return all
}

// syncKeepers brings every keeper the charters and orders that it lacks, from this owner and the other
// keepers. It returns the states of the keepers after that.
func (o *Owner) syncKeepers(ctx context.Context) (map[string]keeperState, error) {
	state, err := o.states(ctx)
	if err != nil {
		return nil, err
	}
	if state, err = o.spread(ctx, state); err != nil {
		return nil, err
	}
	newest := heads(state)
	own, err := o.ownOrders()
	if err != nil {
		return nil, err
	}
	lost := false
	for to, h := range own {
		lost = lost || newest[to] < h.Number
		newest[to] = max(newest[to], h.Number)
	}
	if lost && len(o.Charter.Keepers) == 1 {
		// The keeper does not know that it lost orders: a copy of the whole disk has a valid mark.
		if _, err := o.order(ctx, orderRequest{For: allMachines, Lost: true}); err != nil {
			return nil, err
		}
		if state, err = o.states(ctx); err != nil {
			return nil, err
		}
	}
	if state, err = o.bringBack(ctx, state, newest); err != nil {
		return nil, err
	}
	return o.removeAgain(ctx, state)
}

// bringBack gives the keepers that lack orders the newest ones. Restored keepers then trust their
// directories again. An order of another owner that only a lost directory had is not brought back.
func (o *Owner) bringBack(ctx context.Context, state map[string]keeperState, newest map[string]uint64) (map[string]keeperState, error) {
	var restored []string
	promised := map[string]uint64{}
	behind := false
	for _, s := range state {
		for to, n := range s.Promised {
			promised[to] = max(promised[to], n)
		}
		if s.Restored != "" {
			restored = append(restored, s.Restored)
		}
		for to, n := range newest {
			behind = behind || s.Heads[to] < n
		}
	}
	if len(restored) == 0 && !behind {
		return state, nil
	}
	// Unless all keepers answer, each majority must have a keeper that answers and was not restored.
	n, others := len(o.Charter.Keepers), len(state)-len(restored)
	if len(restored) > 0 && others <= n-o.Charter.majority() && len(state) < n {
		return nil, fmt.Errorf("a keeper was restored from an older copy, and the %d others that answer may not have every order: start the other keepers, and give the command again", others)
	}
	for to := range newest {
		if _, err := o.current(ctx, to); err != nil {
			return nil, fmt.Errorf("a keeper lacks orders: %w", err)
		}
	}
	if len(restored) > 0 {
		if _, err := o.order(ctx, orderRequest{For: allMachines, Restored: restored, Promised: promised}); err != nil {
			return nil, err
		}
		o.HasRestoredOrders = true
	}
	return o.states(ctx)
}

// removeAgain has keepers remove machines that were removed before. A keeper still knows such a machine
// if it was restored from an older copy, or did not run at the removal.
func (o *Owner) removeAgain(ctx context.Context, state map[string]keeperState) (map[string]keeperState, error) {
	gone, again := o.removed(state), map[removeRequest]bool{}
	for _, s := range state {
		for _, rec := range s.Machines {
			if gone[rec.Invite] {
				again[removeRequest{rec.Name, rec.Signing, rec.Invite}] = true
			}
		}
	}
	if len(again) == 0 {
		return state, nil
	}
	for q := range again {
		if _, err := o.askRemoval(ctx, q); err != nil {
			return nil, fmt.Errorf("the machine %s was removed, and a keeper still knows it: %w", q.Machine, err)
		}
	}
	return o.states(ctx)
}

// removed returns the invites of the machines that were removed: by this owner, or as a majority of the
// keepers says. One keeper must not hide a machine.
func (o *Owner) removed(state map[string]keeperState) map[string]bool {
	gone, by := map[string]bool{}, map[string]int{}
	entries, _ := os.ReadDir(o.dir.removed()) // the directory is missing before the first removal
	for _, e := range entries {
		gone[e.Name()] = true
	}
	for _, s := range state {
		for _, invite := range slices.Compact(slices.Sorted(slices.Values(s.Removed))) {
			by[invite]++
			gone[invite] = gone[invite] || by[invite] >= o.Charter.majority()
		}
	}
	return gone
}

// ownOrders returns this owner's copies of orders.
func (o *Owner) ownOrders() (map[string]signedOrder, error) {
	list, err := o.copies.recipients()
	if err != nil {
		return nil, err
	}
	own := map[string]signedOrder{}
	for _, to := range list {
		if own[to], err = o.copies.load(o.Charter, to); err != nil {
			return nil, ownCopyError(err)
		}
	}
	return own, nil
}

// merge returns the machines that keepers know, without the machines whose invites are in gone. If
// keepers know a machine by different keys, the key that the most keepers know counts. If several keys
// share that rank, the machine is returned without a key.
func merge(state map[string]keeperState, gone map[string]bool) []machineRecord {
	type candidate struct {
		machineRecord
		keepers int
	}
	byName := map[string]map[string]*candidate{} // by name and key
	for _, by := range slices.Sorted(maps.Keys(state)) {
		for _, rec := range state[by].Machines {
			if gone[rec.Invite] {
				continue
			}
			if byName[rec.Name] == nil {
				byName[rec.Name] = map[string]*candidate{}
			}
			c := byName[rec.Name][rec.Signing]
			if c == nil {
				c = &candidate{machineRecord: rec}
				c.Newest = map[string]uint64{}
				byName[rec.Name][rec.Signing] = c
			}
			c.keepers++
			if rec.Heard.After(c.Heard) {
				c.Heard = rec.Heard
			}
			for to, n := range rec.Newest {
				c.Newest[to] = max(c.Newest[to], n)
			}
		}
	}
	list := []machineRecord{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all := slices.SortedFunc(maps.Values(byName[name]), func(x, y *candidate) int { return y.keepers - x.keepers })
		if len(all) > 1 && all[0].keepers == all[1].keepers {
			all[0].Signing = "" // no key: answers of the machine do not count
		}
		list = append(list, all[0].machineRecord)
	}
	return list
}
