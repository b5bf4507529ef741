package sandbox

import (
	"os"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
)

// The copied files of /etc are present in every run, including files that are links with .. in
// their targets on the host.
func TestCopies(t *testing.T) {
	var want []string
	for _, path := range layout.EtcFiles() {
		if path == "/etc/resolv.conf" {
			continue // only a command with a network has this file
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() <= layout.CopyMax {
			want = append(want, path)
		}
	}
	if len(want) < 5 {
		t.Skipf("this host has only %q", want)
	}
	script := "for f in " + strings.Join(want, " ") + `; do test -e "$f" || echo "$f is not there"; done`
	atLevels(t, []Level{Namespaces, Bubblewrap}, func(t *testing.T, level Level) {
		for range 5 {
			o := Options{Level: level, Tree: tree(t, "home/u/code"), Roots: []string{"/home/u/code"}}
			if out, exit := output(t, o, script); out != "" || exit != (Exit{}) {
				t.Fatalf("%s, %+v", out, exit)
			}
		}
	})
}

// A root may be /etc, or lie in it: the command then sees the root there.
func TestRootsInEtc(t *testing.T) {
	atLevels(t, []Level{Namespaces}, func(t *testing.T, level Level) {
		for range 10 {
			point := tree(t, "etc/ssl")
			put(t, point+"/etc/ssl/mine", "mine")
			o := Options{Level: level, Tree: point, Roots: []string{"/etc/ssl", "/etc"}}
			if out, exit := output(t, o, "cat /etc/ssl/mine; test ! -e /etc/nsswitch.conf"); out != "mine" || exit != (Exit{}) {
				t.Fatalf("inside: %q, %+v", out, exit)
			}
		}
	})
}
