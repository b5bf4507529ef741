package fleet

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// recordKeeper is the part of the keeper that has the audit records of machines. It confirms records
// when they are on its disk, with the machine's checkpoint. It does not verify their hashes: an owner
// does. Each machine has a share of the disk and of the time. A machine that sends more loses its own
// oldest records, and waits.
type recordKeeper struct {
	r     *registrar
	run   string // names this process, so that its counts differ from those of an earlier one
	share int64  // bytes of each machine

	busy   chan struct{} // has an element for each machine whose records are being written
	limits *limits       // bytes that each machine may send in a second

	mu       sync.Mutex // guards the fields below
	machines map[string]*recordStore
	writing  map[string]bool // the machines whose messages are being handled
}

// recordStore has the records of one machine.
type recordStore struct {
	recordDir
	changes atomic.Uint64 // counts the batches that were added since the keeper began

	mu     sync.Mutex             // guards the directory and the fields below
	newest map[string]*checkpoint // by session
	size   int64                  // bytes of the files, and recordCharge for each; -1: not known yet
}

// The bounds of a record keeper.
const (
	recordShare  = 1 << 30   // bytes that the records of one machine may take on disk
	recordCharge = 64 << 10  // for each file, besides its bytes: a machine must not use up the inodes
	recordRate   = 2 << 20   // bytes of one machine in a second; messages above that are dropped unread
	recordBurst  = 8 << 20   // bytes at once
	recordCost   = 8 << 10   // bytes that a message counts for at least: a short one is work, too
	freeBytes    = 256 << 20 // that stay free for orders
	listFiles    = 200       // files in one answer to an owner
	chunkBytes   = 256 << 10 // of a file in one answer to an owner
	recordsBusy  = 16        // machines whose records are written at the same time
)

// newRecordKeeper starts a record keeper. It takes the records of machines, and answers owners, until the
// connection is closed.
func newRecordKeeper(r *registrar) (*recordKeeper, error) {
	k := &recordKeeper{r: r, run: rand.Text(), share: recordShare, busy: make(chan struct{}, recordsBusy), limits: newLimits(recordRate, recordBurst), machines: map[string]*recordStore{}, writing: map[string]bool{}}
	n, own := r.s.Names, r.key.Public()
	for subject, handle := range map[string]nats.MsgHandler{
		n.ofMachines(recordsTo(own)): k.onRecords,
		n.recordMachines():           fromOwner(r, kindRecordMachines, k.list),
		n.recordFiles(own):           fromOwner(r, kindRecordFiles, k.files),
		n.recordFile(own):            fromOwner(r, kindRecordFile, k.file),
	} {
		if _, err := r.s.Bus.Conn.Subscribe(subject, handle); err != nil {
			return nil, err
		}
	}
	return k, r.s.Bus.Conn.Flush()
}

// onRecords answers a machine that sends records.
func (k *recordKeeper) onRecords(m *nats.Msg) {
	machine := k.r.s.Names.machineOf(m.Subject)
	if machine == "" || !k.begin(machine, len(m.Data)) {
		return // the server lets a machine send under its own name only; the machine sends again
	}
	q, rec, err := openMachineRequest[recordBatch](k.r, m, kindRecords)
	if err != nil {
		k.end(machine)
		k.r.s.log.Warn("records were not taken", "subject", m.Subject, "error", err)
		return
	}
	k.busy <- struct{}{} // several at a time: one sync of the disk serves them all
	go func() {
		out, err := k.receive(rec, q.Body)
		<-k.busy
		k.end(machine)
		if err != nil {
			k.r.s.log.Warn("records were refused", "machine", rec.Name, "error", err)
		}
		answer(k.r, m, rec.Name, kindRecords, q.Number, out, err)
	}()
}

// begin reports whether a machine's message is read. A machine sends one message, and waits for the
// answer. The messages of a machine that does not wait are dropped, so that they delay no other machine.
func (k *recordKeeper) begin(machine string, size int) bool {
	if !k.limits.admits(machine, max(size, recordCost)) {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.writing[machine] {
		return false
	}
	k.writing[machine] = true
	return true
}

// end must be called once for each begin that has reported true.
func (k *recordKeeper) end(machine string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.writing, machine)
}

