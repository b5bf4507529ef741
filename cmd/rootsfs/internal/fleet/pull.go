package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Archive is an owner's own copy of the records of machines. It has a directory for each signing
// key of a machine. Records are checked against that key before they are written.
type Archive struct {
	Owner *Owner
	Dir   string
	// Machines are the names of the machines whose records count; none: all machines.
	Machines []string

	confirmed map[machineKey]confirmation
	keepers   map[string]*keeperRecords // by key
}

// keeperRecords lists the records of one keeper, as far as this process has heard.
type keeperRecords struct {
	seen    map[string]string // sentMachine.Changes at the last pull, by directory
	has     map[string]uint64 // the last record of each file, by directory and name
	problem error             // why the last pull did not read everything; nil: it did
}

// keeperError is an error of one keeper. The records of the other keepers can still be read.
type keeperError struct{ error }

func (e keeperError) Unwrap() error { return e.error }

// ArchiveDir returns the default directory for an archive of the owner's fleet.
func (o *Owner) ArchiveDir() (string, error) { return stateDir("records", o.Names.ID) }

// Pulled is the outcome of a pull for one machine.
type Pulled struct {
	Machine string        `json:"machine"`
	Key     string        `json:"key"` // the fingerprint of the key that has signed the records
	Dir     string        `json:"dir"`
	Records int           `json:"records"`
	Issues  []RecordIssue `json:"issues"`

	name string // the last element of Dir
}

// RecordIssue says why records of a file were not taken.
type RecordIssue struct {
	Keeper  string        `json:"keeper,omitempty"` // the fingerprint of its key; "": the fleet has one keeper
	Session names.Foreign `json:"session,omitempty"`
	File    names.Foreign `json:"file,omitempty"`
	State   RecordState   `json:"state"`
	Problem names.Foreign `json:"problem"`
}

// maxIssues bounds the issues that a pull from one keeper notes about one machine: a keeper can
// name any number of files, and a machine can sign any number of files that are no audit files. One
// further issue then says that the rest was not read.
const maxIssues = 200

// Pull copies the records that keepers have and the archive lacks. Unless each is nil, Pull calls
// it for every copied record. The records of a session come in their order, unless the first keeper
// lacks some records that another keeper has. A keeper that cannot be read is an error only if no
// keeper can be read. An error of the archive's disk, of each or of ctx ends the pull. If a keeper
// names a key of a machine that the owner does not believe, or has a file that is not as the
// machine has signed it, Pull notes an issue and goes on.
func (a *Archive) Pull(ctx context.Context, each func(machine string, e *audit.Entry) error) ([]Pulled, error) {
	o := a.Owner
	got, err := askKeepers[struct{}, []sentMachine](ctx, o, o.Names.recordMachines(), kindRecordMachines, struct{}{})
	if err == nil {
		err = got.requireOne()
	}
	if err != nil {
		return nil, err
	}
	for _, name := range a.Machines {
		if !slices.ContainsFunc(slices.Concat(slices.Collect(maps.Values(got.of))...), func(m sentMachine) bool { return m.Machine == name }) {
			return nil, &control.Error{Class: control.NoSuch, Text: fmt.Sprintf("the keeper has no records of a machine %s; see: rootsfs fleet machines", names.Quote(name))}
		}
	}
	if a.keepers == nil {
		a.keepers = map[string]*keeperRecords{}
	}
	out, failed := []Pulled{}, 0
	for _, keeper := range o.Charter.Keepers {
		k := a.keepers[keeper]
		if k == nil {
			k = &keeperRecords{seen: map[string]string{}, has: map[string]uint64{}}
			a.keepers[keeper] = k
		}
		all, ok := got.of[keeper]
		if k.problem = a.pullKeeper(ctx, keeper, all, &out, each); k.problem == nil && !ok {
			k.problem = keeperError{got.errNone}
		}
		if k.problem == nil {
			continue
		}
		failed++
		if !errors.As(k.problem, new(keeperError)) || failed == len(o.Charter.Keepers) || ctx.Err() != nil {
			return out, k.problem
		}
	}
	return out, nil
}

// pullKeeper copies the records of one keeper. It adds to the outcome of each machine.
func (a *Archive) pullKeeper(ctx context.Context, keeper string, all []sentMachine, out *[]Pulled, each func(string, *audit.Entry) error) error {
	for _, m := range all {
		if !a.wants(m.Machine) || CheckName("a machine", m.Machine) != nil {
			continue
		}
		name := recordDirName(m.Machine, m.Key)
		if a.keepers[keeper].seen[name] == m.Changes {
			continue
		}
		i := slices.IndexFunc(*out, func(p Pulled) bool { return p.name == name })
		if i < 0 {
			i = len(*out)
			*out = append(*out, Pulled{Machine: m.Machine, Key: keyName(m.Key), Dir: filepath.Join(a.Dir, name), Issues: []RecordIssue{}, name: name})
		}
		p := &keeperPull{Archive: a, Pulled: &(*out)[i], keeper: keeper, each: each}
		if err := a.Owner.checkKeys(m.Machine, keysOf(all, m.Machine)); err != nil {
			p.issue("", RecordsTampered, err)
		} else if err := p.pull(ctx, m.sentBy); err != nil {
			return fmt.Errorf("the records of %s: %w", m.Machine, err)
		}
		a.keepers[keeper].seen[name] = m.Changes
	}
	return nil
}

// keeperPull is a pull of one machine's records from one keeper.
type keeperPull struct {
	*Archive
	*Pulled
	keeper string
	each   func(string, *audit.Entry) error
}

