package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/protobuf/proto"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// archive is a directory of audit files, and an export of it.
type archive struct {
	*testing.T
	dir  string
	opt  audit.Options
	sink failingSink
}

func newArchive(t *testing.T) *archive {
	dir := t.TempDir()
	a := &archive{T: t, dir: dir}
	anchor := func(session string) (string, error) { return filepath.Join(dir, "state", session+".anchor"), nil }
	at, _ := anchor("s")
	a.opt = audit.Options{Dir: filepath.Join(dir, "audit"), Session: "s", Anchor: at, AnchorOf: anchor}
	return a
}

// write opens the log, records the removal of n files, and closes the log. Opening the log adds a
// record, too.
func (a *archive) write(n int) {
	a.Helper()
	l, err := audit.Open(a.opt)
	testkit.Must(a, err)
	for i := range n {
		p, err := guard.NewPath("code", fmt.Sprintf("dir/file-%d", i))
		testkit.Must(a, err)
		testkit.Must(a, l.Record(guard.Record{Time: time.Now(), Op: names.OpUnlink, Path: p, Verdict: guard.Allowed, Via: guard.ViaFUSE, PID: 7, UID: 5}))
	}
	testkit.Must(a, l.Close())
}

func (a *archive) export() (Counts, error) {
	return Run(context.Background(), Options{Dir: a.opt.Dir, Machine: "m", Cursor: filepath.Join(a.dir, "cursor"), AnchorOf: a.opt.AnchorOf, Sink: &a.sink})
}

// edit changes the text of the only audit file.
func (a *archive) edit(change func(lines []string) []string) {
	a.Helper()
	files, err := audit.Files(a.opt.Dir, "s")
	testkit.Must(a, err)
	data, err := os.ReadFile(files[0])
	testkit.Must(a, err)
	testkit.Must(a, os.WriteFile(files[0], []byte(strings.Join(change(strings.Split(string(data), "\n")), "\n")), 0o600))
}

// failingSink is a sink that keeps items. One of its sends fails.
type failingSink struct {
	items []Item
	fails int // which send fails, counted from 1; 0: none
}

func (k *failingSink) Send(_ context.Context, items []Item) error {
	k.fails--
	if k.fails == 0 {
		return errors.New("the receiver is away")
	}
	k.items = append(k.items, slices.Clone(items)...)
	return nil
}

func (k *failingSink) Close() error { return nil }

// Every record is passed on once and in order, even after an error of the receiver and a
// restart.
func TestEveryRecordIsHandedOn(t *testing.T) {
	a := newArchive(t)
	a.write(batchSize + 20)
	a.sink.fails = 2
	if got, err := a.export(); err == nil || got.Records != batchSize {
		t.Errorf("the receiver fails: %+v, %v", got, err)
	}
	got, err := a.export()
	if err != nil || got.Records == 0 || got.Holes != 0 {
		t.Errorf("again: %+v, %v", got, err)
	}
	a.write(5)
	_, err = a.export()
	testkit.Must(t, err)
	for i, item := range a.sink.items {
		if item.Hole != nil || item.Entry.Seq != uint64(i+1) || item.Machine != "m" {
			t.Fatalf("item %d is %+v", i, item)
		}
	}
	if got, err := a.export(); err != nil || got != (Counts{}) {
		t.Errorf("nothing is new: %+v, %v", got, err)
	}
}

