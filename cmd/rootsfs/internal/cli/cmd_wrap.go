package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostconfig"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/rootspec"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

const wrapLong = `Rewrite the configuration of an MCP host, so that the servers that it starts run
through "rootsfs run" and reach nothing but their roots. HOSTCONFIG is claude-desktop,
claude-code, vscode, cursor, windsurf, gemini, cline, zed, codex, opencode, or a file
in the format of one of them. The change is shown, and written only after you said
yes; everything else stays byte for byte, and a copy is kept. --undo takes the change
back, server by server if the file was changed since.

Without --root, a server gets the files and directories that its own arguments and
variables name, read-only. The variables of its "env" pass; others need --env. Servers
that npx or uvx fetch need --net; --home keeps what they fetched. Servers reached over
HTTP, and container tools, are left alone. Quit a host that writes the file itself
(Claude Code does) before, and start it again after.`

const wrapExamples = `  rootsfs wrap claude-desktop
  rootsfs wrap .vscode/mcp.json --server files --root '${workspaceFolder}:rw'
  rootsfs wrap ~/.claude.json --net --dry-run
  rootsfs wrap claude-desktop --undo`

func (a *app) newWrapCmd() *cobra.Command {
	f := &wrapFlags{}
	cmd := &cobra.Command{
		Use:     "wrap HOSTCONFIG",
		Short:   "Make an MCP host start its servers confined",
		Long:    wrapLong,
		Example: wrapExamples,
		Args:    argCount(1, 1, "the name of a host, or of its configuration file,"),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.wrap(f, args[0]) },
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return hostconfig.Known(), cobra.ShellCompDirectiveDefault // files, too
		},
	}
	f.add(cmd)
	a.jsonFlag(cmd)
	return cmd
}

// wrapFlags are the flags of `rootsfs wrap`.
type wrapFlags struct {
	roots, servers, env []string
	program, home       string
	net                 bool
	undo, dryRun, yes   bool
	programGiven        bool              // --rootsfs is given
	flagRoots           []hostconfig.Root // roots of --root
	// fetchedHome is the directory for the HOMEs of servers that a fetcher, such as npx or uvx,
	// starts. If fetchedHome is set, such servers get the network, too. "": they are treated like
	// the others.
	fetchedHome string
}

func (f *wrapFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringArrayVar(&f.roots, "root", nil, "give the servers this root: `SPEC` is [NAME=]PATH[:MODE]; repeatable (default: the paths in their own arguments)")
	fs.StringArrayVar(&f.servers, "server", nil, "only the server of this `name`; repeatable (default: all)")
	fs.StringArrayVar(&f.env, "env", nil, "pass this variable as well: `NAME[=VALUE]`; repeatable")
	fs.BoolVar(&f.net, "net", false, "give the servers the network")
	pathVar(fs, &f.home, "home", "keep each server's HOME, with what npx or uvx fetched, in `directory`/NAME (default: a new one at each start)")
	pathVar(fs, &f.program, "rootsfs", "`path` of rootsfs to write (default: of this program)")
	fs.BoolVar(&f.undo, "undo", false, "take the change back")
	fs.BoolVar(&f.dryRun, "dry-run", false, "show the change, and do not write it")
	fs.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	completeFlag(cmd, "root", cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs))
}

// check refuses flags that make no sense. It makes the paths of --root, --home and --rootsfs
// absolute where possible, because the host starts its servers in another directory.
func (f *wrapFlags) check() error {
	switch {
	case f.undo && (len(f.roots) > 0 || len(f.env) > 0 || f.net || f.home != ""):
		return usage(errors.New("--undo cannot be combined with --root, --env, --home or --net: leave those out"))
	case f.dryRun && f.yes:
		return usage(errors.New("--dry-run and --yes cannot be combined: use one of them"))
	}
	for _, v := range f.env {
		if name, _, _ := strings.Cut(v, "="); name == "" || strings.IndexByte(v, 0) >= 0 {
			return usage(fmt.Errorf("--env %s: write NAME or NAME=VALUE", names.Quote(v)))
		}
	}
	f.programGiven = f.program != ""
	var err error
	if f.home != "" {
		if f.home, err = filepath.Abs(f.home); err != nil {
			return usage(fmt.Errorf("--home: %w", err))
		}
	}
	if f.program, err = wrapProgram(f.program); err != nil {
		return err
	}
	f.flagRoots, err = wrapSpecs(f.roots)
	return err
}

