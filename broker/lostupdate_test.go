package broker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// R004, R009, R095: three servers write the same file at once, each on the condition that the
// file is still as the server read it. Each acknowledged write is in the file exactly once.
func TestNoLostUpdate(t *testing.T) {
	l := newLab(t, nil)
	dir := l.root("r", guard.ReadWrite, map[string]string{"log": ""})
	const each = 40
	var wg sync.WaitGroup
	for _, who := range []string{"a", "b", "c"} {
		p := l.connect(guard.Subject(who))
		wg.Go(func() {
			for i := range each {
				for { // read, change, write; again if the file was changed meanwhile
					var now wire.ReadResult
					p.must("files/read", `{"path":"r/log"}`, &now)
					r := p.call("files/write", obj{"path": "r/log", "ifMatch": now.ETag, "content": now.Content + fmt.Sprintf("%s%d\n", who, i)})
					if r.Error == nil {
						break
					}
					if r.Error.Code != wire.Number(names.ConcurrencyConflict) {
						t.Errorf("%+v", r.Error)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	b, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"a", "b", "c"} {
		for i := range each {
			if n := strings.Count("\n"+string(b), fmt.Sprintf("\n%s%d\n", who, i)); n != 1 {
				t.Errorf("%s%d is there %d times", who, i, n)
			}
		}
	}
}
