package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// Records that the machine's log deleted before they were sent are a hole, and no tampering: the machine
// has signed that its log deleted them. Records that the keeper had and deleted are a hole that the
// machine has not signed.
func TestHoles(t *testing.T) {
	l := newRecordLab(t)
	l.write("young", 60)
	l.write("old", 60)
	s := l.shippers()
	deleteFile := func(session string, which int) {
		files, err := audit.Files(l.files, session)
		l.must(err)
		l.must(os.Remove(files[which]))
	}
	deleteFile("old", 0)
	last := l.write("old", 1)
	l.send(s, "old", last)
	deleteFile("old", 0) // sent: nothing is missing
	l.write("old", 60)
	files, err := audit.Files(l.files, "old")
	l.must(err)
	deleteFile("old", len(files)-2)
	last = l.write("old", 1)
	l.send(s, "old", last)
	l.send(s, "young", 60)
	if _, issues := l.pull(); len(issues) > 0 {
		t.Errorf("the issues are %v", issues)
	}
	r := l.states()["m1 old"]
	if r.State != RecordsHole || !r.OK() || len(r.Holes) != 2 || r.Holes[0].From != 1 || !r.Holes[0].Deleted || !r.Holes[1].Deleted {
		t.Errorf("a log that deleted records: %+v", r)
	}
	files, err = audit.Files(l.keeperDir(), "young")
	l.must(err)
	d := recordDir{dir: l.keeperDir()}
	l.must(d.remove(filepath.Base(files[0])))
	l.archive.Dir, l.archive.keepers = filepath.Join(t.TempDir(), "archive"), nil
	l.pull()
	r = l.states()["m1 young"]
	if r.State != RecordsHole || r.OK() || len(r.Holes) != 1 || r.Holes[0].Deleted {
		t.Errorf("a keeper that deleted records: %+v", r)
	}
}

// A keeper that is restored from an older copy gets again the records that the machine still has.
func TestKeeperFromAnOldCopy(t *testing.T) {
	l := newRecordLab(t)
	last := l.write("work", 20)
	s := l.shippers()
	l.send(s, "work", last)
	l.must(os.RemoveAll(l.keeperDir()))
	l.restartKeeper()
	last = l.write("work", 5)
	l.send(s, "work", last)
	l.pull()
	if r := l.states()["m1 work"]; r.State != RecordsWhole || r.Records != last {
		t.Errorf("%+v, want %d records", r, last)
	}
}

// A machine that sends too much is not read, and loses its own oldest records. Other machines are
// read, and keep theirs.
func TestFloodKeepsOthersRecords(t *testing.T) {
	l := newRecordLab(t)
	l.send(l.shippers(), "work", l.write("work", 5))
	k := l.server.records
	for range 2 * recordBurst / maxRecordBatch {
		k.limits.admits("m2", maxRecordBatch)
	}
	if k.limits.admits("m2", maxRecordBatch) {
		t.Error("a machine that floods is read")
	}
	if !k.limits.admits("m1", maxRecordBatch) {
		t.Error("another machine is not read")
	}
	if k.begin("m1", 1); k.begin("m1", 1) {
		t.Error("a machine that does not wait for an answer is read")
	}
	k.end("m1")
	for i := range 50 {
		if _, err := k.receive(&machineRecord{Name: "m1", Signing: l.m.key.Public()}, recordBatch{Session: fmt.Sprint("s", i)}); err != nil {
			t.Error(err)
		}
	}
	d, err := k.acquire("m1", l.m.key.Public())
	l.must(err)
	if len(d.newest) > 1 {
		t.Errorf("the keeper remembers %d sessions of a machine that has one", len(d.newest))
	}
	d.mu.Unlock()
	k.mu.Lock()
	k.share = 6 * recordCharge
	k.mu.Unlock()
	first := l.m
	l.m = l.join("m2")
	l.state, l.files = t.TempDir(), t.TempDir()
	l.must(os.Chmod(l.files, 0o700))
	k.limits.limiters = map[string]*rate.Limiter{}
	last := l.write("flood", 200)
	l.send(l.shippers(), "flood", last)
	files, err := audit.Files(l.keeperDir(), "flood")
	l.must(err)
	if len(files) == 0 || len(files) > 6 {
		t.Errorf("%d files are left of the machine that floods", len(files))
	}
	l.pull()
	if r := l.states()["m1 work"]; r.State != RecordsWhole || r.Key != keyName(first.key.Public()) {
		t.Errorf("the other machine's records: %+v", r)
	}
	if r := l.states()["m2 flood"]; r.State != RecordsHole || r.OK() || r.To != last {
		t.Errorf("the machine that floods: %+v", r)
	}
}

