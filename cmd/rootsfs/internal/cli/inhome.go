package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/guard/names"
)

// inHome is a path with the ~ that the shell has left to us: in quotes, behind = as
// in name=~/docs, or because a host started us by its configuration, without a shell.
// Taken as it stands it would name, and make, a directory called ~.
func inHome(path string) (string, error) {
	if path != "~" && !strings.HasPrefix(path, "~/") {
		return path, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("%s: HOME is not set: write the path in full", names.Quote(path))
	}
	return filepath.Join(home, path[1:]), nil
}

// pathVar adds a flag whose value is a path, or can be one: inHome has been at it when
// the command reads it.
func pathVar(fs *pflag.FlagSet, p *string, name, usage string) {
	fs.Var(pathValue{p}, name, usage)
}

// pathValue implements pflag.Value.
type pathValue struct{ p *string }

func (v pathValue) Set(s string) (err error) {
	*v.p, err = inHome(s)
	return err
}

func (v pathValue) String() string {
	if v.p == nil { // as pflag asks for a type's own default
		return ""
	}
	return *v.p
}

func (v pathValue) Type() string { return "string" }