// dir returns where the records of all machines are.
func (k *recordKeeper) dir() string { return k.r.s.dir.file("keeper", "records") }

// machineFile is the file of a record directory that names the machine and its key.
const machineFile = "machine.json"

// sentBy is the content of machineFile.
type sentBy struct {
	Machine string `json:"machine"`
	Key     string `json:"key"`
}

// acquire returns the store of a machine's records, with mu locked. The caller must unlock it.
func (k *recordKeeper) acquire(machine, key string) (*recordStore, error) {
	name := recordDirName(machine, key)
	k.mu.Lock()
	d := k.machines[name]
	if d == nil {
		d = &recordStore{recordDir: recordDir{k.r.s.Names, filepath.Join(k.dir(), name), machine, key}, newest: map[string]*checkpoint{}, size: -1}
		k.machines[name] = d
	}
	k.mu.Unlock()
	d.mu.Lock()
	if d.size >= 0 {
		return d, nil
	}
	list, err := d.recordDir.files("")
	if err != nil {
		d.mu.Unlock()
		return nil, err
	}
	d.size = 0
	for _, file := range list {
		if st, err := os.Lstat(d.recordDir.file(file)); err == nil {
			d.size += recordCharge + st.Size()
		}
	}
	return d, nil
}

// head returns the newest checkpoint of a session. The caller holds mu.
func (d *recordStore) head(session string) (*checkpoint, error) {
	if c, ok := d.newest[session]; ok {
		return c, nil
	}
	c, err := d.recordDir.newest(session)
	if c != nil && err == nil { // nil is not cached: a machine can ask about any number of sessions
		d.newest[session] = c
	}
	return c, err
}

// receive keeps the records of a machine, if they follow the records that the keeper has. Records
// that come twice, or too early, change nothing: the answer says where the machine has to go on.
func (k *recordKeeper) receive(rec *machineRecord, b recordBatch) (recordsAnswer, error) {
	if !audit.WellNamed(b.Session, maxSessionName) {
		return recordsAnswer{}, errors.New("the session cannot have this name")
	}
	d, err := k.acquire(rec.Name, rec.Signing)
	if err != nil {
		return recordsAnswer{}, err
	}
	defer d.mu.Unlock()
	head, err := d.head(b.Session)
	if err != nil {
		k.r.s.log.Error("records cannot be read", "machine", rec.Name, "error", err)
		return recordsAnswer{Wait: "the keeper cannot read the records that it has"}, nil
	}
	var seq uint64
	var have recordsAnswer
	if head != nil {
		seq, have.Checkpoint = head.Seq, head.signed
	}
	if len(b.Lines) == 0 || b.After != seq {
		return have, nil
	}
	c, err := openCheckpoint(b.Checkpoint, k.r.s.Names, rec.Name, rec.Signing)
	if err != nil {
		return recordsAnswer{}, err
	}
	isNew := head == nil || head.File != c.File
	if err := b.check(c, seq, isNew); err != nil {
		return recordsAnswer{}, err
	}
	if have.Wait = k.full(); have.Wait != "" {
		return have, nil
	}
	err = k.add(d, c, b.Lines, isNew)
	switch {
	case errors.Is(err, errLongFile):
		return recordsAnswer{}, err
	case err != nil:
		k.r.s.log.Error("records cannot be kept", "machine", rec.Name, "error", err)
		have.Wait = "the keeper cannot write"
		return have, nil
	}
	return recordsAnswer{Checkpoint: c.signed}, nil
}

// maxSessionName is the longest name of a session that an audit file can have.
const maxSessionName = 128

