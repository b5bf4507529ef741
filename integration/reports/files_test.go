package reports

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// Each script of testdata/files tries a report of another file system in a mount. Root runs it
// at every cache level, an ordinary user at the default level.
func TestFiles(t *testing.T) {
	asEachUser(t, func(t *testing.T, who *user) {
		from := scripts(t, who)
		home := who.dir
		levels := []string{"audit", "max", "strict"}
		if who.uid != 0 {
			levels = levels[:1]
		}
		for _, cache := range levels {
			who.dir = filepath.Join(home, cache)
			testkit.Must(t, os.Mkdir(who.dir, 0o755))
			testkit.Must(t, os.Chown(who.dir, who.uid, who.uid))
			out, err := who.command("sh", filepath.Join(from, "session.sh"), who.program, who.dir, cache, filepath.Join(from, "files")).CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v: %s", cache, err, out)
			}
			cases, err := filepath.Glob(filepath.Join(from, "files", "*.py"))
			testkit.Must(t, err)
			for _, c := range cases {
				name := strings.TrimSuffix(filepath.Base(c), ".py")
				t.Run(cache+"/"+name, func(t *testing.T) {
					code, err := os.ReadFile(filepath.Join(who.dir, "out", name+".code"))
					testkit.Must(t, err)
					output, err := os.ReadFile(filepath.Join(who.dir, "out", name))
					testkit.Must(t, err)
					if got := strings.TrimSpace(string(code)); got != "0" {
						t.Errorf("exit code %s: %s", got, output)
					}
				})
			}
		}
	})
}
