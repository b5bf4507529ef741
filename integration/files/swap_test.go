package files

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// canary is in every file outside the root, and in no file in the root.
const canary = "CANARY-5d0e"

// Names are exchanged with links that lead out of the root, and with a FIFO, as fast as possible.
// Meanwhile a server reads, writes, lists, stats, creates, copies, renames and deletes the same
// names: nothing outside the root is read or written. The test also reads the same names without
// rootsfs. At least one of these bare reads has to leak, or the race would prove nothing. R063,
// R064, R188, R189.
func TestSwapRace(t *testing.T) {
	h := newHost(t, nil)
	base := t.TempDir()
	src, out := filepath.Join(base, "src"), filepath.Join(base, "outside")
	swaps := raceTrees(t, src, out)
	h.grant("r", src, guard.ReadWrite)
	before := snapshot(t, out)

	rounds := 50
	if lab.Soak() {
		rounds = 20_000
	}
	var stop atomic.Bool
	var swapped, tries, leaks atomic.Int64
	var side, workers sync.WaitGroup
	side.Go(func() {
		for !stop.Load() {
			for _, s := range swaps {
				if unix.Renameat2(unix.AT_FDCWD, s[0], unix.AT_FDCWD, s[1], unix.RENAME_EXCHANGE) == nil {
					swapped.Add(1)
				}
			}
		}
	})
	side.Go(func() {
		for !stop.Load() {
			for _, name := range []string{"dir/f", "abs/f", "file"} {
				tries.Add(1)
				if b, err := os.ReadFile(filepath.Join(src, name)); err == nil && bytes.Contains(b, []byte(canary)) {
					leaks.Add(1)
				}
			}
		}
	})
	p := connectRaw(t, h.b)
	var done atomic.Int64
	for w := range 4 {
		workers.Go(func() {
			for i := range rounds {
				done.Add(raceRound(t, p, w*rounds+i))
			}
		})
	}
	workers.Wait()
	for i := 0; leaks.Load() == 0 && i < 1_000_000; i++ {
		_, _ = os.Lstat(src) // wait until a bare read has leaked; the bound only ends a failed test
	}
	stop.Store(true)
	side.Wait()
	t.Logf("%d swaps; %d operations of the server succeeded; %d of %d bare reads leaked", swapped.Load(), done.Load(), leaks.Load(), tries.Load())
	if leaks.Load() == 0 || done.Load() == 0 {
		t.Error("no bare read leaked, or nothing succeeded: the race shows nothing")
	}
	if after := snapshot(t, out); after != before {
		t.Errorf("the directory outside the root was changed:\n%s\nwas\n%s", after, before)
	}
}

// raceTrees makes both trees and returns the pairs to exchange.
func raceTrees(t *testing.T, src, out string) [][2]string {
	t.Helper()
	for _, name := range []string{"f", "victim", "sub/f", "q/f", "q/victim", "q/sub/f", canary} {
		writeFile(t, filepath.Join(out, name), canary)
	}
	for _, dir := range []string{"dir", "abs", "p/q"} {
		for _, name := range []string{"f", "victim", "sub/f"} {
			writeFile(t, filepath.Join(src, dir, name), "inside")
		}
	}
	writeFile(t, filepath.Join(src, "file"), "inside")
	writeFile(t, filepath.Join(src, "pipe"), "inside")
	in := func(name string) string { return filepath.Join(src, name) }
	testkit.Must(t, os.Symlink("../outside", in("dir.alt")))
	testkit.Must(t, os.Symlink(out, in("abs.alt")))
	testkit.Must(t, os.Symlink("dir/../../outside", in("p.alt"))) // by way of dir, which is exchanged, too
	testkit.Must(t, os.Symlink(filepath.Join(out, "f"), in("file.alt")))
	testkit.Must(t, unix.Mkfifo(in("pipe.alt"), 0o644))
	return [][2]string{
		{in("dir"), in("dir.alt")}, {in("abs"), in("abs.alt")}, {in("p"), in("p.alt")},
		{in("file"), in("file.alt")}, {in("pipe"), in("pipe.alt")},
	}
}

// raceRound does each operation once and returns how many succeeded.
func raceRound(t *testing.T, p *rawServer, i int) (succeeded int64) {
	dir := []string{"r/dir", "r/abs", "r/p/q"}[i%3]
	mine := fmt.Sprintf("%s/n%d", dir, i)
	zero := int64(0)
	for _, c := range []struct {
		method string
		params any
	}{
		{wire.Read, wire.ReadParams{Path: dir + "/f"}},
		{wire.Read, wire.ReadParams{Path: "r/file"}},
		{wire.Read, wire.ReadParams{Path: "r/pipe"}},
		{wire.Write, wire.WriteParams{Path: dir + "/f", Content: "inside", Create: true}},
		{wire.Write, wire.WriteParams{Path: "r/file", Content: "inside", Create: true}},
		{wire.Write, wire.WriteParams{Path: dir + "/sub/f", Content: "inside", Offset: &zero}},
		{wire.Write, wire.WriteParams{Path: mine, Content: "inside", Create: true, Upload: true, Last: true}},
		{wire.List, wire.ListParams{Path: dir, Recursive: true, IncludeHidden: true}},
		{wire.Stat, wire.StatParams{Path: dir + "/" + canary}},
		{wire.Create, wire.CreateParams{Path: mine + ".d/x", Type: wire.TypeDirectory, Parents: true}},
		{wire.Copy, wire.RenameParams{OldPath: dir + "/victim", NewPath: "r/copy", Overwrite: true}},
		{wire.Read, wire.ReadParams{Path: "r/copy"}},
		{wire.Rename, wire.RenameParams{OldPath: mine, NewPath: dir + "/sub/f", Overwrite: true}},
		{wire.Delete, wire.DeleteParams{Path: mine + ".d", Recursive: true}},
		{wire.Delete, wire.DeleteParams{Path: dir + "/sub", Recursive: true}},
		{wire.Create, wire.CreateParams{Path: dir + "/sub/f", Parents: true}},
	} {
		r := <-p.send(c.method, c.params)
		if r.Error == nil {
			succeeded++
			if bytes.Contains(r.Result, []byte(canary)) {
				t.Errorf("LEAK: %s %+v: %s", c.method, c.params, r.Result)
			}
		}
	}
	return succeeded
}

// snapshot describes everything of a tree that a write would change.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	testkit.Must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		text := ""
		if d.Type().IsRegular() {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			text = string(b)
		}
		fmt.Fprintf(&all, "%s %o %d %d %v %v %q\n", strings.TrimPrefix(p, dir), st.Mode, st.Nlink, st.Size, st.Mtim, st.Ctim, text)
		return nil
	}))
	return all.String()
}
