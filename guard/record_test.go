package guard_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// scarce is an auditor that has room as long as err is nil.
type scarce struct {
	panicking
	err       error
	requested guard.Record
	records   []guard.Record
}

func (s *scarce) Reserve(ctx context.Context, _ <-chan struct{}, r *guard.Record) (int64, error) {
	s.requested = *r
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return 7, s.err
}

func (s *scarce) Record(r guard.Record) error {
	s.records = append(s.records, r)
	return nil
}

// Room for a record is reserved before the session's command acts on the network, and used by
// the record. An error does not name the audit files.
func TestReserveConnection(t *testing.T) {
	log := &scarce{}
	g := newSetup(t, func(c *guard.Config) { c.Auditor = log })
	r := guard.Record{Op: names.OpRequest, Detail: "GET /x"}
	room, err := g.ReserveConnection(bg, r)
	if err != nil || room != 7 || log.requested.Via != guard.ViaNet || log.requested.Detail != r.Detail {
		t.Errorf("%d, %v, asked for %+v", room, err, log.requested)
	}
	r.Room = room
	if err := g.NoteConnection(r); err != nil || len(log.records) != 1 || log.records[0].Room != room || log.records[0].Via != guard.ViaNet {
		t.Errorf("%v, taken: %+v", err, log.records)
	}
	log.err = errors.New("write /home/me/audit: no space left on device")
	if _, err := g.ReserveConnection(bg, r); err == nil || strings.Contains(err.Error(), "/home") || !strings.Contains(err.Error(), "make room") {
		t.Errorf("without room: %v", err)
	}
	gone, cancel := context.WithCancel(bg)
	cancel()
	if _, err := g.ReserveConnection(gone, r); !errors.Is(err, context.Canceled) {
		t.Errorf("of a caller that has gone: %v", err)
	}
	plain := newSetup(t, func(c *guard.Config) { c.Auditor = nil })
	if room, err := plain.ReserveConnection(bg, r); room != 0 || err != nil {
		t.Errorf("without an audit log: %d, %v", room, err)
	}
}

// The records of a root's grant, refused grant, change and end have its directory and its origin as
// fields, which programs read.
func TestRecordsHaveFacts(t *testing.T) {
	log := &scarce{}
	g := newSetup(t, func(c *guard.Config) { c.Auditor = log })
	ask := guard.Grant{Root: "code", Dir: "/home/me/my (code)", Origin: "command line", Policy: guard.Policy{Rights: guard.ReadOnly}}
	if _, err := g.Grant(bg, ask); err != nil {
		t.Fatal(err)
	}
	if err := g.Set(bg, "code", guard.ReadWrite); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Revoke(bg, "code"); err != nil {
		t.Fatal(err)
	}
	ask.Root = "-"
	if _, err := g.Grant(bg, ask); err == nil {
		t.Fatal("a root of this name is granted")
	}
	ops := []guard.Op{names.OpGrant, names.OpSet, names.OpRevoke, names.OpGrant}
	if len(log.records) != len(ops) {
		t.Fatalf("%+v", log.records)
	}
	for i, r := range log.records {
		if r.Op != ops[i] || r.Facts != (guard.Facts{Dir: ask.Dir.Raw(), Origin: ask.Origin}) {
			t.Errorf("%v: %+v", r.Op, r.Facts)
		}
	}
}
