package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostconfig"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/rootspec"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// judge checks a server that a program called rootsfs starts: whether that program is this rootsfs,
// and which flags give the server more than it should have. It fills r with the results.
func (w *wrapping) judge(s *hostconfig.Server, r *wrapServer) {
	r.State = "wrapped already"
	if why := w.whyForeign(s.Command.Raw()); why != "" {
		r.State = "another program"
		r.Notes = append(r.Notes, names.Text(why))
		return
	}
	home, _ := os.UserHomeDir()
	i, ok := s.Inner()
	switch {
	case ok:
		if r.Broad, ok = w.broadFlagsOf(new(app).newRunCmd(), s, names.List[string](s.Args[1:i-1]), home); !ok {
			r.State = "not confined"
		}
	case len(s.Args) > 0 && s.Args[0] == "serve":
		r.Broad, _ = w.broadFlagsOf(new(app).newServeCmd(), s, names.List[string](s.Args[1:]), home)
	default:
		r.Notes = append(r.Notes, `it is not of the form "run FLAGS -- COMMAND": what it starts is not known`)
	}
	for _, name := range w.steers(s) {
		r.Broad = append(r.Broad, names.Foreign(name+` in its configuration: rootsfs itself obeys it, outside of any confinement`))
	}
	if w.file.project != "" {
		words := []string{names.ShellWord(s.Command)}
		for _, a := range s.Args {
			words = append(words, names.ShellWord(a))
		}
		r.Notes = append(r.Notes, names.Text("the project has chosen how it is started: "+strings.Join(words, " ")))
	}
}

// whyForeign returns the reason why a command does not start this program; "" if the command is the
// same file, or the command that --rootsfs names. A command that is found by a relative path counts
// as not found: the host resolves the path in another directory.
func (w *wrapping) whyForeign(command string) string {
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

// broadFlags are flags that give a server more than it should have. Some flags do so only in a
// project's file, because a project can use them to take things of the owner.
var broadFlags = []struct {
	name, what    string
	onlyInProject bool // the flag counts only in a file of a project
}{
	{"allow-system", "system directories may be written to", false},
	{"listen", "it listens on these ports of this machine", false},
	{"config", "what that file approves is not looked at here", false},
	{"socket", "whatever listens there works for it", false},
	{"session", "the roots of a session of yours", true},
	{"profile", "what your configuration approves", true},
	{"secret", "a credential of yours, sent to the host that is named", true},
	{"no-default-policy", "no name is hidden from it", true},
	{"allow", "names that the built-in rules would hide", true},
}

// broadFlagsOf returns the flags of a "rootsfs run" or "rootsfs serve" command that give a server
// more than it should have. confined is false if the command is not confined at all.
func (w *wrapping) broadFlagsOf(cmd *cobra.Command, s *hostconfig.Server, args []string, home string) (list []names.Foreign, confined bool) {
	fs := cmd.Flags()
	if err := fs.Parse(args); err != nil {
		return []names.Foreign{names.Foreign("its flags are not understood: " + oneLine(err))}, true
	}
	add := func(flag, what string) { list = append(list, names.Foreign("--"+flag+": "+what)) }
	confined = true
	if on, err := fs.GetBool("unconfined"); err == nil && on {
		confined = false
		add("unconfined", "it runs with all of your rights")
	}
	if f := fs.Lookup("net"); f != nil {
		if v, ok := f.Value.(*netValue); ok && v.All {
			add("net", "the whole network")
		} else if ok && len(v.Rules) > 0 {
			add("net="+v.String(), "it connects to these hosts")
		}
	}
	if f := fs.Lookup("for"); f != nil {
		if v, ok := f.Value.(forValue); ok && v.F.Agent != "" {
			add("for "+v.F.Agent, "the network, the HOME and keys of that agent, and the project, writable")
		}
	}
	for _, flag := range broadFlags {
		f := fs.Lookup(flag.name)
		if f != nil && f.Changed && f.Value.String() != "false" && (w.file.project != "" || !flag.onlyInProject) {
			add(flag.name+" "+f.Value.String(), flag.what)
		}
	}
	roots, _ := fs.GetStringArray("root")
	once, _ := fs.GetStringArray("once")
	for _, text := range slices.Concat(roots, once, fs.Args()) { // serve takes roots without the flag, too
		if why := w.broadRoot(text, home); why != "" {
			add("root "+text, why)
		}
	}
	if f := fs.Lookup("name"); f != nil && f.Changed && !w.file.isOwners() && w.own != nil {
		list = append(list, names.List[names.Foreign](w.notesFor(f.Value.String()))...)
	}
	if w.file.project == "" {
		return list, confined
	}
	if f := fs.Lookup("home"); f != nil && f.Changed {
		if dir := w.fromProject(f.Value.String()); w.file.outside(dir) {
			add("home "+dir, "OUTSIDE of its project, writable")
		}
	}
	vars, _ := fs.GetStringArray("env")
	for _, v := range vars {
		if !strings.Contains(v, "=") && !slices.Contains(s.Env, names.Foreign(v)) {
			add("env "+v, "a variable of yours")
		}
	}
	return list, confined
}

// fromProject returns where a path leads from the directory of the project, in which hosts
// start its servers.
func (w *wrapping) fromProject(dir string) string {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(w.file.project, dir)
	}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	return filepath.Clean(dir)
}

// broadRoot returns why a root gives a server more than it should have; "": it does not.
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
	rights, err := rules.ParseMode(spec.Mode)
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