// check refuses records that do not match the checkpoint. It does not verify their hashes: an owner
// does.
func (b *recordBatch) check(c *checkpoint, last uint64, isNew bool) error {
	lines, err := splitLines(b.Lines)
	switch {
	case err != nil:
		return err
	case c.Session != b.Session:
		return errors.New("the checkpoint is of another session")
	case len(b.Lines) > maxRecordBatch || len(lines) == 0:
		return fmt.Errorf("there are no records, or more than %d bytes", maxRecordBatch)
	}
	hash := ""
	for i, line := range lines {
		e, err := audit.ParseLine(line)
		switch {
		case err != nil:
			return fmt.Errorf("after record %d is something that is no record", last)
		case e.Session.Raw() != b.Session:
			return fmt.Errorf("record %d is of another session", e.Seq)
		case e.Seq <= last:
			return fmt.Errorf("record %d comes after record %d", e.Seq, last)
		case isNew && i == 0 && !isHeader(&e, c.File), (!isNew || i > 0) && e.Op == "session":
			return fmt.Errorf("record %d: an audit file begins elsewhere", e.Seq)
		}
		last, hash = e.Seq, e.Hash
	}
	if last != c.Seq || hash != c.Hash {
		return errors.New("the checkpoint is not of the last record")
	}
	return nil
}

// full returns the reason why the keeper takes no records, or "" if it takes them.
func (k *recordKeeper) full() string {
	var st unix.Statfs_t
	if err := unix.Statfs(string(k.r.s.dir), &st); err == nil && st.Bavail*uint64(st.Bsize) < freeBytes {
		return "the keeper's disk is nearly full"
	}
	return ""
}

// add writes records. If the machine then has more than its share, add removes the machine's oldest
// records. The caller holds mu of d.
func (k *recordKeeper) add(d *recordStore, c *checkpoint, lines []byte, isNew bool) error {
	if _, err := os.Stat(d.recordDir.file(machineFile)); err != nil {
		if err := writeJSON(d.recordDir.file(machineFile), sentBy{d.machine, d.key}); err != nil {
			return err
		}
	}
	if err := d.recordDir.add(c, lines, isNew); err != nil {
		delete(d.newest, c.Session) // head reads the file again: it may have records without a checkpoint
		return err
	}
	d.newest[c.Session] = c
	d.size += int64(len(lines))
	if isNew {
		d.size += recordCharge
	}
	d.changes.Add(1)
	if d.size <= k.share {
		return nil
	}
	return d.shrink(k.share-k.share/10, c.File)
}

// shrink removes the oldest file of the session with the most bytes, again and again, until at most size
// bytes are left. If no session has several files, shrink removes the oldest file of all sessions
// instead. It never removes the file keep, which counts as the newest of its session. The caller holds
// mu.
func (d *recordStore) shrink(size int64, keep string) error {
	list, err := d.recordDir.files("")
	if err != nil {
		return err
	}
	if i := slices.Index(list, keep); i >= 0 { // the machine chose the names, and so their order
		list = append(slices.Delete(list, i, i+1), keep)
	}
	type file struct {
		name string
		size int64
	}
	files, total := map[string][]file{}, map[string]int64{}
	for _, name := range list {
		if st, err := os.Lstat(d.recordDir.file(name)); err == nil {
			session := sessionOfFile(name)
			files[session] = append(files[session], file{name, st.Size() + recordCharge})
			total[session] += st.Size() + recordCharge
		}
	}
	for d.size > size {
		largest, oldest := "", ""
		for session, of := range files {
			if len(of) > 1 && (largest == "" || total[session] > total[largest]) {
				largest = session
			}
			if len(of) > 0 && of[0].name != keep && (oldest == "" || of[0].name[len(session):] < files[oldest][0].name[len(oldest):]) {
				oldest = session
			}
		}
		if largest == "" {
			largest = oldest
		}
		if largest == "" {
			return nil
		}
		f := files[largest][0]
		if err := d.remove(f.name); err != nil {
			return err
		}
		files[largest] = files[largest][1:]
		total[largest] -= f.size
		d.size -= f.size
		if c := d.newest[largest]; len(files[largest]) == 0 || c != nil && c.File == f.name {
			delete(d.newest, largest)
		}
	}
	return nil
}

