package sandbox

import (
	"bufio"
	"encoding/json"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// hostile runs the hostile program at a level; level 0 is without rootsfs.
func (o *outside) hostile(level sandbox.Level) []result {
	t := o.t
	t.Helper()
	at := o.root
	if level == 0 || level == sandbox.Landlock {
		at = o.tree + o.root // where the tree is on the host
	}
	o.Root, o.Link, o.SetUID, o.Parent = at, at+"/link", at+"/setuid", 1
	raw, err := json.Marshal(o.targets)
	must(t, err)
	stdout, log, code := o.run(order{Bare: level == 0, Terminal: true, Options: o.options(level, at+"/hostile", string(raw))})
	if code != 0 {
		t.Fatalf("the hostile program ended with %d:\n%s", code, log)
	}
	var results []result
	for lines := bufio.NewScanner(strings.NewReader(stdout)); lines.Scan(); {
		var r result
		must(t, json.Unmarshal(lines.Bytes(), &r))
		results = append(results, r)
	}
	return results
}

func TestX(t *testing.T) {
	for _, w := range everybody {
		t.Run(w.name, func(t *testing.T) {
			o := newOutside(t, w)
			var names []string
			all := map[string]string{}
			for _, l := range []sandbox.Level{0, sandbox.Landlock, sandbox.Bubblewrap, sandbox.Namespaces} {
				for _, r := range o.hostile(l) {
					if l == sandbox.Landlock {
						names = append(names, r.Name)
					}
					all[r.Name] += " | " + show(r)
				}
			}
			for _, n := range names {
				t.Log(n, all[n])
			}
		})
	}
}

func show(r result) string {
	if r.Worked {
		return "WORKS"
	}
	return r.Detail
}
