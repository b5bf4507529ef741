package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// A keeper whose directory was restored from an older copy has lost orders that it had confirmed.
// By the rest it would give leases to machines that have not heard of the lost ones. So a keeper
// marks its directory, and gives no lease in one that is a copy until an owner has brought back
// the orders.

// mark is what the mark file says: where the file itself is, and which orders the directory had.
// A copy of the file is another file.
type mark struct {
	Inode uint64            `json:"inode"`
	Born  int64             `json:"born_ns"` // 0: the file system does not say
	Heads map[string]uint64 `json:"heads"`
}

func (d ServerDir) mark() string { return d.file("keeper", "mark") }

// identify returns where a file is.
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
// each time: a copy that is written over the file of a later mark is found, too.
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

// isMarked reports whether a directory has the mark that was written there, and every order of
// the mark. An order that is newer than the mark was kept while the keeper ended.
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

// all returns whom the orders of a store are for.
func (s store) all() ([]string, error) {
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

// begin reads the keeper's orders, and finds out whether they are all.
func (k *keeper) begin() error {
	c, err := k.r.charter()
	if err != nil {
		return err
	}
	list, err := k.kept.all()
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, to := range list {
		if _, err := k.of(c, to); err != nil {
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
	for to, h := range k.held {
		if h.Number > 0 {
			heads[to] = h.Number
		}
	}
	return heads
}

// distrust ends leases until an owner has brought back the lost orders. The caller holds mu.
func (k *keeper) distrust() {
	if k.restored != "" {
		return
	}
	k.restored = rand.Text()
	// Without the mark, the keeper begins in the same state. If the file stays, it was no mark of this directory.
	if err := os.Remove(k.r.s.dir.mark()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.r.s.log.Error("the mark of a directory that lacks orders is still there", "error", err)
	}
	k.r.s.log.Error("this keeper's directory is an older copy, and lacks orders: there are no leases until an owner has run: rootsfs fleet machines")
}

// trust ends distrust. The bus can repeat what an owner has said about an earlier copy: so it names
// this one. The caller holds mu.
func (k *keeper) trust(restored string) error {
	if restored != k.restored {
		return errors.New("the keeper was restored once more: run rootsfs fleet machines again")
	}
	if err := k.r.s.dir.writeMark(k.heads()); err != nil {
		return err
	}
	k.restored = ""
	k.r.s.log.Info("an owner has brought back the orders that this keeper lacked")
	return nil
}

// known asks the keeper for its machines and orders. If it was restored from an older copy, known
// brings back the orders that this owner knows.
func (o *Owner) known(ctx context.Context) (keeperState, error) {
	ask := func() (keeperState, error) {
		return askKeeper[struct{}, keeperState](ctx, o, o.Names.machines(), kindMachines, struct{}{})
	}
	got, err := ask()
	if err != nil {
		return got, err
	}
	own, err := o.own()
	if err != nil {
		return got, err
	}
	restored := got.Restored
	for to, h := range own {
		if restored == "" && got.Heads[to] < h.Number {
			// The keeper does not know it: a copy of the whole disk has the mark, too.
			answer, err := o.order(ctx, orderRequest{For: to, Lost: true})
			if err != nil {
				return got, err
			}
			restored = answer.Restored
		}
	}
	if restored == "" {
		return got, nil
	}
	// An order of another owner that only the lost directory had is not brought back.
	for to := range own {
		if _, err := o.current(ctx, to); err != nil {
			return got, fmt.Errorf("the keeper was restored from an older copy, and lacks orders: %w", err)
		}
	}
	if _, err := o.order(ctx, orderRequest{For: allMachines, Restored: restored}); err != nil {
		return got, err
	}
	o.BroughtBack = true
	return ask()
}

// own returns this owner's copies of orders.
func (o *Owner) own() (map[string]held, error) {
	list, err := o.kept.all()
	if err != nil {
		return nil, err
	}
	own := map[string]held{}
	for _, to := range list {
		if own[to], err = o.kept.load(o.Charter, to); err != nil {
			return nil, ownCopy(err)
		}
	}
	return own, nil
}
