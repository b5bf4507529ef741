package fleet

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// again starts the server once more, after change.
func (l *lab) again(change func()) {
	l.Helper()
	l.server.Stop()
	change()
	s, err := Start(l.server.dir, l.server.Addr, slog.New(slog.NewTextHandler(l.log, nil)))
	l.must(err)
	l.server = s
	l.Cleanup(s.Stop)
	l.connectOwner()
}

// A keeper whose directory is an older copy gives no lease to a machine that has not heard of a
// lost order, nor to others, until an owner has brought the order back. One that was only ended
// does.
func TestRestoredKeeper(t *testing.T) {
	l := newLab(t)
	p1, p2 := l.puppet("m1"), l.puppet("m2")
	dir := string(l.server.dir)
	saved := filepath.Join(t.TempDir(), "saved")
	run := func(script string) func() {
		return func() {
			cmd := exec.Command("sh", "-ec", script)
			cmd.Env = append(os.Environ(), "DIR="+dir, "SAVED="+saved)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", script, err, out)
			}
		}
	}
	for what, c := range map[string]struct {
		restore string
		found   bool // by the keeper itself
	}{
		"another directory": {`mv "$DIR" "$DIR.lost"; cp -a "$SAVED" "$DIR"; rm -r "$DIR.lost"`, true},
		"files over files":  {`cp -a "$SAVED/." "$DIR"`, true},
		"the orders alone":  {`rm "$DIR/keeper/standing/m2"`, true},
		"without a mark":    {`rm "$DIR/keeper/mark"`, true},
		"killed":            {`true`, false},
	} {
		l.must(p2.ask()) // the machine has what there is
		run(`rm -rf "$SAVED"; cp -a "$DIR" "$SAVED"`)()
		p2.bus.Conn.Close() // it is cut off
		if out := l.give(Order{Machines: []string{"m2"}, Revoke: everything.Revoke}, 50*time.Millisecond); out.Done() {
			t.Fatalf("%s: the machine that is cut off answers: %+v", what, out)
		}
		l.again(run(c.restore))
		p2 = l.restart(p2.m, filepath.Dir(filepath.Dir(p2.kept.dir)))
		if c.found {
			err := p2.ask()
			if did := p2.done(); err == nil || !strings.Contains(err.Error(), "restored from an older copy") || strings.Contains(did, "lease of true") {
				t.Errorf("%s: a machine without the order got a lease: %s, %v", what, did, err)
			}
			l.again(func() {}) // to begin again does not help
			if err := p1.ask(); err == nil {
				t.Errorf("%s: a machine that needs no lost order got a lease", what)
			}
		}
		_, err := l.owner.Machines(context.Background(), 50*time.Millisecond)
		if l.must(err); l.owner.BroughtBack != c.found {
			t.Errorf("%s: the owner has brought back orders: %v", what, l.owner.BroughtBack)
		}
		l.must(p2.ask())
		if did := p2.done(); !strings.Contains(did, "revoke true; lease of true") && !strings.Contains(did, "revoke true; lease of false") {
			t.Errorf("%s: the order has not come before the lease: %s", what, did)
		}
		l.must(p1.ask())
	}
}

// A keeper that cannot see that it was restored, because the whole disk was, learns it from a machine
// or an owner who knows an order that it lacks. An owner's old word on an earlier copy, which the
// bus repeats, changes nothing.
func TestRestoredDisk(t *testing.T) {
	l := newLab(t)
	p1, p2 := l.puppet("m1"), l.puppet("m2")
	lose := func() { // as if the disk had never had the orders
		l.must(os.RemoveAll(l.server.dir.file("keeper", "standing")))
		l.must(l.server.dir.writeMark(nil))
	}
	for what, learn := range map[string]func(){
		"machine": func() {
			if err := p1.ask(); err == nil {
				t.Error("the machine that has the order gets a lease")
			}
		},
		"owner": func() {
			_, err := l.owner.order(context.Background(), orderRequest{For: allMachines, Lost: true})
			l.must(err)
		},
	} {
		if out := l.give(everything, 10*time.Second); !out.Done() {
			t.Fatalf("%s: %+v", what, out)
		}
		l.again(lose)
		learn()
		if err := p2.ask(); err == nil || !strings.Contains(err.Error(), "restored from an older copy") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := l.owner.order(context.Background(), orderRequest{For: allMachines, Restored: []string{"ANOTHER"}}); err == nil {
			t.Errorf("%s: an owner's word on another copy is taken", what)
		}
		_, err := l.owner.Machines(context.Background(), 50*time.Millisecond)
		l.must(err)
		l.must(p1.ask())
		l.must(p2.ask())
	}
	l.again(lose)
	_, err := l.owner.Machines(context.Background(), 50*time.Millisecond) // the owner is the first
	if l.must(err); !l.owner.BroughtBack {
		t.Error("the owner has not seen that the keeper lacks its order")
	}
	l.must(p2.ask())
}
