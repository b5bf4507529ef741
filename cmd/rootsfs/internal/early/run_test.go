package early

import (
	"flag"
	"runtime"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/mount/sandbox"
	"github.com/rootsfs/rootsfs/mount/sandbox/ahead"
)

// Nobody can ask the program for a profile of its memory, and no samples are taken for
// one.
func TestMemoryIsNotProfiled(t *testing.T) {
	if f := flag.Lookup("test.memprofile"); f.Value.String() != "" {
		t.Skip("the tests are asked for one")
	}
	if runtime.MemProfileRate != 0 {
		t.Errorf("a sample for every %d bytes", runtime.MemProfileRate)
	}
}

// Which init is started ahead, if any, is decided by the flags before the command.
func TestKindFor(t *testing.T) {
	uid, gid := sandbox.DefaultID()
	plain := ahead.Kind{UID: uid, GID: gid}
	net := plain
	net.Net = true
	for line, want := range map[string]ahead.Kind{
		"rootsfs run --root .:rw -- true":                plain,
		"rootsfs run -- true --net --help":               plain,
		"rootsfs run --net -- true":                      net,
		"rootsfs run --net=true --root . -- true":        net,
		"rootsfs run --net=false -- true":                plain,
		"rootsfs run --network -- true":                  plain,
		"rootsfs run --levels -- true":                   plain,
		"rootsfs":                                        {},
		"rootsfs run":                                    {},
		"rootsfs run --help -- true":                     {},
		"rootsfs run -h -- true":                         {},
		"rootsfs run --level landlock -- true":           {},
		"rootsfs run --level=landlock -- true":           {},
		"rootsfs run --unconfined -- true":               {},
		"rootsfs run --memory-max 1G -- true":            {},
		"rootsfs run --root . true":                      {},
		"rootsfs mount --root . -- /mnt":                 {},
		"rootsfs janitor /run/.rootsfs-run-1 -- /mnt":    {},
		"rootsfs --session run run --root .:rw -- true ": {},
	} {
		got, ok := kindFor(strings.Fields(line))
		if !ok {
			got = ahead.Kind{}
		}
		if got != want || ok != (want != ahead.Kind{}) {
			t.Errorf("%s: %+v, %v", line, got, ok)
		}
	}
}
