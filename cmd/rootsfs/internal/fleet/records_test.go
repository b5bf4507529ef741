package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// recordLab is a fleet with a machine that has audit files.
type recordLab struct {
	*lab
	m       *Member
	state   string
	files   string      // the machine's audit files
	private atomic.Bool // the machine's user does not share them
	archive *Archive
}

func newRecordLab(t *testing.T) *recordLab {
	t.Helper()
	l := &recordLab{lab: newLab(t)}
	l.m = l.join("m1")
	l.state, l.files = t.TempDir(), t.TempDir()
	l.archive = &Archive{Owner: l.owner, Dir: filepath.Join(t.TempDir(), "archive")}
	l.must(os.Chmod(l.files, 0o700))
	return l
}

// anchor returns the path of a session's anchor.
func (l *recordLab) anchor(session string) (string, error) {
	return filepath.Join(l.state, session+".anchor"), nil
}

// open begins the log of a session, in files of about size bytes.
func (l *recordLab) open(session string, size int64) *audit.Log {
	l.Helper()
	at, _ := l.anchor(session)
	log, err := audit.Open(audit.Options{Dir: l.files, Session: session, MaxBytes: size, Anchor: at, AnchorOf: l.anchor})
	l.must(err)
	return log
}

// record writes n records. It returns the number of the last record.
func (l *recordLab) record(log *audit.Log, session string, n int) uint64 {
	l.Helper()
	for i := range n {
		p, err := guard.NewPath("code", fmt.Sprintf("dir/file-%d", i))
		l.must(err)
		l.must(log.Record(guard.Record{Time: time.Now(), Op: names.OpUnlink, Path: p, Verdict: guard.Allowed, Via: guard.ViaFUSE, PID: 7}))
	}
	l.must(log.Flush())
	report, err := audit.Verify(l.files, session, "")
	l.must(err)
	return report.To
}

// write has a session of the machine begin, write n records in files of a few records each, and
// end. It returns the number of the last record.
func (l *recordLab) write(session string, n int) uint64 {
	l.Helper()
	log := l.open(session, 4<<10)
	defer func() { l.must(log.Close()) }()
	return l.record(log, session, n)
}

// shippers returns the shippers of the machine. They do not run yet.
func (l *recordLab) shippers() shippers {
	l.Helper()
	buses, err := l.m.dialAll(true)
	l.must(err)
	l.Cleanup(func() { closeAll(buses) })
	all, err := newShippers(l.m, buses, l.state, l.files, func() bool { return !l.private.Load() }, slog.New(slog.DiscardHandler))
	l.must(err)
	for _, s := range all {
		s.every, s.wait = 10*time.Millisecond, 10*time.Millisecond
	}
	return all
}

// send runs shippers until the keeper has the record seq of a session.
func (l *recordLab) send(all shippers, session string, seq uint64) {
	l.Helper()
	defer all.start(context.Background())()
	l.awaitRecord(l.server, session, seq)
}

// awaitRecord waits until a keeper has the record seq of a session.
func (l *recordLab) awaitRecord(s *Server, session string, seq uint64) {
	l.Helper()
	if !testkit.Eventually(func() bool { return l.kept(s, session) >= seq }) {
		l.Fatalf("the keeper has record %d of %d\n%s", l.kept(s, session), seq, l.log)
	}
}

// kept returns the number of the last record of a session that a keeper has; 0: it has none.
func (l *recordLab) kept(s *Server, session string) uint64 {
	d, err := s.records.acquire(l.m.Machine, l.m.key.Public())
	l.must(err)
	defer d.mu.Unlock()
	c, err := d.head(session)
	l.must(err)
	if c == nil {
		return 0
	}
	return c.Seq
}

// restartKeeper drops the state that the keeper does not have on disk, as a restart does. It also
// drops what the archive remembers of the keepers, so that the next pull reads everything again.
func (l *recordLab) restartKeeper() {
	l.server.records.mu.Lock()
	defer l.server.records.mu.Unlock()
	l.server.records.machines = map[string]*recordStore{}
	l.archive.keepers = nil
}

// keeperDir returns where the keeper has the machine's records.
func (l *recordLab) keeperDir() string {
	return filepath.Join(l.server.records.dir(), recordDirName(l.m.Machine, l.m.key.Public()))
}

// pull pulls, and returns how many records came, and the issues.
func (l *recordLab) pull() (records int, issues []RecordIssue) {
	l.Helper()
	got, err := l.archive.Pull(context.Background(), nil)
	l.must(err)
	for _, p := range got {
		records, issues = records+p.Records, append(issues, p.Issues...)
	}
	return records, issues
}

// states returns the reports of Verify, by the machine's and the session's name.
func (l *recordLab) states() map[string]RecordReport {
	l.Helper()
	reports, err := l.archive.Verify()
	l.must(err)
	out := map[string]RecordReport{}
	for _, r := range reports {
		out[r.Machine+" "+r.Session.Raw()] = r
	}
	return out
}

