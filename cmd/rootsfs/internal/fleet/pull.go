package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Archive is an owner's own copy of the records of machines, a directory for each of them. What is
// in it was checked against the machine's key before it was written.
type Archive struct {
	Owner *Owner
	Dir   string
	// Machines are the names of those that count; none: all.
	Machines []string

	seen      map[string]string // how much the keeper had at the last pull, by directory
	confirmed map[machineKey]confirmation
}

// ArchiveDir returns the directory of the records of the owner's fleet, if the owner names none.
func (o *Owner) ArchiveDir() (string, error) { return StateDir("records", o.Names.ID) }

// Pulled is the outcome of a pull for one machine.
type Pulled struct {
	Machine string        `json:"machine"`
	Key     string        `json:"key"` // the fingerprint of the key that has signed
	Dir     string        `json:"dir"`
	Records int           `json:"records"`
	Issues  []RecordIssue `json:"issues"`
}

// RecordIssue says why records of a file were not taken.
type RecordIssue struct {
	Session names.Foreign `json:"session,omitempty"`
	File    names.Foreign `json:"file,omitempty"`
	State   RecordState   `json:"state"`
	Problem names.Foreign `json:"problem"`
}

// maxIssues bounds the issues of one machine in a pull: a keeper can name any number of files, and a machine
// can sign any number that are no audit files.
const maxIssues = 200

// Pull brings the records that the keeper has and the archive lacks. each, unless nil, is called for
// every record, in the order of its session. An error means that the pull is not complete; issues say
// what the keeper has and the machine has not signed.
func (a *Archive) Pull(ctx context.Context, each func(machine string, e *audit.Entry) error) ([]Pulled, error) {
	all, err := askRecords[struct{}, []sentMachine](ctx, a.Owner, a.Owner.Names.recordMachines(), kindRecordMachines, struct{}{})
	if err != nil {
		return nil, err
	}
	out := []Pulled{}
	for _, name := range a.Machines {
		if !slices.ContainsFunc(all, func(m sentMachine) bool { return m.Machine == name }) {
			return nil, &control.Error{Class: control.NoSuch, Text: fmt.Sprintf("the keeper has no records of a machine %s; see: rootsfs fleet machines", names.Quote(name))}
		}
	}
	if a.seen == nil {
		a.seen = map[string]string{}
	}
	for _, m := range all {
		if !a.wants(m.Machine) || CheckName("a machine", m.Machine) != nil {
			continue
		}
		name := recordDirName(m.Machine, m.Key)
		if a.seen[name] == m.Changes {
			continue
		}
		p := Pulled{Machine: m.Machine, Key: KeyName(m.Key), Dir: filepath.Join(a.Dir, name), Issues: []RecordIssue{}}
		if err := a.Owner.checkKeys(m.Machine, keysOf(all, m.Machine)); err != nil {
			p.issue("", RecordsTampered, err)
		} else if err := a.pull(ctx, m.sentBy, &p, each); err != nil {
			return append(out, p), fmt.Errorf("the records of %s: %w", m.Machine, err)
		}
		a.seen[name] = m.Changes
		out = append(out, p)
	}
	return out, nil
}

func (a *Archive) wants(machine string) bool {
	return len(a.Machines) == 0 || slices.Contains(a.Machines, machine)
}

// keysOf returns the keys that the keeper names for a machine.
func keysOf(all []sentMachine, machine string) (keys []string) {
	for _, m := range all {
		if m.Machine == machine {
			keys = append(keys, m.Key)
		}
	}
	return keys
}

func (p *Pulled) issue(file string, state RecordState, err error) {
	session := sessionOfFile(file)
	p.Issues = append(p.Issues, RecordIssue{names.Foreign(session), names.Foreign(file), state, foreign(err)})
}

// pull brings the records of one machine.
func (a *Archive) pull(ctx context.Context, m sentBy, p *Pulled, each func(string, *audit.Entry) error) error {
	d := recordDir{a.Owner.Names, p.Dir, m.Machine, m.Key}
	unlock, err := d.lock()
	if err != nil {
		return err
	}
	defer unlock()
	for after := ""; ; {
		files, err := askRecords[filesRequest, []sentFile](ctx, a.Owner, a.Owner.Names.recordFiles(), kindRecordFiles, filesRequest{m, after})
		if err != nil || len(files) == 0 {
			return err
		}
		for _, f := range files {
			if f.File <= after || sessionOfFile(f.File) == "" {
				return fmt.Errorf("the keeper names a file %s, which is none", names.Quote(f.File))
			}
			after = f.File
			if err := a.pullFile(ctx, d, f, p, each); err != nil {
				return err
			}
			if len(p.Issues) >= maxIssues { // other machines must not wait for that
				p.issue("", RecordsTampered, errors.New("there is more that is not as the machine has signed it, and was not read"))
				return nil
			}
		}
	}
}

// lock makes this process the only one that reads or writes the directory, until unlock. It makes
// the directory.
func (d recordDir) lock() (unlock func(), err error) {
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, err
	}
	f, err := d.open(".lock", os.O_CREATE|os.O_RDWR)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// pullFile brings what the archive lacks of one file.
