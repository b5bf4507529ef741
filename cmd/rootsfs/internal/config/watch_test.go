package config

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostwatch"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// R118, R221: ten quick edits cause one reload, which sees the last state. Time is virtual, so the
// number of reloads does not depend on the machine.
func TestWatchDebounce(t *testing.T) {
	for _, tc := range []struct {
		name  string
		edits int
		every time.Duration
		want  []int // for each reload, the number of edits that it saw
	}{
		{"ten quick edits", 10, 20 * time.Millisecond, []int{10}},
		{"two far apart", 2, 3 * time.Second, []int{1, 2}},
		// Continuous edits are reported every four debounces.
		{"no rest", 27, 140 * time.Millisecond, []int{8, 15, 22, 27}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(home(t), "config.toml")
			write(t, path, "")
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				var got []int
				changes := make(chan struct{}, 1)
				done := Watch(ctx, path, changes, 0, func(c *Config, err error) {
					if err != nil {
						t.Error(err)
						return
					}
					got = append(got, len(c.Roots))
				})
				for i := range tc.edits {
					if i > 0 {
						time.Sleep(tc.every)
					}
					write(t, path, rootBlocks(i+1))
					// Writing another file in the same directory does not count as an edit.
					write(t, path+"~", rootBlocks(i+1))
					select {
					case changes <- struct{}{}:
					default:
					}
				}
				time.Sleep(time.Minute)
				cancel()
				<-done
				if !slices.Equal(got, tc.want) {
					t.Errorf("reloads saw %v, want %v", got, tc.want)
				}
			})
		})
	}
}

// rootBlocks returns a document with n [[root]] blocks.
func rootBlocks(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("[[root]]\npath = \"/srv/" + strconv.Itoa(i) + "\"\n")
	}
	return b.String()
}

// R118, R221: Watch notices the various ways in which editors and people change the file, on a
// real file system. Each step waits for the reload that it must cause.
func TestWatch(t *testing.T) {
	dir := home(t)
	path := filepath.Join(dir, "a/b/config.toml")
	states := make(chan int) // how many roots; -1 for an error
	ctx, cancel := context.WithCancel(t.Context())
	changes := make(chan struct{}, 1)
	paths := hostwatch.New(ctx)
	paths.Signal(path, hostwatch.Path, changes)
	done := Watch(ctx, path, changes, time.Millisecond, func(c *Config, err error) {
		n := -1
		if err == nil {
			n = len(c.Roots)
		}
		select {
		case states <- n:
		case <-ctx.Done():
		}
	})
	defer func() {
		cancel()
		<-done
		<-paths.Done()
	}()
	// A report may come in the middle of a step, so the test waits for the final state, and not
	// for the first report. If the state never comes, the time limit of go test ends the test.
	wait := func(what string, want int) {
		t.Helper()
		for got := range states {
			if got == want {
				return
			}
			t.Logf("%s: saw %d, still waiting for %d", what, got, want)
		}
	}
	write(t, path, rootBlocks(1)) // write also makes the directories
	wait("created", 1)
	write(t, path, rootBlocks(2))
	wait("written", 2)
	write(t, path+".new", rootBlocks(3))
	testkit.Must(t, os.Rename(path+".new", path))
	wait("replaced by rename", 3)
	write(t, path, "cache = oops")
	wait("bad", -1)
	write(t, path, rootBlocks(4))
	wait("mended", 4)
	testkit.Must(t, os.Chmod(path, 0o666))
	wait("writable by others", -1)
	testkit.Must(t, os.Chmod(path, 0o600))
	wait("mode mended", 4)
	testkit.Must(t, os.Remove(path))
	wait("removed", -1)
	write(t, path, rootBlocks(5))
	wait("there again", 5)
	write(t, filepath.Join(dir, "a/new/config.toml"), rootBlocks(6))
	testkit.Must(t, os.Rename(dir+"/a/b", dir+"/a/old"))
	testkit.Must(t, os.Rename(dir+"/a/new", dir+"/a/b"))
	wait("directory replaced", 6)
	write(t, path, rootBlocks(7))
	wait("written in the new directory", 7)
	testkit.Must(t, os.Rename(dir+"/a", dir+"/gone"))
	wait("directory above gone", -1)
	testkit.Must(t, os.Rename(dir+"/gone", dir+"/a"))
	wait("directory above back", 7)
	write(t, dir+"/dot/c.toml", rootBlocks(8))
	testkit.Must(t, os.Remove(path))
	testkit.Must(t, os.Symlink(dir+"/dot/c.toml", path))
	wait("a link", 8)
	write(t, dir+"/dot/c.toml", rootBlocks(9))
	wait("written behind the link", 9)
	write(t, dir+"/dot2/c.toml", rootBlocks(10))
	testkit.Must(t, os.Rename(dir+"/dot", dir+"/dot3"))
	testkit.Must(t, os.Symlink("dot2", dir+"/dot"))
	wait("a second link in the path", 10)
	write(t, dir+"/dot2/c.toml", rootBlocks(11))
	wait("written behind two links", 11)
}