// lines returns the records in a directory's audit files of a session.
func (l *recordLab) lines(dir, session string) (lines []string) {
	l.Helper()
	files, err := audit.Files(dir, session)
	l.must(err)
	l.must(audit.Read(files, audit.Filter{}, func(e audit.Entry) error {
		lines = append(lines, string(e.Line))
		return nil
	}))
	return lines
}

// Records reach the owner as they were written, in files of the same names, once, although the
// shipper stops and starts again, and answers of the keeper are lost.
func TestRecordsReachTheOwner(t *testing.T) {
	l := newRecordLab(t)
	l.write("other", 3)
	last := l.write("work", 100)
	all := l.shippers()
	s := all[0]
	ask, asked := s.ask, 0
	s.ask = func(ctx context.Context, q recordBatch) (recordsAnswer, error) {
		if l.private.Load() {
			t.Error("records leave a machine whose user keeps them there")
		}
		a, err := ask(ctx, q)
		if asked++; asked%3 == 1 {
			return recordsAnswer{}, errors.New("the answer is lost")
		}
		return a, err
	}
	l.private.Store(true)
	stop := all.start(context.Background())
	time.Sleep(20 * s.every)
	stop()
	if _, why := all.status(); !strings.Contains(why.Raw(), "share_records") {
		t.Errorf("the machine says that its records wait because %q", why)
	}
	l.private.Store(false)
	l.send(all, "work", last)
	stop = all.start(context.Background())
	testkit.Until(t, "the machine says that no records wait", func() bool {
		_, why := all.status()
		return why == ""
	})
	stop()
	records, issues := l.pull()
	if records < int(last) || len(issues) > 0 {
		t.Errorf("%d records came, %v", records, issues)
	}
	last = l.write("work", 40)
	l.restartKeeper()
	l.send(l.shippers(), "work", last)
	again, issues := l.pull()
	more, _ := l.pull()
	if records+again != int(last)+4 || more != 0 || len(issues) > 0 {
		t.Errorf("%d, %d and %d records came, %v; there are %d and 4", records, again, more, issues, last)
	}
	dir := filepath.Join(l.archive.Dir, filepath.Base(l.keeperDir()))
	if got, want := l.lines(dir, "work"), l.lines(l.files, "work"); !slices.Equal(got, want) {
		t.Errorf("the archive has %d records, the machine %d", len(got), len(want))
	}
	of := machineKey{"m1", l.m.KeyName()}
	l.archive.confirmed = map[machineKey]confirmation{of: {"work": last, "other": 4}, {"m2", "key"}: {"work": 7}}
	for session, r := range l.states() {
		if whole := r.Machine == "m1"; whole != (r.State == RecordsWhole) || whole != r.OK() || whole && r.From != 1 {
			t.Errorf("%s: %+v", session, r)
		}
	}
	// The machine knows of records that the keeper does not give.
	l.archive.confirmed[of]["work"]++
	l.archive.confirmed[of]["hidden"] = 2
	if got := l.states(); got["m1 work"].State != RecordsCut || got["m1 hidden"].State != RecordsCut || got["m1 other"].State != RecordsWhole {
		t.Errorf("a keeper that withholds records: %+v", got)
	}
	if report, err := audit.Verify(dir, "work", ""); err != nil || !report.OK {
		t.Errorf("the archive's files are no valid audit files: %+v, %v", report, err)
	}
}

// A keeper that is killed after it wrote records, and before it wrote their checkpoint, has the
// records once after it runs again. The test leaves the files as such a kill does.
func TestKeeperKilledBeforeItAnswers(t *testing.T) {
	l := newRecordLab(t)
	log := l.open("work", 1<<20)
	s := l.shippers()
	l.send(s, "work", l.record(log, "work", 10))
	file := l.newestFile("work")
	data, err := os.ReadFile(file)
	l.must(err)
	lines := bytes.SplitAfter(data, []byte("\n"))
	l.must(os.WriteFile(file, append(data, lines[len(lines)-2][:40]...), 0o600)) // torn
	l.must(os.WriteFile(filepath.Join(l.keeperDir(), "work-20990101T000000.000000000Z.jsonl"), lines[0], 0o600))
	l.restartKeeper()
	last := l.record(log, "work", 10)
	l.send(s, "work", last)
	l.must(log.Close())
	_, issues := l.pull()
	if r := l.states()["m1 work"]; r.State != RecordsWhole || r.Records != last || len(issues) > 0 {
		t.Errorf("%+v, %v", r, issues)
	}
}

// newestFile returns the keeper's newest file of a session.
func (l *recordLab) newestFile(session string) string {
	l.Helper()
	files, err := audit.Files(l.keeperDir(), session)
	l.must(err)
	return files[len(files)-1]
}

