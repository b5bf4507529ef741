package sandbox

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The command is started only after its network is served, even if nothing can be reached in the
// network. Otherwise the kernel would refuse the command's first connections, and nobody would
// see which hosts it looked for.
func TestNetworkIsServedFirst(t *testing.T) {
	atLevels(t, []Level{Namespaces, Bubblewrap}, func(t *testing.T, level Level) {
		for _, offline := range []bool{false, true} {
			point := tree(t, "home/u/code")
			dir := filepath.Join(point, "home/u/code")
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			mark, ranEarly := filepath.Join(dir, "mark"), false
			serve := func(sockets map[string][]*os.File) error {
				for _, list := range sockets {
					for _, f := range list {
						_ = f.Close()
					}
				}
				for range 20 { // time for a command that does not wait
					_, err := os.Lstat(mark)
					ranEarly = ranEarly || err == nil
					time.Sleep(5 * time.Millisecond)
				}
				return nil
			}
			output(t, Options{Level: level, Tree: point, Roots: []string{"/home/u/code"}, Dir: "/home/u/code", Network: &Network{Offline: offline, Serve: serve}}, "echo >mark")
			if ranEarly {
				t.Errorf("offline %v: the command has run before its network was served", offline)
			}
			if _, err := os.Lstat(mark); err != nil {
				t.Errorf("offline %v: the command has not run: %v", offline, err)
			}
		}
	})
}
