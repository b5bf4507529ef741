package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/vfs"
)

// R193: programs in the mount and a server at the broker write to one root at the same time, until
// the quota of the root is used up. Together they never exceed the quota. The status of the root
// reports the bytes that they have really written and the names that they have really created. The
// rest of the quota can be used.
func TestQuotaOfMountAndBrokerTogether(t *testing.T) {
	for name, lim := range map[string]guard.Limits{
		"bytes": {MaxWritten: 200*piece + 4, MaxCreated: 1 << 20},
		"names": {MaxWritten: 1 << 20, MaxCreated: 300},
	} {
		t.Run(name, func(t *testing.T) { fillTogether(t, lim) })
	}
}

// writeNew makes a file and writes to it once. It returns whether the file was made, and how many
// bytes were written.
var writeNew = childfs.In("writeNew", func(path string, data []byte) (created bool, n int, err error) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o644)
	if err != nil {
		return false, 0, err
	}
	defer unix.Close(fd)
	n, err = unix.Write(fd, data)
	return true, max(0, n), err
})

// piece is the number of bytes that each file gets.
const piece = 7

func fillTogether(t *testing.T, lim guard.Limits) {
	needFUSE(t)
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	m, err := mount.New(reg, mount.Options{Point: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = reg.RevokeAll(bg)
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		<-m.Served()
	})
	src := t.TempDir()
	if _, err := reg.Grant(bg, guard.Grant{Root: "r", Dir: names.Foreign(src), Origin: "test", Policy: guard.Policy{
		Rights: guard.ReadWrite, Limits: lim}}); err != nil {
		t.Fatal(err)
	}
	reg.SetQuotas(map[guard.Subject]ledger.Quota{"server": {MaxWritten: 100 * piece}})
	server := connect(t, reg, m.Tree(), "server")
	used := func() (written, created int64) {
		st, ok := reg.Lookup("r")
		if !ok {
			t.Error("the root has gone")
		}
		return st.Written, st.Created
	}

	var writtenBytes, serverBytes, createdNames atomic.Int64
	data := make([]byte, piece)
	inMount := func(name string, data []byte) error {
		created, n, err := writeNew(filepath.Join(m.Point(), "r", name), data)
		if created {
			createdNames.Add(1)
		}
		writtenBytes.Add(int64(n))
		return err
	}
	byServer := func(name string, data []byte) error {
		_, err := server.WriteFile(bg, "r/"+name, data, client.WriteOptions{CreateOnly: true})
		if err == nil {
			createdNames.Add(1)
			writtenBytes.Add(int64(len(data)))
			serverBytes.Add(int64(len(data)))
		}
		return err
	}
	var wg, watching sync.WaitGroup
	stop := make(chan struct{})
	watching.Go(func() {
		for {
			if w, c := used(); w > lim.MaxWritten || c > lim.MaxCreated {
				t.Errorf("status tells %d bytes and %d names, more than there may be", w, c)
			}
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	for i := range 4 {
		for front, put := range map[string]func(string, []byte) error{"m": inMount, "b": byServer} {
			wg.Go(func() {
				for n := range 60 {
					// A write may be refused because the quota is used up. No other error may occur.
					if err := put(fmt.Sprintf("%s%d-%d", front, i, n), data); err != nil && names.Reason(err) != names.Quota {
						t.Errorf("%s: %v", front, err)
					}
				}
			})
		}
	}
	wg.Wait()
	close(stop)
	watching.Wait()
	// A refused request reserves bytes for a moment. Another request may be refused because of
	// this reservation, although there is room for its own bytes. The loop uses this room.
	for n := 0; inMount(fmt.Sprintf("more%d", n), data) == nil; n++ {
	}
	if w, c := used(); w != writtenBytes.Load() || c != createdNames.Load() {
		t.Errorf("status tells %d bytes and %d names; %d and %d were made", w, c, writtenBytes.Load(), createdNames.Load())
	}
	for _, u := range reg.Usage() {
		if u.Subject == "server" && u.Written != serverBytes.Load() {
			t.Errorf("status tells %d bytes of the server's; it wrote %d", u.Written, serverBytes.Load())
		}
	}
	// The rest of the quota can be used to the last byte, and no more.
	w, c := used()
	if c == lim.MaxCreated {
		for what, err := range map[string]error{"mount": inMount("over", nil), "broker": byServer("over", nil)} {
			if names.Reason(err) != names.Quota {
				t.Errorf("one name more by the %s: %v", what, err)
			}
		}
	} else if w != lim.MaxWritten-4 {
		t.Errorf("%d bytes are used; the files should have left four", w)
	} else if err := inMount("rest", data[:4]); err != nil {
		t.Errorf("the last bytes: %v", err)
	} else if err := inMount("over", data[:1]); names.Reason(err) != names.Quota {
		t.Errorf("one byte more: %v", err)
	}
	if entries, err := os.ReadDir(src); err != nil || int64(len(entries)) != createdNames.Load() {
		t.Errorf("%d names are there, %v; %d were made", len(entries), err, createdNames.Load())
	}
}