// wrapping is one change of a host's file: servers are wrapped, or with --undo unwrapped.
type wrapping struct {
	*wrapFlags
	file *hostFile
	conf *hostconfig.Config
	own  *config.Config // the owner's configuration; nil with --undo
	// ceiling is that of this machine; nil with --undo.
	ceiling *config.Ceiling
	doc     []byte // the new contents of the file
	res     wrapResult
	// exact is the backup whose contents undoing restores, if there is one.
	exact string
	first string // the oldest backup, for undoing
}

func (a *app) wrap(f *wrapFlags, arg string) error {
	if err := f.check(); err != nil {
		return err
	}
	w, err := planHost(f, arg)
	if err != nil {
		return err
	}
	return a.finishWrap(w)
}

// unwrittenError is an error after which a host's file is as it was. Its text adds that nothing was
// written. `rootsfs setup` shows the text of the wrapped error alone.
type unwrittenError struct{ error }

func (e unwrittenError) Error() string { return e.error.Error() + "; nothing was written" }

func (e unwrittenError) Unwrap() error { return e.error }

// planHost reads a host's file and plans the new contents of the file. It writes nothing.
func planHost(f *wrapFlags, arg string) (w *wrapping, err error) {
	w = &wrapping{wrapFlags: f}
	if w.file, err = openHostFile(arg); err != nil {
		return nil, err
	}
	if w.conf, err = hostconfig.Parse(w.file.path, w.file.doc, f.program); err != nil {
		return nil, usage(unwrittenError{fmt.Errorf("%s: %w", quoteIfNeeded(w.file.path), err)})
	}
	w.res = wrapResult{File: w.file.path, Format: string(w.conf.Format), Undo: f.undo}
	if w.file.target != w.file.path {
		w.res.Target = w.file.target
	}
	if st, ok := w.file.info.Sys().(*syscall.Stat_t); ok {
		w.res.Links = int(st.Nlink) - 1
	}
	if !f.undo {
		if w.own, _, err = config.LoadFlag(""); err != nil {
			return nil, usage(fmt.Errorf("%w; nothing was written: which variables and names your secrets have must be known", err))
		}
		if w.ceiling, err = config.LoadCeiling(); err != nil {
			return nil, session.CeilingError(err)
		}
	}
	if err := w.checkServers(); err != nil {
		return nil, err
	}
	var flags map[*hostconfig.Server]hostconfig.RunFlags
	if f.undo {
		w.doc, err = w.planUndo()
	} else {
		w.doc, flags = w.planWrap()
	}
	if err != nil {
		return nil, err
	}
	after, err := w.verify(w.doc, flags)
	if err != nil {
		return nil, err
	}
	w.res.Changed, w.res.Diff = !bytes.Equal(w.doc, w.file.doc), w.diff(after)
	return w, nil
}

// finishWrap shows the change, asks whether to make it, and makes it.
func (a *app) finishWrap(w *wrapping) error {
	if !a.JSON {
		a.printWrapping(w)
	}
	if err := a.writeFile(w); err != nil {
		return err
	}
	if err := a.report(w.res, func() { a.printWritten(w) }); err != nil {
		return err
	}
	if left := w.notUnwrapped(); len(left) > 0 {
		from := ""
		if w.first != "" {
			from = ", or take it from " + quoteIfNeeded(w.first)
		}
		return fmt.Errorf("not undone: %s; edit it there%s", strings.Join(left, ", "), from)
	}
	return nil
}

// writeFile asks whether to make the change (except with --yes), and makes it. It does nothing if
// there is no change, or with --dry-run.
func (a *app) writeFile(w *wrapping) (err error) {
	if !w.res.Changed || w.dryRun {
		return nil
	}
	if !w.yes {
		again := ""
		if a.JSON || !isTerminal(a.Stdout) {
			again = w.res.Diff.Raw()
		}
		if err := confirm(again, "Write this to "+w.file.displayPath()+"?"); err != nil {
			return fmt.Errorf("nothing was changed: %w", err)
		}
	}
	w.res.Backup, err = w.file.replace(w.doc, w.exact)
	w.res.Written = err == nil
	return err
}