// A machine's records are its own: the keeper takes no records that another machine has signed, that
// are about another machine, or whose file would be in another directory.
func TestMachineSendsOnlyItsOwn(t *testing.T) {
	l := newRecordLab(t)
	last := l.write("work", 3)
	other := l.join("m2")
	lines := strings.Join(l.lines(l.files, "work"), "\n") + "\n"
	files, err := audit.Files(l.files, "work")
	l.must(err)
	var hash string
	l.must(audit.Read(files, audit.Filter{}, func(e audit.Entry) error { hash = e.Hash; return nil }))
	right := checkpoint{Machine: "m1", Session: "work", File: filepath.Base(files[0]), Seq: last, Hash: hash, At: time.Now()}
	b, err := l.m.dial(true)
	l.must(err)
	defer b.Close()
	try := func(key *Key, change func(*checkpoint)) error {
		c := right
		change(&c)
		signed, err := seal(key, l.m.ID, kindCheckpoint, c)
		l.must(err)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err = machineRequest[recordBatch, recordsAnswer](ctx, l.m, b, b.Names.records("m1", l.server.keeperKey(t).Public()), kindRecords, recordBatch{Session: c.Session, Lines: []byte(lines), Checkpoint: signed})
		return err
	}
	for what, change := range map[string]func(*checkpoint){
		"about another machine":                func(c *checkpoint) { c.Machine = "m2" },
		"in another directory":                 func(c *checkpoint) { c.File = "../" + c.File },
		"in a compressed file":                 func(c *checkpoint) { c.File += ".zst" },
		"of another session":                   func(c *checkpoint) { c.Session = "fleet" },
		"in another file":                      func(c *checkpoint) { c.File = strings.Replace(c.File, "-20", "-19", 1) },
		"up to another record":                 func(c *checkpoint) { c.Seq++ },
		"up to another's hash":                 func(c *checkpoint) { c.Hash = strings.Repeat("0", 64) },
		"in a file without a time in its name": func(c *checkpoint) { c.File = "work.jsonl" },
	} {
		var refusal *control.Error
		if err := try(l.m.key, change); !errors.As(err, &refusal) {
			t.Errorf("records %s: %v", what, err)
		}
	}
	// A machine can write the name into the file's first record, too.
	for _, name := range []string{"../" + right.File, "x/" + right.File, "/" + right.File, right.File + ".zst", "work.jsonl", ""} {
		if session := sessionOfFile(name); session != "" {
			t.Errorf("%q is taken for a file of session %s", name, session)
		}
	}
	var refusal *control.Error
	if err := try(other.key, func(*checkpoint) {}); !errors.As(err, &refusal) {
		t.Errorf("records that another machine signed: %v", err)
	}
	if _, err := os.Stat(l.keeperDir()); err == nil {
		t.Error("something was written")
	}
	l.must(try(l.m.key, func(*checkpoint) {}))
	// No machine can make the keeper, or an owner who reads the file, hold a file of unbounded size.
	d := recordDir{l.server.Names, l.keeperDir(), "m1", l.m.key.Public()}
	l.must(os.Truncate(d.file(right.File), maxRecordFile))
	if err := d.add(&right, []byte(lines), false); !errors.Is(err, errLongFile) {
		t.Errorf("a file that is too long: %v", err)
	}
	if _, err := d.read(right.File); err != nil {
		t.Errorf("the file has grown: %v", err)
	}
}

// An owner believes a machine's first key. A keeper that names another key later cannot pass off
// its own records as the machine's. Only after the owner has invited the machine again may the
// machine have another key.
func TestKeeperCannotNameAnotherKey(t *testing.T) {
	l := newRecordLab(t)
	l.send(l.shippers(), "work", l.write("work", 5))
	l.pull()
	key, err := newKey()
	l.must(err)
	forged := filepath.Join(l.server.records.dir(), recordDirName("m1", key.Public()))
	copyDir(t, l.keeperDir(), forged)
	l.must(writeJSON(filepath.Join(forged, machineFile), sentBy{"m1", key.Public()}))
	l.restartKeeper()
	_, issues := l.pull()
	if len(issues) == 0 || !strings.Contains(issues[0].Problem.Raw(), "names the key "+keyName(key.Public())) {
		t.Errorf("the issues are %v", issues)
	}
	if got := l.states(); len(got) != 1 {
		t.Errorf("the archive has %v", got)
	}
	l.must(l.owner.Remove(context.Background(), "m1"))
	l.invite("m1")
	l.restartKeeper()
	if _, issues := l.pull(); len(issues) > 0 && strings.Contains(issues[0].Problem.Raw(), "names the key") {
		t.Errorf("after an invite: %v", issues)
	}
}