// isOnly reports whether the fleet has one keeper. If it has several, each keeper may lack records
// that another keeper has.
func (p *keeperPull) isOnly() bool { return len(p.Owner.Charter.Keepers) == 1 }

// askRecords sends a request about records to the keeper of a pull.
func askRecords[In, Out any](ctx context.Context, p *keeperPull, subject, kind string, in In) (Out, error) {
	out, err := askOneKeeper[In, Out](ctx, p.Owner.key, p.Owner.Charter, p.Owner.buses, p.keeper, subject, kind, in)
	if err != nil {
		err = keeperError{err}
	}
	return out, err
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

func (p *keeperPull) issue(file string, state RecordState, err error) {
	is := RecordIssue{Session: names.Foreign(sessionOfFile(file)), File: names.Foreign(file), State: state, Problem: foreign(err)}
	if !p.isOnly() {
		is.Keeper = keyName(p.keeper)
	}
	p.Issues = append(p.Issues, is)
}

// pull copies the records of the machine.
func (p *keeperPull) pull(ctx context.Context, m sentBy) error {
	d := recordDir{p.Owner.Names, p.Pulled.Dir, m.Machine, m.Key}
	unlock, err := d.lock()
	if err != nil {
		return err
	}
	defer unlock()
	had := len(p.Issues)
	for after := ""; ; {
		files, err := askRecords[filesRequest, []sentFile](ctx, p, p.Owner.Names.recordFiles(p.keeper), kindRecordFiles, filesRequest{m, after})
		if err != nil || len(files) == 0 {
			return err
		}
		for _, f := range files {
			if f.File <= after || sessionOfFile(f.File) == "" {
				return keeperError{fmt.Errorf("the keeper names a file %s, which is none", names.Quote(f.File))}
			}
			after = f.File
			if err := p.pullFile(ctx, d, f); err != nil {
				return err
			}
			if len(p.Issues)-had >= maxIssues { // other machines must not wait for more issues
				p.issue("", RecordsTampered, errors.New("there is more that is not as the machine has signed it, and was not read"))
				return nil
			}
		}
	}
}

// lock creates the directory if it is missing, and locks it. Until unlock is called, every other
// call of lock for this directory waits, in other processes, too.
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

// pullFile copies from one file the records that the archive lacks.
func (p *keeperPull) pullFile(ctx context.Context, d recordDir, f sentFile) error {
	theirs, err := openCheckpoint(f.Checkpoint, d.names, d.machine, d.key)
	if err == nil && theirs.File != f.File {
		err = errors.New("it is about another file")
	}
	if err != nil {
		p.issue(f.File, RecordsTampered, fmt.Errorf("the keeper's checkpoint: %w", err))
		return nil
	}
	p.keepers[p.keeper].has[filepath.Join(p.name, f.File)] = theirs.Seq
	own, err := d.mend(f.File)
	if errors.Is(err, errDamaged) {
		p.issue(f.File, RecordsTampered, fmt.Errorf("the archive: %w", err))
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case own != nil && own.Seq > theirs.Seq && !p.isOnly():
		return nil // Archive.Keepers reports that the keeper lacks records
	case own != nil && own.Seq > theirs.Seq:
		p.issue(f.File, RecordsCut, fmt.Errorf("the keeper has records up to %d, and had them up to %d", theirs.Seq, own.Seq))
		return nil
	case own != nil && own.Seq == theirs.Seq && own.Hash != theirs.Hash:
		p.issue(f.File, RecordsTampered, fmt.Errorf("the machine has signed two records with the number %d", own.Seq))
		return nil
	case own != nil && own.Seq == theirs.Seq:
		return nil
	}
	data, theirs, err := p.fetch(ctx, d, f.File)
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
	if p.each == nil {
		return nil
	}
	for i := range entries {
		if err := p.each(d.machine, &entries[i]); err != nil {
			return err
		}
	}
	return nil
}

// fetch returns the part of a keeper's file that begins where the archive's copy ends, and the
// file's checkpoint. The checkpoint is nil if the machine has not signed it, or not for this file.
// A keeper can name any size: more than maxRecordFile bytes are refused.
func (p *keeperPull) fetch(ctx context.Context, d recordDir, name string) (data []byte, c *checkpoint, err error) {
	from := int64(0)
	if st, err := os.Lstat(d.file(name)); err == nil {
		from = st.Size()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	for {
		q := fileRequest{sentBy{d.machine, d.key}, name, from + int64(len(data))}
		got, err := askRecords[fileRequest, fileAnswer](ctx, p, p.Owner.Names.recordFile(p.keeper), kindRecordFile, q)
		if err != nil {
			return nil, nil, err
		}
		data = append(data, got.Data...)
		if len(data) > maxRecordFile {
			return nil, nil, keeperError{fmt.Errorf("the keeper's file %s has more than %d bytes", names.Quote(name), maxRecordFile)}
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

// checkNew checks the records in data up to the keeper's checkpoint theirs. They follow the
// archive's checkpoint own. If own is nil, they begin the file. checkNew returns the records up to
// theirs, decoded and as bytes. For wrong records it returns their state and an error.
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

// addAll checks consecutive records of a file of a session. isStart says that data begins with the
// file's first record.
func (c *chain) addAll(data []byte, file, session string, isStart bool) ([]audit.Entry, error) {
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
		case isStart && i == 0 && !isHeader(&e, file):
			return nil, fmt.Errorf("record %d is not the first of the file", e.Seq)
		case e.Session.Raw() != session:
			return nil, fmt.Errorf("record %d is of another session", e.Seq)
		}
		entries = append(entries, e)
	}
	return entries, nil
}