func (a *Archive) pullFile(ctx context.Context, d recordDir, f sentFile, p *Pulled, each func(string, *audit.Entry) error) error {
	theirs, err := openCheckpoint(f.Checkpoint, d.names, d.machine, d.key)
	if err == nil && theirs.File != f.File {
		err = errors.New("it is about another file")
	}
	if err != nil {
		p.issue(f.File, RecordsTampered, fmt.Errorf("the keeper's checkpoint: %w", err))
		return nil
	}
	own, err := d.mend(f.File)
	if errors.Is(err, errDamaged) {
		p.issue(f.File, RecordsTampered, fmt.Errorf("the archive: %w", err))
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case own != nil && own.Seq > theirs.Seq:
		p.issue(f.File, RecordsCut, fmt.Errorf("the keeper has records up to %d, and had them up to %d", theirs.Seq, own.Seq))
		return nil
	case own != nil && own.Seq == theirs.Seq && own.Hash != theirs.Hash:
		p.issue(f.File, RecordsTampered, fmt.Errorf("the machine has signed two records with the number %d", own.Seq))
		return nil
	case own != nil && own.Seq == theirs.Seq:
		return nil
	}
	data, theirs, err := a.fetch(ctx, d, f.File)
	var refusal *control.Error
	if errors.As(err, &refusal) {
		p.issue(f.File, RecordsCut, fmt.Errorf("the keeper does not give the file: %w", err))
		return nil
	}
	if err != nil {
		return err
	}
	entries, data, state, err := checkNew(own, theirs, data)
	if err != nil {
		p.issue(f.File, state, err)
		return nil
	}
	if err := d.add(theirs, data, own == nil); err != nil {
		return err
	}
	p.Records += len(entries)
	if each == nil {
		return nil
	}
	for i := range entries {
		if err := each(d.machine, &entries[i]); err != nil {
			return err
		}
	}
	return nil
}

// fetch returns what the archive lacks of a file, and its checkpoint, which is nil if it is not the
// machine's. A keeper can name any size: more than maxRecordFile is refused.
func (a *Archive) fetch(ctx context.Context, d recordDir, name string) (data []byte, c *checkpoint, err error) {
	from := int64(0)
	if st, err := os.Lstat(d.file(name)); err == nil {
		from = st.Size()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	for {
		q := fileRequest{sentBy{d.machine, d.key}, name, from + int64(len(data))}
		got, err := askRecords[fileRequest, fileAnswer](ctx, a.Owner, a.Owner.Names.recordFile(), kindRecordFile, q)
		if err != nil {
			return nil, nil, err
		}
		data = append(data, got.Data...)
		if len(data) > maxRecordFile {
			return nil, nil, fmt.Errorf("the keeper's file %s has more than %d bytes", names.Quote(name), maxRecordFile)
		}
		if len(got.Data) == 0 || from+int64(len(data)) >= got.Size {
			c, err := openCheckpoint(got.Checkpoint, d.names, d.machine, d.key)
			if err != nil || c.File != name {
				c = nil
			}
			return data, c, nil
		}
	}
}

// checkNew checks records that follow those of the checkpoint own, up to the keeper's. It returns
// them, without what the keeper has after its checkpoint, or what is wrong with them.
func checkNew(own, theirs *checkpoint, data []byte) ([]audit.Entry, []byte, RecordState, error) {
	if theirs == nil {
		return nil, nil, RecordsTampered, errors.New("the keeper's checkpoint is not the machine's")
	}
	part, ok := theirs.signedPart(data)
	if !ok {
		part = data
	}
	var at chain
	if own != nil {
		at = chain{own.Seq, own.Hash}
	}
	entries, err := at.addAll(part, theirs.File, theirs.Session, own == nil)
	switch {
	case err != nil:
		return nil, nil, RecordsTampered, err
	case at.seq < theirs.Seq:
		return nil, nil, RecordsCut, fmt.Errorf("the keeper lacks records %d to %d: the machine has signed up to there", at.seq+1, theirs.Seq)
	case at.seq != theirs.Seq || at.hash != theirs.Hash:
		return nil, nil, RecordsTampered, fmt.Errorf("record %d is not as the machine has signed it", theirs.Seq)
	}
	return entries, part, RecordsWhole, nil
}

// addAll checks the records of a file; isWhole says that they are from its beginning.
func (c *chain) addAll(data []byte, file, session string, isWhole bool) ([]audit.Entry, error) {
	lines, err := splitLines(data)
	if err != nil {
		return nil, err
	}
	entries := make([]audit.Entry, 0, len(lines))
	for i, line := range lines {
		e, err := c.add(line)
		switch {
		case err != nil:
			return nil, err
		case isWhole && i == 0 && !isHeader(&e, file):
			return nil, fmt.Errorf("record %d is not the first of the file", e.Seq)
		case e.Session.Raw() != session:
			return nil, fmt.Errorf("record %d is of another session", e.Seq)
		}
		entries = append(entries, e)
	}
	return entries, nil
}