// checkServers refuses a --server that the file does not have. Of the selected servers, it refuses
// one that cannot be read and, except with --undo, one that the host starts with a variable that
// rootsfs itself obeys.
func (w *wrapping) checkServers() error {
	for _, name := range w.servers {
		if slices.ContainsFunc(w.conf.Servers, func(s *hostconfig.Server) bool { return s.Name.Raw() == name }) {
			continue
		}
		var have []string
		for _, s := range w.conf.Servers {
			have = append(have, names.Quote(s.Name))
		}
		slices.Sort(have)
		all := cmp.Or(strings.Join(slices.Compact(have), ", "), "none")
		return usage(fmt.Errorf("--server %s: %s has no such server; it has %s", names.Quote(name), quoteIfNeeded(w.file.path), all))
	}
	for _, s := range w.conf.Servers {
		err := s.Err
		if list := w.steers(s); err == nil && !w.undo && s.Kind == hostconfig.Stdio && len(list) > 0 {
			err = fmt.Errorf("server %v sets %s, which rootsfs itself obeys, outside of any confinement: remove it from the file, and give it to the server alone with --env NAME=VALUE",
				s, names.Quote(list[0]))
		}
		if err != nil && w.isSelected(s) {
			return usage(fmt.Errorf("%s: %w; nothing was written (--server NAME leaves the others out)", quoteIfNeeded(w.file.path), err))
		}
	}
	return nil
}

func (w *wrapping) isSelected(s *hostconfig.Server) bool {
	return len(w.servers) == 0 || slices.Contains(w.servers, s.Name.Raw())
}

// planWrap decides about each server and returns the new document. flags has the flags of
// `rootsfs run` for each server that is now wrapped.
func (w *wrapping) planWrap() (doc []byte, flags map[*hostconfig.Server]hostconfig.RunFlags) {
	place := w.file.machine()
	flags = map[*hostconfig.Server]hostconfig.RunFlags{}
	for _, s := range w.conf.Servers {
		r := wrapServer{Name: s.Name, Project: s.Project, Line: s.Line}
		switch {
		case !w.isSelected(s):
			r.State = "not named"
		case s.Kind == hostconfig.Wrapped:
			w.judge(s, &r)
		case notStarted[s.Kind] != "":
			r.State = notStarted[s.Kind]
		case s.IsContainer() && len(w.servers) == 0:
			r.State = "container"
		default:
			flags[s] = w.chooseFlags(s, place, &r)
		}
		if s.HeadersHelper && r.State != "not named" {
			r.Notes = append(r.Notes, `NOT confined: its "headersHelper" is a command that the host itself runs`)
		}
		w.res.Servers = append(w.res.Servers, r)
	}
	return w.conf.Wrap(w.program, flags), flags
}

// chooseFlags chooses the flags of `rootsfs run` for a server, and adds them to the server's entry
// r in the report.
func (w *wrapping) chooseFlags(s *hostconfig.Server, place hostconfig.Machine, r *wrapServer) hostconfig.RunFlags {
	p := w.conf.Propose(s, place)
	r.State, r.Net, r.Notes = "wrap", w.net, names.List[names.Text](p.Notes)
	roots := w.flagRoots
	if len(roots) == 0 {
		roots = p.Roots
	}
	for _, root := range roots {
		w.addRoot(r, root)
	}
	r.Env = names.List[names.Foreign](s.Env)
	for _, v := range w.env {
		name, _, _ := strings.Cut(v, "=")
		r.Env = slices.DeleteFunc(r.Env, func(e names.Foreign) bool { return e.Raw() == name })
		r.Env = append(r.Env, names.Foreign(v))
	}
	r.Fetcher = p.Fetcher
	base := w.home
	if base == "" && w.fetchedHome != "" && p.Fetcher != "" {
		base, r.Net = w.fetchedHome, true
	}
	if err := w.ceiling.CheckWholeNet(); r.Net && err != nil {
		r.Net, r.Notes = false, append(r.Notes, names.Textf("--net is left out: %v", err))
	}
	r.Home = w.homeOf(s, base)
	h := hostconfig.RunFlags{Name: runName(s), Env: names.List[string](r.Env), Home: r.Home, Net: r.Net}
	if !w.file.isOwners() {
		r.Notes = append(r.Notes, w.notesFor(h.Name)...)
	}
	for _, root := range r.Roots {
		h.Roots = append(h.Roots, root.Spec.Raw())
	}
	return h
}

// addRoot adds to r a root and the place where its path leads. It leaves out, with a note, a root
// that `rootsfs run` would refuse. The reason is a link in the path that others can change, a path
// to a place of rootsfs itself, or the ceiling of this machine.
func (w *wrapping) addRoot(r *wrapServer, root hostconfig.Root) {
	isProposed := len(w.flagRoots) == 0
	one := wrapRoot{Spec: names.Foreign(root.Spec), From: names.Text(root.From), Outside: isProposed && w.file.outside(root.Path)}
	if root.Path != "" {
		resolved, err := writabledirs.Resolve(root.Path)
		var link *rules.LinkError
		switch {
		case errors.As(err, &link):
			r.Notes = append(r.Notes, names.Textf("the root %s is left out: %v", names.Quote(root.Spec), link))
			return
		case err == nil && resolved != root.Path:
			one.Resolved, one.Outside = names.Foreign(resolved), isProposed && w.file.outside(resolved)
		}
		one.leads = cmp.Or(resolved, root.Path)
		if err := w.checkRoot(one.leads, root.Spec); err != nil {
			r.Notes = append(r.Notes, names.Textf("the root %s is left out: %v", names.Quote(root.Spec), err))
			return
		}
		if isProposed && slices.ContainsFunc(r.Roots, func(have wrapRoot) bool { return have.leads == one.leads }) {
			return // one directory under two names
		}
	}
	r.Roots = append(r.Roots, one)
}

