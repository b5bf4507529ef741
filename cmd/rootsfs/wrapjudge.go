package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostconfig"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// judge says of a server that something called rootsfs starts whether that is this
// program, and what its flags leave open.
func (w *wrapping) judge(s *hostconfig.Server, r *wrapServer) {
	r.State = "wrapped already"
	if why := w.foreign(s.Command); why != "" {
		r.State = "another program"
		r.Notes = append(r.Notes, why)
		return
	}
	home, _ := os.UserHomeDir()
	i, ok := s.Inner()
	switch {
	case ok:
		if r.Broad, ok = broad(newRunCmd(&app{}), s.Args[1:i-1], home); !ok {
			r.State = "not confined"
		}
	case len(s.Args) > 0 && s.Args[0] == "serve":
		r.Broad, _ = broad(newServeCmd(&app{}), s.Args[1:], home)
	default:
		r.Notes = append(r.Notes, `it is not of the form "run FLAGS -- COMMAND": what it starts is not known`)
	}
	for _, name := range s.Steers() {
		r.Broad = append(r.Broad, name+` in "env": rootsfs itself obeys it, outside of any confinement`)
	}
}

// foreign says why a command is not this program; "" if it is: the same file, or one
// with the same content. A command that --rootsfs names as well is taken for it.
func (w *wrapping) foreign(command string) string {
	if w.programGiven && command == w.program {
		return ""
	}
	found, err := exec.LookPath(command)
	if err != nil {
		return fmt.Sprintf("%s is not found here", names.Quote(command))
	}
	own, err := os.Executable()
	if err == nil && sameProgram(found, own) {
		return ""
	}
	if resolved, err := filepath.EvalSymlinks(found); err == nil {
		found = resolved
	}
	return fmt.Sprintf("%s is another program than this rootsfs", names.Quote(found))
}

// sameProgram reports whether two paths lead to one file, or to the same content.
func sameProgram(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	switch {
	case errX != nil || errY != nil || !x.Mode().IsRegular():
		return false
	case os.SameFile(x, y):
		return true
	case x.Size() != y.Size():
		return false
	}
	first, errX := digest(a)
	second, errY := digest(b)
	return errX == nil && errY == nil && first == second
}

func digest(path string) (sum [sha256.Size]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	h.Sum(sum[:0])
	return sum, err
}

// broad are the flags of a "rootsfs run" or "serve" that give more than a server should
// have; confined is false if the command is not confined at all.
func broad(cmd *cobra.Command, args []string, home string) (list []string, confined bool) {
	fs := cmd.Flags()
	if err := fs.Parse(args); err != nil {
		return []string{"its flags are not understood: " + oneLine(err)}, true
	}
	confined = true
	if on, err := fs.GetBool("unconfined"); err == nil && on {
		list, confined = append(list, "--unconfined: it runs with all of your rights"), false
	}
	for _, flag := range []struct{ name, what string }{
		{"net", "the whole network"}, {"allow-root-dir", "/ may be a root"}, {"allow-system", "system directories may be written to"}, {"allow-other", "other users reach the roots"},
	} {
		if on, err := fs.GetBool(flag.name); err == nil && on {
			list = append(list, "--"+flag.name+": "+flag.what)
		}
	}
	if ports, _ := fs.GetIntSlice("listen"); len(ports) > 0 {
		list = append(list, fmt.Sprintf("--listen: it listens on the ports %v of this machine", ports))
	}
	if fs.Changed("config") {
		list = append(list, "--config "+fs.Lookup("config").Value.String()+": what that file approves is not looked at here")
	}
	sockets, _ := fs.GetStringArray("socket")
	for _, path := range sockets {
		list = append(list, "--socket "+path+": whatever listens there works for it")
	}
	roots, _ := fs.GetStringArray("root")
	for _, text := range roots {
		if why := broadRoot(text, home); why != "" {
			list = append(list, "--root "+text+": "+why)
		}
	}
	return list, confined
}

// broadRoot says what is broad about a root; "" if nothing is.
func broadRoot(text, home string) string {
	spec, err := guard.ParseSpec(text)
	if err != nil {
		return ""
	}
	dir := spec.Path
	if dir == "~" || strings.HasPrefix(dir, "~/") {
		dir = home + dir[1:]
	}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	dir = filepath.Clean(dir)
	rights, err := guard.ParseMode(spec.Mode)
	writes := spec.Mode != "" && err == nil && rights&^guard.ReadOnly != 0
	system := slices.ContainsFunc([]string{"/etc", "/usr", "/boot", "/var", "/root", "/bin", "/sbin", "/lib", "/opt"}, func(top string) bool { return names.Under(dir, top) })
	switch {
	case dir == "/":
		return "the whole file system"
	case home != "" && names.Under(home, dir):
		return "your whole home directory"
	case writes && system && !(home != "" && names.Under(dir, home)):
		return "a system directory, writable"
	}
	return ""
}