// If a keeper refuses records after reading them, the machine never signs that its log deleted them.
// This also holds if the log deletes them later and the agent restarts.
func TestRefusedRecordsAreMissing(t *testing.T) {
	l := newRecordLab(t)
	log := l.open("work", 4<<10)
	defer log.Close()
	last := l.record(log, "work", 5)
	all := l.shippers()
	s := all[0]
	stop := all.start(context.Background())
	testkit.Until(t, "the machine knows that its records are kept", func() bool {
		sent, _ := all.status()
		return len(sent) == 1 && sent[0].Record == last
	})
	stop()
	ask, calls, refuseAll := s.ask, 0, false
	s.ask = func(ctx context.Context, q recordBatch) (recordsAnswer, error) {
		if calls++; calls == 1 || refuseAll {
			return recordsAnswer{}, refused("there is something that is no record")
		}
		return ask(ctx, q)
	}
	check := func(when string, from uint64) {
		t.Helper()
		l.pull()
		r := l.states()["m1 work"]
		if r.OK() || r.State != RecordsTampered || r.To != last || r.Holes[len(r.Holes)-1].From != from {
			t.Errorf("%s: %+v", when, r)
		}
		if want := "or could not send them"; !strings.HasSuffix(r.Problem.Raw(), want) {
			t.Errorf("%s: the problem is %s, which does not end with %s", when, r.Problem, want)
		}
	}
	missing := last + 1
	last = l.record(log, "work", 60)
	l.send(all, "work", last)
	check("the agent runs", missing)
	refuseAll, missing = true, last+1
	last = l.record(log, "work", 60)
	stop = all.start(context.Background())
	testkit.Until(t, "records are refused", func() bool { return s.lastRefused("work") >= missing })
	stop()
	files, err := audit.Files(l.files, "work")
	l.must(err)
	for _, file := range files[:len(files)-1] {
		l.must(os.Remove(file))
	}
	last = l.record(log, "work", 30)
	l.send(l.shippers(), "work", last)
	check("the agent has restarted", missing)
}

// lastRefused returns the number of the last record of a session that the ledger on disk marks as
// refused; 0: none.
func (s *shipper) lastRefused(session string) uint64 {
	var x sentSession
	_ = readJSON(filepath.Join(s.sent.dir, session), &x)
	return x.Passed
}

// A keeper may have any number of files of one machine that the machine has not signed. They do not
// keep an owner from the records of the other machines.
func TestManyIssues(t *testing.T) {
	l := newRecordLab(t)
	l.send(l.shippers(), "work", l.write("work", 3))
	for i := range maxIssues + 1 {
		name := fmt.Sprintf("fake-20260101T%06d.000000000Z.jsonl%s", i, checkpointSuffix)
		l.must(os.WriteFile(filepath.Join(l.keeperDir(), name), []byte("{}"), 0o600))
	}
	l.m = l.join("m2")
	l.state, l.files = t.TempDir(), t.TempDir()
	l.must(os.Chmod(l.files, 0o700))
	l.send(l.shippers(), "work", l.write("work", 3))
	if _, issues := l.pull(); len(issues) != maxIssues+1 {
		t.Errorf("there are %d issues", len(issues))
	}
	if r := l.states()["m2 work"]; r.State != RecordsWhole {
		t.Errorf("the records of the other machine: %+v", r)
	}
}

// Each of several keepers has the records. A stopped keeper delays none of the others. A keeper
// that is added later gets the records that the machine still has. An owner gets from one keeper
// the records that another keeper lacks or has changed, and is told which keeper that is.
func TestEveryKeeperHasTheRecords(t *testing.T) {
	l := newRecordLab(t)
	old := l.write("old", 20)
	l.send(l.shippers(), "old", old)
	second := l.addKeeper()
	l.m.Charter = l.owner.Charter
	l.stopServer(l.server)
	l.archive.Owner = l.owner
	work := l.write("work", 30)
	stop := l.shippers().start(context.Background())
	l.awaitRecord(second, "work", work)
	l.awaitRecord(second, "old", old)
	stop()
	records, issues := l.pull()
	if all := l.archive.Keepers(nil); records != int(old+work) || len(issues) > 0 || len(all) != 2 || all[0].Problem == "" || all[1].Problem != "" {
		t.Errorf("one keeper is stopped: %d records of %d, %v, %+v", records, old+work, issues, all)
	}

	l.server = l.startServer(l.server)
	l.archive.Owner = l.owner
	l.send(l.shippers(), "work", work)
	files, err := audit.Files(l.keeperDir(), "work")
	l.must(err)
	edit(t, files[0], func(x []string) []string {
		x[1] = strings.Replace(x[1], "file-", "fine-", 1)
		return x
	})
	lost := recordDir{dir: filepath.Join(second.records.dir(), filepath.Base(l.keeperDir()))}
	l.must(lost.remove(filepath.Base(files[len(files)-1])))
	l.restartKeeper()
	l.archive.Dir = filepath.Join(t.TempDir(), "archive")
	_, issues = l.pull()
	first, other := keyName(l.server.keeperKey(t).Public()), keyName(second.keeperKey(t).Public())
	if len(issues) != 1 || issues[0].State != RecordsTampered || issues[0].Keeper != first {
		t.Errorf("a keeper that changes a record: %+v", issues)
	}
	reports, err := l.archive.Verify()
	l.must(err)
	for _, r := range reports {
		if r.State != RecordsWhole {
			t.Errorf("%+v", r)
		}
	}
	all := l.archive.Keepers(reports)
	if len(all[0].Lacks) != 0 || all[1].Key != other || len(all[1].Lacks) != 1 || all[1].Lacks[0].Session != "work" || all[1].Lacks[0].To != work {
		t.Errorf("a keeper that has lost a file: %+v", all)
	}
}