// The export reports tampering if somebody other than the log removed or changed records.
func TestHoles(t *testing.T) {
	for name, c := range map[string]struct {
		change func(lines []string) []string
		want   []Hole
	}{
		"two records are cut out":                {func(l []string) []string { return slices.Delete(l, 3, 5) }, []Hole{{From: 4, To: 5, Tampering: true}}},
		"a record is changed":                    {func(l []string) []string { l[3] = strings.Replace(l[3], "file-2", "file-9", 1); return l }, []Hole{{From: 4, To: 4, Tampering: true, Changed: true}}},
		"the beginning is cut off":               {func(l []string) []string { return l[3:] }, []Hole{{From: 1, To: 3, Tampering: true}}},
		"a record is replaced by the one before": {func(l []string) []string { l[3] = l[2]; return l }, []Hole{{From: 4, To: 4, Tampering: true}}},
		"nothing is changed":                     {func(l []string) []string { return l }, nil},
		"a line is no record at all":             {func(l []string) []string { l[3] = "{"; return l }, []Hole{{From: 4, To: 4, Tampering: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArchive(t)
			a.write(9)
			a.edit(c.change)
			got, err := a.export()
			testkit.Must(t, err)
			var holes []Hole
			for _, i := range a.sink.items {
				if i.Hole != nil {
					holes = append(holes, *i.Hole)
					// The anchor may be lost as well as the records. So the event must not
					// claim that the log did not remove the records.
					line, err := ocsfLine(&i)
					if testkit.Must(t, err); !i.Hole.Changed && !strings.Contains(string(line), "are missing, and nothing shows that the log removed them") {
						t.Errorf("the event is %s", line)
					}
				}
			}
			if !slices.Equal(holes, c.want) || got.Tampering != len(c.want) {
				t.Errorf("holes %+v, want %+v; counts %+v", holes, c.want, got)
			}
		})
	}
}

// Records that the log removed because its files were too large are a hole, and not tampering.
func TestHoleOfRetention(t *testing.T) {
	a := newArchive(t)
	a.opt.MaxBytes = 4 << 10
	a.write(5)
	_, err := a.export()
	testkit.Must(t, err)
	a.write(200)
	other := a.opt
	other.Session, other.MaxTotal = "t", 1
	other.Anchor, _ = other.AnchorOf("t")
	testkit.Must(t, os.Remove(filepath.Join(a.opt.Dir, ".pruned"))) // otherwise Open would not look for old files again so soon
	l, err := audit.Open(other)
	testkit.Must(t, err)
	testkit.Until(t, "the files of s are removed", func() bool {
		files, err := audit.Files(a.opt.Dir, "s")
		return err == nil && len(files) == 0
	})
	testkit.Must(t, l.Close())
	a.write(1)
	a.sink.items = nil
	got, err := a.export()
	testkit.Must(t, err)
	at := slices.IndexFunc(a.sink.items, func(i Item) bool { return i.Hole != nil })
	if got.Holes != 1 || got.Tampering != 0 || a.sink.items[at].Hole.From != 7 {
		t.Errorf("%+v, %+v", got, a.sink.items)
	}
}

// Each operation has an activity of OCSF, and each event has the file, host or root that its class
// requires.
func TestOCSF(t *testing.T) {
	a := newArchive(t)
	a.write(1)
	_, err := a.export()
	testkit.Must(t, err)
	for op := names.OpLookup; op.String() != ""; op++ {
		if strings.HasPrefix(op.String(), "op(") {
			break
		}
		i := a.sink.items[len(a.sink.items)-1]
		i.Entry.Op, i.Entry.Verdict, i.Entry.Host = names.Foreign(op.String()), "refused", "example.org"
		line, err := ocsfLine(&i)
		testkit.Must(t, err)
		var e map[string]any
		testkit.Must(t, json.Unmarshal(line, &e))
		class, id := e["class_uid"].(float64), e["activity_id"].(float64)
		if e["type_uid"] != class*100+id || e["category_uid"] != float64(int(class)/1000) || e["activity_name"] == "" || e["status_id"] != 2.0 || e["disposition_id"] != 2.0 {
			t.Errorf("%s: %s", op, line)
		}
		for _, key := range map[float64][]string{fileActivity: {"file", "actor"}, networkActivity: {"dst_endpoint"}, httpActivity: {"dst_endpoint"}, userAccess: {"privileges", "resource"}}[class] {
			if e[key] == nil {
				t.Errorf("%s has no %s: %s", op, key, line)
			}
		}
		if u, ok := e["unmapped"].(map[string]any); !ok || u["hash"] == "" {
			t.Errorf("%s: the record itself is missing: %s", op, line)
		}
	}
}

// Lines appends to its file, which only the file's owner may read.
func TestLines(t *testing.T) {
	a := newArchive(t)
	a.write(3)
	file := filepath.Join(a.dir, "out.ocsf")
	for range 2 {
		l, err := NewLines(file)
		testkit.Must(t, err)
		_, err = Run(context.Background(), Options{Dir: a.opt.Dir, Cursor: filepath.Join(t.TempDir(), "cursor"), AnchorOf: a.opt.AnchorOf, Sink: l})
		testkit.Must(t, errors.Join(err, l.Close()))
	}
	data, err := os.ReadFile(file)
	testkit.Must(t, err)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || bytes.Count(data, []byte("\n")) != 8 {
		t.Errorf("%v, %v, %d lines", info.Mode(), err, bytes.Count(data, []byte("\n")))
	}
}

// OCSF escapes names that servers have chosen, so that a terminal can show the event.
func TestHostileNames(t *testing.T) {
	line, err := ocsfLine(&Item{Entry: audit.Entry{Op: "open", Root: "code", Path: "a\u202eb\u009b31m", Line: []byte(`{}`)}})
	if err != nil || !names.Shows(string(line)) || !strings.Contains(string(line), `\u202e`) {
		t.Errorf("%s, %v", line, err)
	}
}

// Follow hands on the records that are there, and then those that are written later.
func TestFollow(t *testing.T) {
	a := newArchive(t)
	a.write(2)
	ctx, stop := context.WithCancel(context.Background())
	s := &chanSink{items: make(chan Item, 100)}
	done := make(chan error)
	go func() {
		_, err := Follow(ctx, Options{Dir: a.opt.Dir, Cursor: filepath.Join(a.dir, "cursor"), AnchorOf: a.opt.AnchorOf, Sink: s}, func(err error) { t.Error(err) })
		done <- err
	}()
	for want := range uint64(7) {
		if want == 3 {
			a.write(3)
		}
		if i := <-s.items; i.Entry.Seq != want+1 {
			t.Errorf("item %d has the number %d", want+1, i.Entry.Seq)
		}
	}
	stop()
	testkit.Must(t, <-done)
}

// chanSink is a sink that sends items to a channel.
type chanSink struct{ items chan Item }

func (p *chanSink) Send(_ context.Context, items []Item) error {
	for _, i := range items {
		p.items <- i
	}
	return nil
}

func (p *chanSink) Close() error { return nil }

// A collector gets log records. Records that it refuses are sent again.
func TestCollector(t *testing.T) {
	a := newArchive(t)
	a.write(3)
	refuse, got := true, []string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var req collogs.ExportLogsServiceRequest
		if err := proto.Unmarshal(body, &req); err != nil || r.URL.Path != "/v1/logs" {
			t.Error(err, r.URL)
		}
		if refuse {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for _, rec := range req.ResourceLogs[0].ScopeLogs[0].LogRecords {
			got = append(got, rec.EventName+" "+rec.Body.GetStringValue())
		}
	}))
	defer s.Close()
	c, err := NewCollector(context.Background(), s.URL)
	testkit.Must(t, err)
	run := func() error {
		_, err := Run(context.Background(), Options{Dir: a.opt.Dir, Cursor: filepath.Join(a.dir, "cursor"), AnchorOf: a.opt.AnchorOf, Sink: c})
		return err
	}
	if run() == nil {
		t.Error("the collector has refused, and there is no error")
	}
	refuse = false
	testkit.Must(t, run())
	testkit.Must(t, c.Close())
	if len(got) != 4 || !strings.HasPrefix(got[1], `rootsfs.unlink {"seq":2,`) {
		t.Errorf("it got %q", got)
	}
	for _, address := range []string{"", "localhost:4318", "ftp://localhost"} {
		if _, err := NewCollector(context.Background(), address); err == nil {
			t.Errorf("%q is taken for an address", address)
		}
	}
}
