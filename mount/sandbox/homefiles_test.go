package sandbox

import (
	"errors"
	"testing"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Files of the private HOME and their directories belong to the command, and nobody else can
// read them. Start refuses files for a HOME that is kept between runs, and paths outside of HOME.
func TestHomeFiles(t *testing.T) {
	atLevels(t, rooted, func(t *testing.T, level Level) {
		o := Options{
			Level: level, Tree: tree(t), Roots: []string{"/home/u/code"},
			HomeFiles: []HomeFile{{Path: ".a", Data: []byte("one")}, {Path: ".config/b/c.yml", Data: []byte("two")}, {Path: ".config/b/d"}},
		}
		out, exit := output(t, o, `cd; cat .a .config/b/c.yml; stat -c ' %a' .a .config; [ -O .a ] && echo more >>.config/b/d && cat .config/b/d && touch .config/new && mv .a .b && ls -A`)
		if want := "onetwo 600\n 700\nmore\n.b\n.config"; out != want || exit.Code != 0 {
			t.Errorf("%q, %+v; want %q", out, exit, want)
		}
	})
	for _, o := range []Options{{HomeFiles: []HomeFile{{Path: "../x"}}}, {HomeFiles: []HomeFile{{Path: "/etc/x"}}}, {HomeFiles: []HomeFile{{Path: "x"}}, Home: "/home/u/kept"}} {
		o.Args, o.Tree = []string{"true"}, "/nowhere"
		if _, err := Start(t.Context(), o); names.Reason(err) != names.Invalid {
			t.Errorf("%v with Home %q: %v", o.HomeFiles, o.Home, errors.Unwrap(err))
		}
	}
}
