package fleet

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard/audit"
)

// No record is lost and none comes twice, although the shippers stop at random times, and messages are
// lost in either direction. Between some runs of the shippers, the test changes a keeper's files to
// what a kill during a write can leave, or the owner pulls, or both. ROOTSFS_SOAK=1 makes the
// test longer, and adds a second keeper.
func TestRecordsOverRandomKills(t *testing.T) {
	rounds := 6
	l := newRecordLab(t)
	keepers := []*Server{l.server}
	if os.Getenv("ROOTSFS_SOAK") != "" {
		rounds, keepers = 400, append(keepers, l.addKeeper())
		l.m.Charter = l.owner.Charter
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("the seed is %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	logs := map[string]*audit.Log{}
	last := map[string]uint64{}
	for range rounds {
		for _, session := range []string{"a", "b"} {
			if logs[session] == nil {
				logs[session] = l.open(session, 6<<10)
			}
			last[session] = l.record(logs[session], session, random.IntN(40))
			if random.IntN(3) == 0 {
				l.must(logs[session].Close())
				delete(logs, session)
			}
		}
		all := l.shippers()
		for _, s := range all {
			s.ask = lossy(s.ask, rand.New(rand.NewPCG(random.Uint64(), 0)))
		}
		runs := time.Duration(random.IntN(150)) * time.Millisecond
		stop := all.start(context.Background())
		time.Sleep(runs)
		stop()
		l.server = keepers[random.IntN(len(keepers))]
		if random.IntN(2) == 0 {
			l.killKeeper(random)
		}
		if random.IntN(3) == 0 {
			if _, issues := l.pull(); len(issues) > 0 {
				t.Fatalf("the issues are %v", issues)
			}
		}
	}
	dir := filepath.Join(l.archive.Dir, filepath.Base(l.keeperDir()))
	for session, seq := range last {
		if log := logs[session]; log != nil {
			l.must(log.Close())
		}
		for _, l.server = range keepers {
			l.send(l.shippers(), session, seq)
		}
	}
	l.pull()
	for session := range last {
		r := l.states()["m1 "+session]
		if got, want := l.lines(dir, session), l.lines(l.files, session); !slices.Equal(got, want) || r.State != RecordsWhole {
			t.Errorf("session %s: the archive has %d records, the machine %d; %+v", session, len(got), len(want), r)
		}
	}
	reports, err := l.archive.Verify()
	l.must(err)
	for _, k := range l.archive.Keepers(reports) {
		if k.Problem != "" || len(k.Lacks) > 0 {
			t.Errorf("a keeper lacks records, or was not read: %+v", k)
		}
	}
}

// lossy returns a function that does what ask does, but loses some requests and answers. If it
// sends a request, it waits for the keeper's answer even when the shipper is stopped: after the
// shipper has ended, the keeper is idle.
func lossy(ask func(context.Context, recordBatch) (recordsAnswer, error), random *rand.Rand) func(context.Context, recordBatch) (recordsAnswer, error) {
	return func(ctx context.Context, q recordBatch) (recordsAnswer, error) {
		lost := random.IntN(4)
		if lost == 0 {
			return recordsAnswer{}, errors.New("the request is lost")
		}
		a, err := ask(context.WithoutCancel(ctx), q)
		if lost == 1 {
			return recordsAnswer{}, errors.New("the answer is lost")
		}
		return a, err
	}
}

// killKeeper changes the files in the keeper's directory to what a kill during a write can leave, and
// restarts the keeper.
func (l *recordLab) killKeeper(random *rand.Rand) {
	l.Helper()
	d := recordDir{dir: l.keeperDir()}
	files, err := d.files([]string{"a", "b"}[random.IntN(2)])
	l.must(err)
	files = slices.DeleteFunc(files, func(name string) bool {
		_, err := os.Stat(d.file(name + checkpointSuffix))
		return err != nil
	})
	if len(files) > 0 {
		file := d.file(files[len(files)-1])
		data, err := os.ReadFile(file)
		l.must(err)
		l.must(os.WriteFile(file, append(data, data[:random.IntN(len(data))]...), 0o600))
		l.must(os.WriteFile(filepath.Join(l.keeperDir(), "a-20990101T000000.000000000Z.jsonl"), data[:random.IntN(len(data))], 0o600))
	}
	l.restartKeeper()
}
