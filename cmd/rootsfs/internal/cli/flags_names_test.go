package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/guard"
)

// Roots whose directories have the same name get numbers. A directory that is given twice with the
// same mode is one root. If a path cannot give a root its name, or can be read in two ways, the
// error says what to write.
func TestNamesOfRoots(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"one/src", "two/src", "x:ro"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ specs, others, want, err string }{
		{specs: "one/src two/src", want: "src src-2"},
		{specs: "one/src two/src src-2=x:ro:ro", want: "src src-3 src-2"},
		{specs: "one/src one/src/", want: "src"},
		{specs: "one/src one/src:rw", want: "src src-2"}, // no error here: later, the session refuses one directory as two roots
		{specs: "one/src", others: "src", want: "src-2"},
		{specs: "x:ro", err: "x:ro:ro"},
		{specs: strings.Repeat("n", 200), err: "NAME=PATH"},
	} {
		var f grantFlags
		f.Add(&cobra.Command{})
		var specs, got []string
		for s := range strings.FieldsSeq(c.specs) {
			if name, path, ok := strings.Cut(s, "="); ok {
				specs = append(specs, name+"="+dir+"/"+path)
			} else {
				specs = append(specs, dir+"/"+s)
			}
		}
		grants, err := f.all(specs, "test", guard.Grant{Root: guard.RootName(c.others)})
		for _, g := range grants {
			got = append(got, string(g.Root))
		}
		if strings.Join(got, " ") != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, %v; want %s, an error with %q", c.specs, got, err, c.want, c.err)
		}
	}
}
