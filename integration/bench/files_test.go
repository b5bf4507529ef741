package main

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// Every row's call works through a broker. An answer of the wrong length is an error.
func TestBrokeredPeer(t *testing.T) {
	l := newLab(t)
	dir := l.path("files")
	if err := makeFiles(dir); err != nil {
		t.Fatal(err)
	}
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	if _, err := reg.Grant(t.Context(), guard.Grant{Root: rootName, Dir: names.Foreign(dir), Origin: "test", Policy: guard.Policy{Rights: guard.ReadOnly}}); err != nil {
		t.Fatal(err)
	}
	b := broker.New(broker.Config{Registry: reg, Tree: vfs.New(reg)})
	defer b.Close()
	p, err := l.startBrokered(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range filesCases {
		c.load.Count = 5
		if out, err := p.do(t.Context(), c.load); err != nil || out.PerSecond <= 0 || out.P99 <= 0 {
			t.Errorf("%s: %+v, %v", c.name, out, err)
		}
		c.load.Bytes, c.load.Entries = c.load.Bytes+1, c.load.Entries*2
		if _, err := p.do(t.Context(), c.load); err == nil {
			t.Errorf("%s: an answer of the wrong length was accepted", c.name)
		}
	}
	if m, err := l.filesMemory(t.Context(), p, 100); err != nil || m.Broken != "" || m.Before == 0 || m.After == 0 {
		t.Errorf("memory: %+v, %v", m, err)
	}
}

func TestLoad_run(t *testing.T) {
	calls := make(chan struct{}, 100)
	out, err := load{AtOnce: 3, Count: 20}.run(t.Context(), func(context.Context) error { calls <- struct{}{}; return nil })
	if err != nil || len(calls) != 20 || out.P99 <= 0 {
		t.Errorf("%d calls, %+v, %v", len(calls), out, err)
	}
	// On a busy machine a span may be over before the first call.
	if out, err := (load{AtOnce: 2, Span: 1}).run(t.Context(), func(context.Context) error { return nil }); err != nil || out.PerSecond <= 0 || out.P99 <= 0 {
		t.Errorf("a span that is over at once: %+v, %v", out, err)
	}
	boom := errors.New("boom")
	if _, err := (load{AtOnce: 2, Span: time.Hour}).run(t.Context(), func(context.Context) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("a failing call: %v", err)
	}
}

func TestFilesGoals(t *testing.T) {
	rows, memory := chooseFiles(regexp.MustCompile("^files"))
	if len(rows) != len(filesCases) || !memory {
		t.Fatalf("chosen: %d rows, memory row %v", len(rows), memory)
	}
	if rows, memory := chooseFiles(regexp.MustCompile("tar")); len(rows) != 0 || memory {
		t.Errorf("chosen by another name: %v, memory row %v", rows, memory)
	}
	r := &report{FilesMemory: &filesMemory{Requests: 10, Before: 100, After: 200}}
	for _, row := range rows {
		row.Ours, row.P99 = []float64{500}, []time.Duration{time.Second}
		if row.Name != filesTailRow {
			row.Theirs = []float64{100}
		}
		r.Files = append(r.Files, row)
	}
	got := map[status]int{}
	for _, o := range judgeFiles(r) {
		got[o.Status]++
	}
	// filesTailRow has no value of the peer, so its speed counts as not measured. Its P99 and the
	// memory miss their goals.
	if got[met] != 3 || got[missed] != 2 || got[notMeasured] != 1 {
		t.Errorf("judged %v: %+v", got, judgeFiles(r))
	}
	if text := r.filesTable(); !strings.Contains(text, "5.0") || strings.Contains(text, "BROKEN") {
		t.Error(text)
	}
}
