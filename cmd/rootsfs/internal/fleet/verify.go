package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// RecordState says whether the records of a session are as its machine has written them.
type RecordState string

// The states of records.
const (
	RecordsWhole    RecordState = "whole"
	RecordsHole     RecordState = "hole"     // some are missing, and none was changed
	RecordsCut      RecordState = "cut"      // the last are missing: the machine has signed more
	RecordsTampered RecordState = "tampered" // some were changed, or removed after they were sent
)

// RecordHole is a range of missing records.
type RecordHole struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
	// Deleted says that the machine has signed that its log deleted them before they were sent.
	Deleted bool `json:"deleted"`
}

// RecordReport is the outcome of a check of the records of one session.
type RecordReport struct {
	Machine string        `json:"machine"`
	Key     string        `json:"key,omitempty"` // the fingerprint of the key that has signed them
	Session names.Foreign `json:"session"`
	State   RecordState   `json:"state"`
	Files   int           `json:"files"`
	Records uint64        `json:"records"`
	From    uint64        `json:"from"`
	To      uint64        `json:"to"`
	Signed  time.Time     `json:"signed,omitzero"` // when the machine signed the last of them, by its clock
	Holes   []RecordHole  `json:"holes,omitempty"`
	Problem names.Foreign `json:"problem,omitempty"` // the first problem of this State

	files []recordedFile
}

// recordedFile is a file of a session with the records that the archive has of it.
type recordedFile struct {
	name     string // with its directory
	from, to uint64
}

// OK reports whether the records are all that the machine has kept.
func (r *RecordReport) OK() bool {
	for _, h := range r.Holes {
		if !h.Deleted {
			return false
		}
	}
	return r.State == RecordsWhole || r.State == RecordsHole
}

// fail notes a problem. Tampering counts more than a cut, and a cut more than a hole. Of the
// problems of one state, the first stays.
func (r *RecordReport) fail(state RecordState, err error) {
	weight := map[RecordState]int{RecordsHole: 1, RecordsCut: 2, RecordsTampered: 3}
	if weight[state] > weight[r.State] {
		r.State, r.Problem = state, foreign(err)
	}
}

// confirmation is how far keepers have confirmed records to a machine, by the machine's word.
type confirmation map[string]uint64 // by session

// machineKey is a machine with one of its keys.
type machineKey struct {
	machine string
	key     string // the fingerprint
}

// Unsure is a machine that may have records which no keeper has or gives.
type Unsure struct {
	Machine string        `json:"machine"`
	Wait    names.Foreign `json:"records_wait,omitempty"` // why the machine sends none; "": it has not answered
}

// AskMachines asks the machines how far keepers have confirmed their records. A later Verify reports the
// confirmed records that the archive lacks.
func (a *Archive) AskMachines(ctx context.Context, wait time.Duration) (unsure []Unsure, err error) {
	all, err := a.Owner.Machines(ctx, wait)
	if err != nil {
		return nil, err
	}
	a.confirmed = map[machineKey]confirmation{}
	for _, m := range all {
		switch {
		case !a.wants(m.Name):
		case m.MachineStatus == nil:
			unsure = append(unsure, Unsure{Machine: m.Name})
		default:
			if m.RecordsWait != "" {
				unsure = append(unsure, Unsure{m.Name, m.RecordsWait})
			}
			c := confirmation{}
			for _, s := range m.Sent {
				c[s.Session.Raw()] = s.Record
			}
			a.confirmed[machineKey{m.Name, m.Key}] = c
		}
	}
	return unsure, nil
}

// KeeperReport is how one of several keepers differs from the archive.
type KeeperReport struct {
	Key     string        `json:"key"`               // its fingerprint
	Problem names.Foreign `json:"problem,omitempty"` // why some of its records were not read
	Lacks   []Lack        `json:"lacks,omitempty"`
}

// Lack is a range of records that a keeper does not have.
type Lack struct {
	Machine string        `json:"machine"`
	Session names.Foreign `json:"session"`
	From    uint64        `json:"from"`
	To      uint64        `json:"to"`
}

// Keepers returns how the keepers differed from the archive at the last Pull. reports is the result of
// Verify; if it is nil, only problems are returned. Keepers returns nil if the fleet has one keeper, or
// before the first Pull.
func (a *Archive) Keepers(reports []RecordReport) []KeeperReport {
	if len(a.keepers) < 2 {
		return nil
	}
	var out []KeeperReport
	for _, key := range a.Owner.Charter.Keepers {
		k := KeeperReport{Key: keyName(key)}
		of := a.keepers[key]
		switch {
		case of == nil: // the keeper was added after the Pull
			continue
		case of.problem != nil:
			k.Problem = foreign(of.problem)
		default:
			for i := range reports {
				k.Lacks = append(k.Lacks, reports[i].missing(of.has)...)
			}
		}
		out = append(out, k)
	}
	return out
}

// missing returns the records of the session that a keeper lacks. has is the last record that the keeper
// has of each file.
func (r *RecordReport) missing(has map[string]uint64) (list []Lack) {
	for _, f := range r.files {
		l := Lack{r.Machine, r.Session, max(f.from, has[f.name]+1), f.to}
		switch {
		case l.From > l.To:
		case len(list) > 0 && list[len(list)-1].To+1 == l.From:
			list[len(list)-1].To = l.To
		default:
			list = append(list, l)
		}
	}
	return list
}

// compare notes the records that the archive lacks, although a keeper has confirmed them to the machine.
func (c confirmation) compare(of machineKey, reports []RecordReport) []RecordReport {
	for _, session := range slices.Sorted(maps.Keys(c)) {
		i := slices.IndexFunc(reports, func(r RecordReport) bool { return r.Session.Raw() == session })
		if i < 0 {
			i, reports = len(reports), append(reports, RecordReport{Machine: of.machine, Key: of.key, Session: names.Foreign(session), State: RecordsWhole})
		}
		if r := &reports[i]; r.To < c[session] {
			r.fail(RecordsCut, fmt.Errorf("records %d to %d are missing: a keeper has confirmed them to the machine", r.To+1, c[session]))
		}
	}
	return reports
}

