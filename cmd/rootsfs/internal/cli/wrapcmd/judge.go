package wrapcmd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/runcmd"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/servecmd"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostconfig"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/rootspec"
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
		if r.Broad, ok = w.broad(runcmd.New(&cli.App{}), s, s.Args[1:i-1], home); !ok {
			r.State = "not confined"
		}
	case len(s.Args) > 0 && s.Args[0] == "serve":
		r.Broad, _ = w.broad(servecmd.New(&cli.App{}), s, s.Args[1:], home)
	default:
		r.Notes = append(r.Notes, `it is not of the form "run FLAGS -- COMMAND": what it starts is not known`)
	}
	for _, name := range s.Steers(w.file.isOwners()) {
		r.Broad = append(r.Broad, name+` in its configuration: rootsfs itself obeys it, outside of any confinement`)
	}
	if w.file.project != "" {
		words := []string{names.ShellWord(s.Command)}
		for _, a := range s.Args {
			words = append(words, names.ShellWord(a))
		}
		r.Notes = append(r.Notes, "the project has chosen how it is started: "+strings.Join(words, " "))
	}
}

// foreign says why a command is not this program; "" if it is the same file. A command
// that --rootsfs names as well is taken for it. A relative path leads elsewhere from the
// host's own directory.
func (w *wrapping) foreign(command string) string {
	if w.programGiven && command == w.program {
		return ""
	}
	found, err := exec.LookPath(command)
	if err != nil || !filepath.IsAbs(found) {
		return fmt.Sprintf("%s is not found here", names.Quote(command))
	}
	if own, err := os.Executable(); err == nil {
		a, errA := os.Stat(found)
		if b, errB := os.Stat(own); errA == nil && errB == nil && os.SameFile(a, b) {
			return ""
		}
	}
	if resolved, err := filepath.EvalSymlinks(found); err == nil {
		found = resolved
	}
	return fmt.Sprintf("%s is another program than this rootsfs", names.Quote(found))
}

// broad are the flags of a "rootsfs run" or "serve" that give more than a server should
// have; confined is false if the command is not confined at all.
func (w *wrapping) broad(cmd *cobra.Command, s *hostconfig.Server, args []string, home string) (list []string, confined bool) {
	fs := cmd.Flags()
	if err := fs.Parse(args); err != nil {
		return []string{"its flags are not understood: " + cli.OneLine(err)}, true
	}
	confined = true
	if on, err := fs.GetBool("unconfined"); err == nil && on {
		list, confined = append(list, "--unconfined: it runs with all of your rights"), false
	}
	if on, err := fs.GetBool("allow-system"); err == nil && on {
		list = append(list, "--allow-system: system directories may be written to")
	}
	if f := fs.Lookup("net"); f != nil {
		if v, ok := f.Value.(*runcmd.NetValue); ok && v.All {
			list = append(list, "--net: the whole network")
		} else if ok && len(v.Rules) > 0 {
			list = append(list, "--net="+v.String()+": it connects to these hosts")
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
	once, _ := fs.GetStringArray("once")
	for _, text := range slices.Concat(roots, once, fs.Args()) { // serve takes roots without the flag, too
		if why := w.broadRoot(text, home); why != "" {
			list = append(list, "--root "+text+": "+why)
		}
	}
	if f := fs.Lookup("for"); f != nil {
		if v, ok := f.Value.(runcmd.ForValue); ok && v.F.Agent != "" {
			list = append(list, "--for "+v.F.Agent+": the network, the HOME and keys of that agent, and the project, writable")
		}
	}
	if w.file.project != "" {
		list = append(list, w.ofTheOwner(fs, s.Env)...)
	}
	return list, confined
}

// ofTheOwner are the flags by which a project's file takes what is the owner's. own are
// the variables that the file itself sets.
func (w *wrapping) ofTheOwner(fs *pflag.FlagSet, own []string) (list []string) {
	for _, flag := range []struct{ name, what string }{
		{"session", "the roots of a session of yours"}, {"profile", "what your configuration approves"},
		{"secret", "a credential of yours, sent to the host that is named"}, {"no-default-policy", "no name is hidden from it"}, {"allow", "names that the built-in rules would hide"},
	} {
		if fs.Changed(flag.name) {
			list = append(list, "--"+flag.name+" "+fs.Lookup(flag.name).Value.String()+": "+flag.what)
		}
	}
	if f := fs.Lookup("home"); f != nil && f.Changed {
		if dir := w.fromProject(f.Value.String()); w.file.outside(dir) {
			list = append(list, "--home "+dir+": OUTSIDE of its project, writable")
		}
	}
	vars, _ := fs.GetStringArray("env")
	for _, v := range vars {
		if !strings.Contains(v, "=") && !slices.Contains(own, v) {
			list = append(list, "--env "+v+": a variable of yours")
		}
	}
	return list
}

// fromProject is where a path leads from the project, where hosts start its servers.
func (w *wrapping) fromProject(dir string) string {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(w.file.project, dir)
	}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	return filepath.Clean(dir)
}

// broadRoot says what is broad about a root; "" if nothing is.
func (w *wrapping) broadRoot(text, home string) string {
	spec, err := rootspec.Parse(text)
	if err != nil {
		return ""
	}
	dir := spec.Path
	if dir == "~" || strings.HasPrefix(dir, "~/") {
		dir = home + dir[1:]
	}
	for _, variable := range []string{"${workspaceFolder}", "${CLAUDE_PROJECT_DIR:-.}", "${CLAUDE_PROJECT_DIR}"} {
		if rest, ok := strings.CutPrefix(dir, variable); ok {
			dir = "." + rest
		}
	}
	if dir != "auto" {
		dir = w.fromProject(dir)
	}
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
	case w.file.project != "" && strings.ContainsAny(dir, "${"):
		return "the host fills in where it leads"
	case dir != "auto" && w.file.outside(dir):
		return "OUTSIDE of its project"
	}
	return ""
}
