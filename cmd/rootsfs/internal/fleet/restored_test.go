package fleet

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// restartServer stops the server, calls change, and starts the server and the agents of machines again.
func (l *lab) restartServer(change func(), machines ...**puppet) {
	l.Helper()
	l.server.Stop()
	change()
	s, err := Start(l.server.dir, l.server.Addr, slog.New(slog.NewTextHandler(l.log, nil)))
	l.must(err)
	l.server = s
	l.Cleanup(s.Stop)
	l.connectOwner()
	for _, p := range machines { // a restarted agent does not wait for its next attempt to connect
		(*p).bus.Conn.Close()
		*p = l.restart((*p).m, filepath.Dir(filepath.Dir((*p).copies.dir)))
	}
}

// A keeper whose directory is an older copy gives no lease to a machine that has not heard of a
// lost order, nor to others, until an owner has brought the order back. A keeper that was only
// restarted gives leases.
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
	for what, restore := range map[string]string{
		"another directory": `mv "$DIR" "$DIR.lost"; cp -a "$SAVED" "$DIR"; rm -r "$DIR.lost"`,
		"files over files":  `cp -a "$SAVED/." "$DIR"`,
		"the orders alone":  `rm "$DIR/keeper/standing/m2"`,
	} {
		l.must(p2.ask()) // the machine has every order
		p2.takeActions()
		run(`rm -rf "$SAVED"; cp -a "$DIR" "$SAVED"`)()
		p2.bus.Conn.Close() // the machine is cut off
		if out := l.give(Order{Machines: []string{"m2"}, Revoke: revokeAll.Revoke}, 50*time.Millisecond); out.Done() {
			t.Fatalf("%s: the machine that is cut off answers: %+v", what, out)
		}
		l.restartServer(run(restore), &p1, &p2)
		for who, p := range map[string]*puppet{"without the order": p2, "that the lost order is not for": p1} {
			if err := p.ask(); err == nil || !strings.Contains(err.Error(), "restored from an older copy") {
				t.Errorf("%s: a machine %s got a lease: %v", what, who, err)
			}
		}
		_, err := l.owner.Machines(context.Background(), 50*time.Millisecond)
		if l.must(err); !l.owner.HasRestoredOrders {
			t.Errorf("%s: the owner does not know that the keeper was restored", what)
		}
		l.must(p2.ask())
		if did := p2.takeActions(); !strings.Contains(did, "revoke true; lease of true") {
			t.Errorf("%s: the order has not come before the lease: %s", what, did)
		}
		l.must(p1.ask())
	}
	l.restartServer(func() {}, &p1)
	if err := p1.ask(); err != nil {
		t.Errorf("a keeper that was only restarted: %v", err)
	}
}

// If a keeper's whole disk was restored, the keeper cannot see that. A machine or an owner that knows
// an order which the keeper lacks makes the keeper distrust its directory. The keeper refuses an
// owner's request about another copy.
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
	} {
		if out := l.give(revokeAll, 10*time.Second); !out.Done() {
			t.Fatalf("%s: %+v", what, out)
		}
		l.restartServer(lose, &p1, &p2)
		learn()
		if err := p2.ask(); err == nil || !strings.Contains(err.Error(), "restored from an older copy") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := l.owner.order(context.Background(), orderRequest{For: allMachines, Restored: []string{"ANOTHER"}}); err == nil {
			t.Errorf("%s: an owner's request about another copy is accepted", what)
		}
		_, err := l.owner.Machines(context.Background(), 50*time.Millisecond)
		l.must(err)
		l.must(p1.ask())
		l.must(p2.ask())
	}
	l.restartServer(lose, &p1, &p2)
	// The owner asks the keeper before any machine does.
	_, err := l.owner.Machines(context.Background(), 50*time.Millisecond)
	if l.must(err); !l.owner.HasRestoredOrders {
		t.Error("the owner has not seen that the keeper lacks its order")
	}
	l.must(p2.ask())
}

// A keeper whose directory is an older copy accepts no invite of the copy: the invite may have been used
// since the copy was made. The copy may also have a machine that was removed since then. The keeper
// removes this machine again when an owner who knows of the removal asks for the machines.
func TestRestoredInvites(t *testing.T) {
	l := newLab(t)
	ctx := context.Background()
	l.join("gone")
	text := l.invite("laptop")
	dir, saved := string(l.server.dir), filepath.Join(t.TempDir(), "saved")
	l.must(copyFiles(dir, saved))
	l.must(l.owner.Remove(ctx, "gone"))
	t.Setenv("HOME", t.TempDir())
	_, err := Join(ctx, text, nil)
	l.must(err)
	l.restartServer(func() { l.must(errors.Join(os.RemoveAll(dir), copyFiles(saved, dir))) })
	for _, when := range []string{"before an owner has asked for the machines", "after an owner has asked for them"} {
		t.Setenv("HOME", t.TempDir())
		if _, err := Join(ctx, text, nil); err == nil || !strings.Contains(err.Error(), "there is no such invite") {
			t.Errorf("a used invite, %s: %v", when, err)
		}
		t.Setenv("HOME", l.home)
		if all, err := l.owner.list(ctx); err != nil || len(all) > 0 {
			t.Errorf("machines: %+v, %v", all, err)
		}
	}
	if rec, err := l.server.records.r.machine("gone"); rec != nil || err != nil {
		t.Errorf("the keeper knows a machine that was removed: %+v, %v", rec, err)
	}
}

// A keeper that was restored from an older copy has lost its promises. After an owner has sent it the
// numbers promised before, the keeper promises no lower number. Otherwise two attempts could both have a
// majority, and the order with the higher number would not contain the other, confirmed order.
func TestRestoredKeeperKeepsPromises(t *testing.T) {
	l := newLab(t)
	l.addKeeper()
	first, third := l.server, l.addKeeper()
	granted := func(p promise) (n int) {
		t.Helper()
		got, err := l.owner.askOrder(context.Background(), orderRequest{For: allMachines, Promise: p.Number, Attempt: p.Attempt})
		l.must(err)
		for _, a := range got {
			if a.Promised == p {
				n++
			}
		}
		return n
	}
	late := promise{nextNumber(0) + 1000, "LATE"}
	l.stopServer(first)
	if n := granted(late); n != 2 {
		t.Fatalf("%d keepers promise", n)
	}
	l.startServer(first)
	l.stopServer(third)
	l.must(os.RemoveAll(third.dir.promised("")))
	l.must(os.Remove(third.dir.mark()))
	l.startServer(third)
	_, err := l.owner.Machines(context.Background(), 50*time.Millisecond)
	if l.must(err); !l.owner.HasRestoredOrders {
		t.Fatal("the keeper does not know that it was restored")
	}
	if n := granted(promise{late.Number - 500, "EARLY"}); n > 1 {
		t.Errorf("%d keepers promise a lower number, after two have promised %d", n, late.Number)
	}
}