// Verify checks the archive, without the keepers: each session against the machine's checkpoints, by
// the keys that this owner knows.
func (a *Archive) Verify() ([]RecordReport, error) {
	entries, err := os.ReadDir(a.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out, checked := []RecordReport{}, map[machineKey]bool{}
	for _, e := range entries {
		machine := machineOfDir(e.Name())
		if machine == "" || !a.wants(machine) {
			continue
		}
		known, err := a.Owner.loadKeys(machine)
		if err != nil {
			return nil, err
		}
		d := recordDir{a.Owner.Names, filepath.Join(a.Dir, e.Name()), machine, known.keyOfDir(machine, e.Name())}
		reports, err := d.verify()
		if err != nil {
			return nil, fmt.Errorf("the records of %s: %w", machine, err)
		}
		if d.key != "" {
			of := machineKey{machine, keyName(d.key)}
			reports, checked[of] = a.confirmed[of].compare(of, reports), true
		}
		out = append(out, reports...)
	}
	for of, c := range a.confirmed {
		if !checked[of] { // the archive has no records of this machine
			out = append(out, c.compare(of, nil)...)
		}
	}
	return out, nil
}

// verify checks the records of every session of a machine.
func (d recordDir) verify() ([]RecordReport, error) {
	unlock, err := d.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	// Files without a checkpoint are of an interrupted pull: they count as not pulled.
	list, err := d.checkpoints()
	if err != nil {
		return nil, err
	}
	files := map[string][]string{}
	for _, name := range list {
		files[sessionOfFile(name)] = append(files[sessionOfFile(name)], name)
	}
	out := []RecordReport{}
	for _, session := range slices.Sorted(maps.Keys(files)) {
		r := RecordReport{Machine: d.machine, Session: names.Foreign(session), State: RecordsWhole}
		if d.key == "" {
			r.fail(RecordsTampered, errors.New("no key is known by which the machine could have signed them"))
			out = append(out, r)
			continue
		}
		r.Key = keyName(d.key)
		if err := d.verifySession(files[session], session, &r); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// verifySession checks the files of a session, in the order of their records.
func (d recordDir) verifySession(files []string, session string, r *RecordReport) error {
	var list []*checkpoint
	for _, name := range files {
		c, err := d.checkpoint(name)
		switch {
		case errors.Is(err, errDamaged):
			r.fail(RecordsTampered, err)
		case err != nil:
			return err
		case c != nil:
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *checkpoint) int { return cmp.Compare(a.Seq, b.Seq) })
	var last chain
	for _, c := range list {
		data, err := d.read(c.File)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		r.Files++
		r.Signed = c.At
		d.verifyFile(c, data, &last, r)
	}
	r.To = last.seq
	return nil
}

// verifyFile checks a file against its checkpoint, and against the last record before the file.
func (d recordDir) verifyFile(c *checkpoint, data []byte, last *chain, r *RecordReport) {
	// Records after the checkpoint are of an interrupted pull, and do not count.
	part, ok := c.signedPart(data)
	if !ok {
		part = data
	}
	var here chain
	entries, err := here.addAll(part, c.File, c.Session, true)
	if len(entries) > 0 {
		r.files = append(r.files, recordedFile{filepath.Join(recordDirName(d.machine, d.key), c.File), entries[0].Seq, here.seq})
		r.follow(entries[0].Seq, entries[0].Prev, *last, c.Follows)
		r.Records += uint64(len(entries))
	}
	switch {
	case err != nil:
		r.fail(RecordsTampered, fmt.Errorf("%s: %w", c.File, err))
	case here.seq < c.Seq:
		r.fail(RecordsCut, fmt.Errorf("%s: records %d to %d are missing: the machine has signed up to there", c.File, here.seq+1, c.Seq))
	case here.seq != c.Seq || here.hash != c.Hash:
		r.fail(RecordsTampered, fmt.Errorf("%s: record %d is not as the machine has signed it", c.File, c.Seq))
	}
	*last = chain{c.Seq, c.Hash} // so that one problem is not reported twice
}

// follow checks that a file continues the last record of the file before, and notes a hole or a problem.
// first and prev are the number and the previous hash in the file's first record. follows is the
// Follows of the file's checkpoint.
func (r *RecordReport) follow(first uint64, prev string, last chain, follows uint64) {
	if r.From == 0 {
		r.From = first
	}
	switch {
	case first <= last.seq:
		r.fail(RecordsTampered, fmt.Errorf("record %d comes after record %d", first, last.seq))
	case first == last.seq+1 && last.seq > 0 && prev != last.hash:
		r.fail(RecordsTampered, fmt.Errorf("record %d does not continue record %d: one of them was replaced", first, last.seq))
	case first == last.seq+1:
	default:
		hole := RecordHole{From: last.seq + 1, To: first - 1, Deleted: follows == last.seq}
		r.Holes = append(r.Holes, hole)
		switch {
		case hole.Deleted:
			r.fail(RecordsHole, fmt.Errorf("records %d to %d are missing: the machine's log deleted them before they were sent", hole.From, hole.To))
		case last.seq == 0:
			r.fail(RecordsHole, fmt.Errorf("records %d to %d are missing: the keeper no longer had them", hole.From, hole.To))
		default:
			r.fail(RecordsTampered, fmt.Errorf("records %d to %d are missing: the machine has sent the records up to %d, or could not send them", hole.From, hole.To, follows))
		}
	}
}
