package cli

import (
	"path/filepath"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostconfig"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Long names do not make a terminal break a line.
func TestWrapIsFolded(t *testing.T) {
	checkFolded(t, map[string]func(a *app, name string){
		"server": func(a *app, name string) {
			a.printServer("", &wrapServer{Name: names.Foreign(name), State: "wrap", Roots: []wrapRoot{{Spec: names.Foreign(name), From: names.Text("its " + names.Quote(name))}}, Notes: []names.Text{names.Text("see " + names.Quote(name))}})
		},
		"change": func(a *app, name string) {
			path := filepath.Join(t.TempDir(), "mcp.json")
			writeFile(t, path, `{"mcpServers": {"`+name+`": {"command": "true"}}}`, 0o600)
			file, err := openHostFile(path)
			if err != nil {
				t.Fatal(err)
			}
			w := &wrapping{wrapFlags: &wrapFlags{}, file: file}
			if w.conf, err = hostconfig.Parse(path, file.doc); err != nil {
				t.Fatal(err)
			}
			after, err := w.verify(w.conf.Wrap("rootsfs", map[*hostconfig.Server]hostconfig.How{w.conf.Servers[0]: {}}), nil)
			if err != nil {
				t.Fatal(err)
			}
			w.res.Diff = w.diff(after)
			a.printWrapping(w)
		},
	})
}