// copyDir copies the files of a directory. The copy replaces whatever was at to.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(to)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.Chmod(filepath.Join(to, e.Name()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// edit changes the lines of a file.
func edit(t *testing.T, file string, change func(lines []string) []string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(data), "\n")
	if err := os.WriteFile(file, []byte(strings.Join(change(lines[:len(lines)-1]), "")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// An owner is told when a keeper, or somebody who can write to the owner's archive, changes, drops
// or moves a record.
func TestKeeperCannotChangeRecords(t *testing.T) {
	l := newRecordLab(t)
	last := l.write("work", 40)
	l.send(l.shippers(), "work", last)
	l.must(os.Chmod(l.keeperDir(), 0o700))
	safe := t.TempDir()
	copyDir(t, l.keeperDir(), safe)
	files, err := audit.Files(l.keeperDir(), "work")
	l.must(err)
	if len(files) < 4 {
		t.Fatalf("%d files: too few for this test", len(files))
	}
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	lines := func(file string, change func([]string) []string) func(string) {
		return func(dir string) { edit(t, filepath.Join(dir, file), change) }
	}
	remove := func(names ...string) func(string) {
		return func(dir string) {
			for _, name := range names {
				l.must(os.Remove(filepath.Join(dir, name)))
			}
		}
	}
	change := func(i int) func([]string) []string {
		return func(x []string) []string {
			x[i] = strings.Replace(x[i], "file-", "fine-", 1)
			return x
		}
	}
	if _, issues := l.pull(); len(issues) > 0 {
		t.Fatalf("the right records: %v", issues)
	}
	right := filepath.Join(l.archive.Dir, filepath.Base(l.keeperDir()))
	newest := files[len(files)-1]
	for what, spoil := range map[string]func(dir string){
		"changes a record":          lines(files[1], change(2)),
		"drops a record":            lines(files[1], func(x []string) []string { return slices.Delete(x, 2, 3) }),
		"swaps records":             lines(files[1], func(x []string) []string { x[1], x[2] = x[2], x[1]; return x }),
		"repeats a record":          lines(files[1], func(x []string) []string { return slices.Insert(x, 2, x[1]) }),
		"drops a file":              remove(files[1], files[1]+checkpointSuffix),
		"drops the first file":      remove(files[0], files[0]+checkpointSuffix),
		"cuts the newest file":      lines(newest, func(x []string) []string { return x[:len(x)-1] }),
		"empties the newest file":   lines(newest, func([]string) []string { return nil }),
		"loses the newest file":     remove(newest),
		"signs with another key":    func(dir string) { l.forge(filepath.Join(dir, files[1]+checkpointSuffix)) },
		"exchanges two checkpoints": func(dir string) { l.exchange(dir, files[1], files[2]) },
		"puts one file for another": func(dir string) { l.must(os.Rename(filepath.Join(dir, files[1]), filepath.Join(dir, files[2]))) },
		"writes over the checkpoint": func(dir string) {
			l.must(os.WriteFile(filepath.Join(dir, newest+checkpointSuffix), []byte("{}"), 0o600))
		},
	} {
		copyDir(t, safe, l.keeperDir())
		spoil(l.keeperDir())
		l.restartKeeper()
		l.archive.Dir = filepath.Join(t.TempDir(), "archive")
		_, issues := l.pull()
		if r, ok := l.states()["m1 work"]; ok && r.OK() && len(issues) == 0 {
			t.Errorf("a keeper that %s: %+v", what, r)
		}
		l.archive.Dir = filepath.Join(t.TempDir(), "archive")
		own := filepath.Join(l.archive.Dir, filepath.Base(l.keeperDir()))
		copyDir(t, right, own)
		spoil(own)
		if r := l.states()["m1 work"]; r.OK() || strings.Contains(what, "newest file") != (r.State == RecordsCut) {
			t.Errorf("an archive in which somebody %s: %+v", what, r)
		}
	}
}

// forge replaces a checkpoint by the same one, signed by another key.
func (l *recordLab) forge(file string) {
	l.Helper()
	data, err := os.ReadFile(file)
	l.must(err)
	c, err := openCheckpoint(data, l.server.Names, l.m.Machine, l.m.key.Public())
	l.must(err)
	other, err := newKey()
	l.must(err)
	data, err = seal(other, l.m.ID, kindCheckpoint, c)
	l.must(err)
	l.must(os.WriteFile(file, data, 0o600))
}

// exchange exchanges the checkpoints of two files.
func (l *recordLab) exchange(dir, a, b string) {
	l.Helper()
	a, b = filepath.Join(dir, a+checkpointSuffix), filepath.Join(dir, b+checkpointSuffix)
	l.must(os.Rename(a, a+".x"))
	l.must(os.Rename(b, a))
	l.must(os.Rename(a+".x", b))
}