// checkRoot returns an error if no session may have the root of spec. place is the directory of the
// root, as a path without links.
func (w *wrapping) checkRoot(place, spec string) error {
	keeps, err := session.RootReservedPaths("", nil)
	if err != nil {
		return err
	}
	rights := guard.ReadOnly
	if parsed, err := rootspec.Parse(spec); err == nil && parsed.Mode != "" {
		if rights, err = rules.ParseMode(parsed.Mode); err != nil {
			return err
		}
	}
	bounds := rules.RootRules{AllowSystem: true, AllowRootDir: true, ReservedPaths: keeps}
	if w.ceiling != nil {
		bounds.Ceilings = w.ceiling.Roots
	}
	return bounds.Check(place, rights)
}

// homeOf returns a directory below base for this server alone: servers that share a HOME can
// change each other's programs.
func (w *wrapping) homeOf(s *hostconfig.Server, base string) string {
	if base == "" {
		return ""
	}
	dir := filepath.Join(base, strings.TrimLeft(plainName(s), ".")+"-")
	path := strings.TrimSuffix(dir, "-")
	for n := 2; path == base || strings.HasSuffix(path, "/") || slices.ContainsFunc(w.res.Servers, func(r wrapServer) bool { return r.Home == path }); n++ {
		path = dir + strconv.Itoa(n)
	}
	return path
}

// plainName returns the server's name with a hyphen for each character that is not an ASCII
// letter, a digit, a dot or an underscore.
func plainName(s *hostconfig.Server) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '.' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '-'
	}, s.Name.Raw())
}

// runName returns the name for the server's runs. The owner's [[net]] and [[secret]] blocks refer
// to this name. So it is made from the name that the owner reads in the host's configuration, and
// not from the name of the server's program, which a project chooses.
func runName(s *hostconfig.Server) string {
	name := strings.TrimLeft(plainName(s), "._-")
	return cmp.Or(name[:min(len(name), maxRunName)], "server")
}

// maxRunName leaves room for a number in the name of a session.
const maxRunName = 56

// notesFor returns a note for each secret, and for each [[net]] block, that the owner's
// configuration gives to runs of this name.
func (w *wrapping) notesFor(name string) (notes []names.Text) {
	for _, s := range w.own.Secrets {
		if s.Subject == name {
			notes = append(notes, names.Textf("LOOK: your configuration gives runs named %s the secret %s, and its file has chosen this name", names.Quote(name), s.Name))
		}
	}
	for _, n := range w.own.Net {
		if n.Subject == name {
			notes = append(notes, names.Textf("LOOK: your configuration gives runs named %s hosts, and its file has chosen this name", names.Quote(name)))
		}
	}
	return notes
}

// steers returns the settings of a server in the host's file that rootsfs itself would obey: see
// hostconfig.Server.SteeringSettings. The file may not have them.
func (w *wrapping) steers(s *hostconfig.Server) []string {
	var secrets []string
	if w.own != nil {
		for i := range w.own.Secrets {
			secrets = append(secrets, w.own.Secrets[i].Name)
		}
	}
	return s.SteeringSettings(w.file.isOwners(), secrets...)
}

// verify parses the new document before it is written: a file that the host cannot read would
// cost the host all its servers. flags has the servers that the new document must wrap.
func (w *wrapping) verify(doc []byte, flags map[*hostconfig.Server]hostconfig.RunFlags) (*hostconfig.Config, error) {
	c, err := hostconfig.Parse(w.file.path, doc, w.program)
	if err == nil && len(c.Servers) == len(w.conf.Servers) {
		for i, s := range c.Servers {
			if _, wrapped := flags[w.conf.Servers[i]]; wrapped && s.Kind != hostconfig.Wrapped {
				err = fmt.Errorf("server %v is not wrapped by %s; use another --rootsfs", s, names.Quote(w.program))
			}
		}
	}
	if err != nil {
		return nil, unwrittenError{fmt.Errorf("%s: with the change it would be wrong: %w", quoteIfNeeded(w.file.path), err)}
	}
	return c, nil
}
