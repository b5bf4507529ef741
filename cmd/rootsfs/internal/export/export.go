// Package export hands audit records on to other programs: as lines of OCSF, the Open
// Cybersecurity Schema Framework, or as log records of OpenTelemetry over OTLP.
//
// # Promises
//
// Each record that the files hold is handed on at least once and in the order of its session, even
// if the exporter is killed. A record is handed on again if the exporter is killed after the
// receiver took the record and before the cursor was saved. The receiver recognizes the repetition
// by the session and the number of the record.
//
// For a gap in the numbers of a session, and for a changed line, a Hole is handed on. It says
// whether the log itself removed the records, because their files were full or old.
//
// # Not promised
//
// A record that was removed before it was handed on does not arrive.
package export

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/atomicfile"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Item is a record or a hole.
type Item struct {
	Machine string // name of the machine that wrote the record
	// Entry is the record. For a hole, Entry has the session, number and time of the record that
	// is handed on after the hole.
	Entry audit.Entry
	Hole  *Hole // nil: the item is a record
}

// Hole says that records are missing, or that one was changed.
type Hole struct {
	From, To  uint64 // numbers of the records
	Tampering bool   // nothing shows that the log itself removed the records
	Changed   bool   // the record exists, but not as it was written
}

// Sink takes items.
type Sink interface {
	// Send returns nil when the receiver has taken all items. After an error the same items
	// are sent again.
	Send(ctx context.Context, items []Item) error
	Close() error
}

// batchSize is the number of items at which a batch is sent without waiting for more.
const batchSize = 500

// Options describe an export.
type Options struct {
	Dir     string // directory of audit files
	Machine string // name of the machine that wrote them
	Cursor  string // file that has, for each session, the last record that was handed on
	// AnchorOf returns the path of a session's anchor; nil: the anchors are on another machine.
	AnchorOf func(session string) (string, error)
	Sink     Sink
}

// Counts has the numbers of items that were handed on.
type Counts struct {
	Records   int `json:"records"`
	Holes     int `json:"holes"`     // gaps and changed records
	Tampering int `json:"tampering"` // holes with Hole.Tampering
}

// mark identifies, for one session, the last record that was handed on.
type mark struct {
	Seq  uint64 `json:"seq"`
	Hash string `json:"hash"`
}

// exporter is one run of an export.
type exporter struct {
	Options
	saved  map[string]mark // the last records that the sink has taken, by session; as in the cursor file
	ahead  map[string]mark // like saved, but as if the sink had taken the batch
	batch  []Item
	counts Counts
	ctx    context.Context
}

// Run hands on every record that is in the files and was not handed on before.
func Run(ctx context.Context, o Options) (Counts, error) {
	e := &exporter{Options: o, ctx: ctx, saved: map[string]mark{}}
	if err := e.load(); err != nil {
		return e.counts, err
	}
	e.ahead = maps.Clone(e.saved)
	files, err := audit.Files(o.Dir, "")
	if err != nil {
		return e.counts, err
	}
	err = audit.Read(files, audit.Filter{}, e.record)
	var damage *audit.DamageError
	if errors.As(err, &damage) {
		err = nil // the holes report what is missing
	}
	if err == nil {
		err = e.flush()
	}
	return e.counts, err
}

// retryDelay is how long Follow waits after the receiver has failed, and flushDelay how long it
// lets records wait for others.
const (
	retryDelay = 5 * time.Second
	flushDelay = time.Second
)

// Follow hands on records as Run does, and then each record that is written, until ctx ends. While
// the receiver fails, Follow tries again and reads no further. It calls failed with each error of
// the receiver.
func Follow(ctx context.Context, o Options, failed func(error)) (Counts, error) {
	o.Sink = &persistent{o.Sink, failed}
	since := time.Now()
	counts, err := Run(ctx, o)
	if err != nil {
		return counts, ignoreEnd(ctx, err)
	}
	e := &exporter{Options: o, ctx: ctx, saved: map[string]mark{}, counts: counts}
	if err := e.load(); err != nil {
		return counts, err
	}
	e.ahead = maps.Clone(e.saved)
	records := make(chan audit.Entry)
	var reading sync.WaitGroup
	defer reading.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	reading.Go(func() {
		defer close(records)
		err = audit.Follow(ctx, o.Dir, "", audit.Filter{Since: since.Add(-time.Minute)}, nil, func(r audit.Entry) error {
			r.Line = slices.Clone(r.Line)
			select {
			case records <- r:
			case <-ctx.Done():
			}
			return nil
		})
	})
	tick := time.NewTicker(flushDelay)
	defer tick.Stop()
	for {
		var sendErr error
		select {
		case r, ok := <-records:
			if !ok {
				return e.counts, cmp.Or(err, ignoreEnd(ctx, e.flush()))
			}
			sendErr = e.record(r)
		case <-tick.C:
			sendErr = e.flush()
		}
		if sendErr != nil {
			return e.counts, ignoreEnd(ctx, sendErr)
		}
	}
}

