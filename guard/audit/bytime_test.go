package audit

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Records of several sessions come in the order of time, and those of one session in the order
// of its lines. Damage in one session does not affect the others.
func TestReadByTime(t *testing.T) {
	o := options(t)
	base := time.Now().Add(-time.Hour).Truncate(time.Second)
	write := func(session string, seconds ...int) string {
		o := o
		o.Session, o.Anchor = session, o.Anchor+session
		l := mustOpen(t, o)
		for _, s := range seconds {
			mustRecord(t, l, guard.Record{Time: base.Add(time.Duration(s) * time.Second), Op: names.OpOpen, Path: at(t, "r", fmt.Sprint(session, s))})
		}
		mustClose(t, l)
		return l.Path()
	}
	write("a", 1, 4, 9)
	damaged := write("b", 2, 3, 8)
	write("c", 5, 0, 6) // the clock was set back in between
	f, err := os.OpenFile(damaged, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("junk\n"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	files, err := Files(o.Dir, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	var damage *DamageError
	err = Read(files, Filter{Op: "open"}, func(e Entry) error {
		if !strings.Contains(string(e.Line), e.Hash) {
			t.Errorf("line of another record: %s", e.Line)
		}
		got = append(got, e.Path.Raw())
		return nil
	})
	if !errors.As(err, &damage) || len(damage.List) != 1 || damage.List[0].File != damaged {
		t.Errorf("error %v", err)
	}
	if s := strings.Join(got, " "); s != "a1 b2 b3 a4 c5 c0 c6 b8 a9" {
		t.Error(s)
	}

	stop := errors.New("stop")
	n := 0
	err = Read(files, Filter{}, func(Entry) error {
		if n++; n == 2 {
			return stop
		}
		return nil
	})
	if err != stop || n != 2 {
		t.Errorf("%v after %d", err, n)
	}
	if err := Read(files, Filter{Path: "[a"}, nil); !errors.Is(err, names.Invalid) {
		t.Errorf("malformed pattern: %v", err)
	}
	if err := Read(nil, Filter{}, nil); err != nil {
		t.Errorf("nothing to read: %v", err)
	}
}
