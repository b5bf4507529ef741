package cli

import (
	"io"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostconfig"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Long names do not make a terminal break a line.
func TestForeignLinesAreFolded(t *testing.T) {
	checkFolded(t, map[string]func(a *app, name string){
		"json": func(a *app, name string) {
			_, err := hostconfig.Parse("mcp.json", []byte(`{"`+name+"\x01"+`": 1}`))
			a.fail(err)
		},
		"toml":    func(a *app, name string) { a.fail(&config.Error{File: "c", Line: 1, Key: name, Err: io.EOF}) },
		"warning": func(a *app, name string) { a.warn("no such server: %s", names.Quote(name)) },
		"command": func(a *app, name string) { a.say("do: rootsfs revoke %s", names.ShellWord(name)) },
	})
}