// ignoreEnd returns err, or nil if ctx has ended: err may only be a consequence of that.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// persistent is a sink that tries until the receiver has taken the items.
type persistent struct {
	Sink
	failed func(error)
}

func (p *persistent) Send(ctx context.Context, items []Item) error {
	for {
		err := p.Sink.Send(ctx, items)
		if err == nil || ctx.Err() != nil {
			return err
		}
		p.failed(err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryDelay):
		}
	}
}

func (e *exporter) load() error {
	data, err := os.ReadFile(e.Cursor)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, &e.saved)
	}
	if err != nil {
		return fmt.Errorf("the cursor %s cannot be read: %w; without that file, everything is handed on again", names.Quote(e.Cursor), err)
	}
	return nil
}

// record adds a record of the files to the batch, unless the record was handed on before. First it
// adds the hole before the record, if there is one, and a hole if the record itself was changed. The
// caller passes the records of a session in their order.
func (e *exporter) record(r audit.Entry) error {
	if err := e.ctx.Err(); err != nil {
		return err
	}
	session := r.Session.Raw()
	last, isKnown := e.ahead[session]
	if isKnown && r.Seq <= last.Seq {
		return nil
	}
	if hole := e.holeBefore(r, last, isKnown); hole != nil {
		e.add(Item{Entry: audit.Entry{Session: r.Session, Seq: r.Seq, Time: r.Time}, Hole: hole})
	}
	if !audit.IsIntact(r.Line) {
		e.add(Item{Entry: audit.Entry{Session: r.Session, Seq: r.Seq, Time: r.Time}, Hole: &Hole{From: r.Seq, To: r.Seq, Tampering: true, Changed: true}})
	}
	r.Line = slices.Clone(r.Line)
	e.add(Item{Entry: r})
	e.ahead[session] = mark{r.Seq, r.Hash}
	if len(e.batch) >= batchSize {
		return e.flush()
	}
	return nil
}

// holeBefore returns the hole between r and last, the record of the same session that came before;
// nil: there is none. If r does not continue last, the hole is last itself, as a changed record.
func (e *exporter) holeBefore(r audit.Entry, last mark, isKnown bool) *Hole {
	next := last.Seq + 1
	switch {
	case r.Seq == next && (!isKnown || r.Prev == last.Hash):
		return nil
	case r.Seq == next:
		return &Hole{From: last.Seq, To: last.Seq, Tampering: true, Changed: true}
	}
	return &Hole{From: next, To: r.Seq - 1, Tampering: r.Seq-1 > e.pruned(r.Session.Raw())}
}

// pruned returns the number of the newest record of a session that the log itself has removed;
// 0: none, or the session cannot be checked.
func (e *exporter) pruned(session string) uint64 {
	anchor := ""
	if e.AnchorOf != nil {
		var err error
		if anchor, err = e.AnchorOf(session); err != nil {
			return 0
		}
	}
	report, err := audit.Verify(e.Dir, session, anchor)
	if err != nil {
		return 0
	}
	return report.Pruned
}

func (e *exporter) add(i Item) {
	i.Machine = e.Machine
	e.batch = append(e.batch, i)
}

// flush sends the batch, and then saves how far the export has come.
func (e *exporter) flush() error {
	if len(e.batch) == 0 {
		return nil
	}
	if err := e.Sink.Send(e.ctx, e.batch); err != nil {
		return err
	}
	for _, i := range e.batch {
		switch {
		case i.Hole == nil:
			e.counts.Records++
		case i.Hole.Tampering:
			e.counts.Tampering++
			fallthrough
		default:
			e.counts.Holes++
		}
	}
	e.batch = e.batch[:0]
	e.saved = maps.Clone(e.ahead)
	return e.save()
}

// save replaces the cursor file.
func (e *exporter) save() error {
	data, err := json.Marshal(e.saved)
	if err != nil {
		return err
	}
	return atomicfile.Replace(e.Cursor, func(f *os.File) error { _, err := f.Write(data); return err })
}