// The requests of owners about records.

const (
	kindRecordMachines = "record-machines"
	kindRecordFiles    = "record-files"
	kindRecordFile     = "record-file"
)

// sentMachine is a present or removed machine of which the keeper has records.
type sentMachine struct {
	sentBy
	Changes string `json:"changes"` // another text after the keeper got records, or restarted
}

// list returns the machines of which there are records.
func (k *recordKeeper) list(struct{}) ([]sentMachine, error) {
	entries, err := os.ReadDir(k.dir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	all := []sentMachine{}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range entries {
		var by sentBy
		if machineOfDir(e.Name()) == "" || readJSON(filepath.Join(k.dir(), e.Name(), machineFile), &by) != nil || recordDirName(by.Machine, by.Key) != e.Name() {
			continue // a crash left it, before the first records
		}
		changes := uint64(0)
		if d := k.machines[e.Name()]; d != nil {
			changes = d.changes.Load()
		}
		all = append(all, sentMachine{by, fmt.Sprintf("%s %d", k.run, changes)})
	}
	return all, nil
}

// filesRequest asks for the audit files of a machine whose names come after the name After.
type filesRequest struct {
	sentBy
	After string `json:"after,omitempty"`
}

// sentFile is the name of an audit file of a machine, and the file's checkpoint.
type sentFile struct {
	File       string `json:"file"`
	Checkpoint []byte `json:"checkpoint"`
}

// files returns at most listFiles files of a machine, in the order of their names.
func (k *recordKeeper) files(q filesRequest) ([]sentFile, error) {
	d, err := k.acquireExisting(q.sentBy)
	if err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	list, err := d.checkpoints() // also of a file that was lost here: the owner is told
	if err != nil {
		return nil, err
	}
	out := []sentFile{}
	for _, name := range list {
		if name <= q.After || len(out) == listFiles {
			continue
		}
		if data, err := readOwn(d.recordDir.file(name + checkpointSuffix)); err == nil {
			out = append(out, sentFile{name, data})
		}
	}
	return out, nil
}

// acquireExisting does what acquire does, but fails if the keeper has no records of the machine.
func (k *recordKeeper) acquireExisting(by sentBy) (*recordStore, error) {
	if err := CheckName("a machine", by.Machine); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(k.dir(), recordDirName(by.Machine, by.Key))); err != nil {
		return nil, fmt.Errorf("the keeper has no records of %s", by.Machine)
	}
	return k.acquire(by.Machine, by.Key)
}

// fileRequest asks for a part of an audit file.
type fileRequest struct {
	sentBy
	File   string `json:"file"`
	Offset int64  `json:"offset"`
}

// fileAnswer has at most chunkBytes from the offset on, the size of the file and its checkpoint.
type fileAnswer struct {
	Data       []byte `json:"data"`
	Size       int64  `json:"size"`
	Checkpoint []byte `json:"checkpoint"`
}

// file returns a part of an audit file.
func (k *recordKeeper) file(q fileRequest) (a fileAnswer, err error) {
	if sessionOfFile(q.File) == "" {
		return a, fmt.Errorf("%s is no audit file", names.Quote(q.File))
	}
	d, err := k.acquireExisting(q.sentBy)
	if err != nil {
		return a, err
	}
	defer d.mu.Unlock()
	if _, err := d.head(sessionOfFile(q.File)); err != nil { // head removes the remains of a crash
		return a, err
	}
	f, err := d.open(q.File, os.O_RDONLY)
	if err != nil {
		return a, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return a, err
	}
	if a.Checkpoint, err = readOwn(d.recordDir.file(q.File + checkpointSuffix)); err != nil {
		return a, err
	}
	a.Size = st.Size()
	a.Data = make([]byte, min(max(a.Size-q.Offset, 0), chunkBytes))
	_, err = f.ReadAt(a.Data, max(q.Offset, 0))
	return a, err
}
