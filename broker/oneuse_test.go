package broker

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// R005, R139: a server that is granted one use of a file reads the file once. A request that fails,
// or only reads attributes, does not count as the use. Of many requests at the same time one
// succeeds. Afterwards the root is gone, and the file cannot be read again.
func TestOneUse(t *testing.T) {
	l := newLab(t, nil)
	file := filepath.Join(t.TempDir(), "letter")
	if err := os.WriteFile(file, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	grant := func(name string) {
		l.grant(guard.Grant{Root: guard.RootName(name), Dir: names.Foreign(file), Policy: guard.Policy{Rights: guard.ReadOnly, Once: true}})
	}
	awaitEnd := func(name string) {
		t.Helper()
		testkit.Until(t, "the end of "+name, func() bool { _, ok := l.reg.Lookup(guard.RootName(name)); return !ok })
	}
	grant("letter")
	p := l.connect("")
	type obj = map[string]any
	var st map[string]any
	p.must("files/stat", obj{"path": "letter"}, &st)
	if _, d := p.fails("files/write", obj{"path": "letter", "content": "x"}); d.Reason != "ReadOnly" {
		t.Errorf("a write: %+v", d)
	}
	if _, d := p.fails("files/watch", obj{"path": "letter"}); d.Reason != "Permission" {
		t.Errorf("a watch: %+v", d)
	}
	var read wire.ReadResult
	p.must("files/read", obj{"path": "letter"}, &read)
	if read.Content != "secret" {
		t.Errorf("read %q", read.Content)
	}
	awaitEnd("letter")
	if _, d := p.fails("files/read", obj{"path": "letter"}); d.Code != "PERMISSION_DENIED" {
		t.Errorf("read again: %+v", d)
	}

	grant("again")
	var wg sync.WaitGroup
	var good atomic.Int64
	for range 16 {
		wg.Go(func() {
			if p.call("files/read", obj{"path": "again"}).Error == nil {
				good.Add(1)
			}
		})
	}
	wg.Wait()
	if good.Load() != 1 {
		t.Errorf("%d of 16 read it", good.Load())
	}
	awaitEnd("again")
}
