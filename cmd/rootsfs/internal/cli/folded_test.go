package cli_test

import (
	"io"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/clitest"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostconfig"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Long names do not make a terminal break a line of ours. Issue 36.
func TestForeignLinesAreFolded(t *testing.T) {
	clitest.CheckFolded(t, map[string]func(a *cli.App, name string){
		"json": func(a *cli.App, name string) {
			_, err := hostconfig.Parse("mcp.json", []byte(`{"`+name+"\x01"+`": 1}`))
			a.Fail(err)
		},
		"toml":    func(a *cli.App, name string) { a.Fail(&config.Error{File: "c", Line: 1, Key: name, Err: io.EOF}) },
		"warning": func(a *cli.App, name string) { a.Warn("no such server: %s", names.Quote(name)) },
		"command": func(a *cli.App, name string) { a.Say("do: rootsfs revoke %s", names.ShellWord(name)) },
	})
}
