package serve

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/integration/programs/lab"
)

// canary is the text of the files outside of the root that the links of the test lead to. No file
// in the root contains it.
const canary = "CANARY-71ce"

// Names are exchanged with links that lead out of the root, as fast as possible, while a client
// calls tools on the same names: nothing outside is read or written. Meanwhile the test reads some
// of the names by os.ReadFile, without rootsfs. At least one of these reads must reach a file
// outside: otherwise the race would prove nothing. R063, R064, R188, R189.
func TestDefect_SwapRace(t *testing.T) {
	o := newRootServer(t)
	guardtest.Tree(t, o.out, "", "x/f="+canary, "x/sub/f="+canary, "x/"+canary+"=", "x/q/f="+canary)
	for _, dir := range []string{"dir", "abs", "p/q"} {
		guardtest.Tree(t, o.dir, o.out, dir+"/f=inside", dir+"/sub/f=inside")
	}
	guardtest.Tree(t, o.dir, o.out, "file=inside", "pipe=inside", "dir.alt => ../outside/x", "abs.alt => $OUT/x",
		"p.alt => dir/../../outside/x", "file.alt => $OUT/x/f", "pipe.alt|")
	before := state(t, o.out)
	var stop atomic.Bool
	var swapped, tries, leaks, succeeded atomic.Int64
	var background, workers sync.WaitGroup
	background.Go(func() {
		for !stop.Load() {
			for _, name := range []string{"dir", "abs", "p", "file", "pipe"} {
				from := filepath.Join(o.dir, name)
				if unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, from+".alt", unix.RENAME_EXCHANGE) == nil {
					swapped.Add(1)
				}
			}
		}
	})
	background.Go(func() {
		for !stop.Load() {
			for _, name := range []string{"dir/f", "abs/f", "file"} {
				tries.Add(1)
				if b, err := os.ReadFile(filepath.Join(o.dir, name)); err == nil && bytes.Contains(b, []byte(canary)) {
					leaks.Add(1)
				}
			}
		}
	})
	rounds := 25
	if lab.Soak() {
		rounds = 10_000
	}
	for w := range 4 {
		workers.Go(func() {
			for i := range rounds {
				succeeded.Add(o.race(w*rounds + i))
			}
		})
	}
	workers.Wait()
	for i := 0; leaks.Load() == 0 && i < 1_000_000; i++ {
		_, _ = os.Lstat(o.dir) // wait until os.ReadFile has read a file outside; the bound only ends a failed test
	}
	stop.Store(true)
	background.Wait()
	t.Logf("%d swaps; %d calls succeeded; %d of %d reads without rootsfs leaked", swapped.Load(), succeeded.Load(), leaks.Load(), tries.Load())
	if leaks.Load() == 0 || succeeded.Load() == 0 {
		t.Error("no read without rootsfs leaked, or no call succeeded: the race shows nothing")
	}
	if after := state(t, o.out); after != before {
		t.Errorf("the outside was changed:\n%s\nwas\n%s", after, before)
	}
}

// race calls tools that take paths, some of them more than once. It returns how many calls
// succeeded.
func (o *rootServer) race(i int) (succeeded int64) {
	dir := []string{"w/dir", "w/abs", "w/p/q"}[i%3]
	mine := fmt.Sprintf("%s/n%d", dir, i)
	for _, c := range []struct {
		tool string
		args m
	}{
		{"read_text_file", m{"path": dir + "/f"}},
		{"read_text_file", m{"path": "w/file"}},
		{"read_text_file", m{"path": filepath.Join(o.dir, strings.TrimPrefix(dir, "w/"), "f"), "tail": 1}},
		{"read_media_file", m{"path": "w/pipe"}},
		{"read_multiple_files", m{"paths": []string{dir + "/f", dir + "/sub/f", "w/file", "w/pipe"}}},
		{"read_file_range", m{"path": dir + "/f", "length": 20}},
		{"write_file", m{"path": dir + "/f", "content": "inside"}},
		{"write_file", m{"path": "w/file", "content": "inside"}},
		{"append_file", m{"path": dir + "/sub/f", "content": " "}},
		{"edit_file", m{"path": dir + "/f", "edits": edits("inside", "inside")}},
		{"edit_file", m{"path": dir + "/f", "edits": edits("i", "i ")}},
		{"create_directory", m{"path": mine + ".d/x"}},
		{"write_file", m{"path": mine, "content": "inside"}},
		{"list_directory", m{"path": dir}},
		{"list_directory_with_sizes", m{"path": dir}},
		{"directory_tree", m{"path": "w"}},
		{"search_files", m{"path": "w", "pattern": "**"}},
		{"search_within_files", m{"path": "w", "substring": "CANARY"}},
		{"get_file_info", m{"path": dir + "/" + canary}},
		{"copy_file", m{"source": dir + "/f", "destination": "w/copy", "overwrite": true}},
		{"read_text_file", m{"path": "w/copy"}},
		{"move_file", m{"source": mine, "destination": dir + "/sub/f", "overwrite": true}},
		{"delete_file", m{"path": mine + ".d", "recursive": true}},
		{"delete_file", m{"path": dir + "/sub", "recursive": true}},
		{"create_directory", m{"path": dir + "/sub"}},
		{"write_file", m{"path": dir + "/sub/f", "content": "inside"}},
	} {
		r := o.call("tools/call", m{"name": c.tool, "arguments": c.args})
		// The requested path may be in the answer.
		asked, _ := c.args["path"].(string)
		text := strings.ReplaceAll(string(r.Result)+string(r.Error), asked, "")
		if strings.Contains(text, canary) {
			o.t.Errorf("LEAK: %s %v: %s", c.tool, c.args, text)
		}
		if a := o.parse(c.tool, r); !a.failed() {
			succeeded++
		}
	}
	return succeeded
}
