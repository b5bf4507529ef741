package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard/names"
)

// ExpandHome is a path with the ~ that the shell has left to us: in quotes, behind = as
// in name=~/docs, or because a host started us by its configuration, without a shell.
// Taken as it stands it would name, and make, a directory called ~.
func ExpandHome(path string) (string, error) {
	if path != "~" && !strings.HasPrefix(path, "~/") {
		return path, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("%s: HOME is not set: write the path in full", names.Quote(path))
	}
	return filepath.Join(home, path[1:]), nil
}

// WorkingDir is the working directory, for paths on the command line.
func WorkingDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", errors.New("the working directory is gone; cd to one that exists")
	}
	return dir, nil
}

// HomeDirs are the home directories of this machine's users, resolved: those of
// /etc/passwd and the caller's own.
func HomeDirs() []string {
	var out []string
	add := func(dir string) {
		if filepath.IsAbs(dir) && filepath.Clean(dir) != "/" {
			out = append(out, filepath.Clean(dir), session.Resolve(dir))
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		add(home)
	}
	f, err := os.Open("/etc/passwd")
	if err != nil {
		return out
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Split(lines.Text(), ":"); len(fields) == 7 {
			add(fields[5])
		}
	}
	return out
}
