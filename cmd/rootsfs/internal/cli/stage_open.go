package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// chosenStage is the stage that a command line selects.
type chosenStage struct {
	vfs.StageSummary
	dir   string   // working directory, without links
	flag  string   // --root for command lines that select the same stage; "": none
	paths []string // below the root; none: everything
}

// isInside reports whether the working directory lies in the root.
func (c *chosenStage) isInside() bool { return names.Under(c.dir, c.Meta.Path) }

// displayPath returns a path below the root in the form of the command line.
func (c *chosenStage) displayPath(rel names.Foreign) names.Foreign {
	if c.isInside() {
		if to, err := filepath.Rel(c.dir, filepath.Join(c.Meta.Path, rel.Raw())); err == nil {
			return names.Foreign(to)
		}
	}
	return names.Foreign(c.Meta.Root) + "/" + rel
}

// command returns a command line for the same stage.
func (c *chosenStage) command(words ...names.Foreign) names.Text {
	return c.line(append(commandWords{"stage"}, words...))
}

// line returns a command line of rootsfs for the same stage. The words in line begin with the
// command's name, for example "stage".
func (c *chosenStage) line(line commandWords) names.Text {
	if c.flag != "" {
		line = append(line, "--root", names.Foreign(c.flag))
	}
	return line.line()
}

// stageText returns the path of a stage's root and the number of names that the stage touches, for
// people.
func stageText(s *vfs.StageSummary) string {
	return fmt.Sprintf("%s: %s", quoteIfNeeded(s.Meta.Path), touchedText(s.Changed))
}

// chooseStage finds the stage of --root, of the paths or of the working directory (see
// candidateStages). A stage without changes that only keeps checkpoints does not count.
func chooseStage(root string, paths []string) (*chosenStage, error) {
	return chooseStageOf(root, paths, func(s *vfs.StageSummary) bool { return !hasOnlyCheckpoints(s) })
}

// mustBeNamed returns an error if this stage was chosen only because there is no other: the command
// line does not name it, and the working directory is not in its root. The user may not have meant
// this stage.
func (c *chosenStage) mustBeNamed(paths []string) error {
	if c.flag != "" || len(paths) > 0 || c.isInside() {
		return nil
	}
	return usage(fmt.Errorf("the working directory is in no staged root; to use the stage of %s, write --root %s",
		quoteIfNeeded(c.Meta.Path), names.ShellWord(filepath.Base(c.Dir))))
}

// chooseAnyStage is chooseStage for a command about checkpoints: a stage that only keeps
// checkpoints counts, too.
func chooseAnyStage(root string) (*chosenStage, error) {
	return chooseStageOf(root, nil, func(*vfs.StageSummary) bool { return true })
}

// hasOnlyCheckpoints reports whether a stage exists only for its checkpoints: it has no changes,
// nobody has it open, and it is not damaged.
func hasOnlyCheckpoints(s *vfs.StageSummary) bool {
	return s.Changed == 0 && len(s.Checkpoints) > 0 && !s.Held && s.Damaged == ""
}

// chooseStageOf is chooseStage among the stages that counts accepts.
func chooseStageOf(root string, paths []string, counts func(*vfs.StageSummary) bool) (*chosenStage, error) {
	store, err := session.Stages()
	if err != nil {
		return nil, err
	}
	all, err := vfs.Stages(store)
	if err != nil {
		return nil, err
	}
	dir, err := workingDir()
	if err != nil {
		return nil, err
	}
	dir = session.Resolve(dir)
	candidates, err := candidateStages(all, root, dir, paths)
	// DeleteFunc gets a copy, because it overwrites its argument, and candidates can be the slice
	// all.
	candidates = slices.DeleteFunc(slices.Clone(candidates), func(s vfs.StageSummary) bool { return !counts(&s) })
	if len(candidates) > 1 {
		candidates = likeliest(candidates)
	}
	switch {
	case err != nil:
		return nil, err
	case len(candidates) == 0:
		return nil, noStage(root, paths, all)
	case len(candidates) > 1:
		return nil, usage(fmt.Errorf("several stages can be meant: %s; name one with --root", stageNames(candidates)))
	}
	c := &chosenStage{StageSummary: candidates[0], dir: dir, flag: root}
	for _, p := range paths {
		rel, err := c.below(p)
		if err != nil {
			return nil, err
		}
		if rel == "" {
			c.paths = nil // everything
			break
		}
		c.paths = append(c.paths, rel)
	}
	return c, nil
}

// candidateStages returns the stages that a command line can select. The first of these rules that
// fits decides, even if no stage is left:
//   - with --root, the stages that root names
//   - if the first path is absolute, the stages whose root is or contains this path
//   - if dir, the working directory, lies in staged roots, the stages of these roots
//   - if there are paths, the stages whose root has the name with which the first path begins
//   - all stages
func candidateStages(all []vfs.StageSummary, root, dir string, paths []string) ([]vfs.StageSummary, error) {
	filter := func(accepts func(s *vfs.StageSummary) bool) (out []vfs.StageSummary) {
		for i := range all {
			if accepts(&all[i]) {
				out = append(out, all[i])
			}
		}
		return out
	}
	if root != "" {
		at, err := expandHome(root)
		if err != nil {
			return nil, usage(err)
		}
		if isTrashPath(at) {
			at = session.Resolve(at)
			return filter(func(s *vfs.StageSummary) bool { return s.Meta.Path == at }), nil
		}
		if exact := filter(func(s *vfs.StageSummary) bool { return filepath.Base(s.Dir) == root }); len(exact) > 0 {
			return exact, nil
		}
		return filter(func(s *vfs.StageSummary) bool { return string(s.Meta.Root) == root }), nil
	}
	around := func(path string) []vfs.StageSummary {
		return filter(func(s *vfs.StageSummary) bool { return names.Under(path, s.Meta.Path) })
	}
	if len(paths) > 0 && filepath.IsAbs(paths[0]) {
		return around(resolveParent(paths[0])), nil
	}
	if inside := around(dir); len(inside) > 0 {
		return inside, nil
	}
	if len(paths) > 0 {
		first, _, _ := strings.Cut(paths[0], "/")
		return filter(func(s *vfs.StageSummary) bool { return string(s.Meta.Root) == first }), nil
	}
	return all, nil
}

// likeliest returns the stages with more than checkpoints. If there are none, and all stages are of
// one directory, likeliest returns the stage that changed last. Otherwise it returns all stages.
func likeliest(list []vfs.StageSummary) []vfs.StageSummary {
	if live := slices.DeleteFunc(slices.Clone(list), func(s vfs.StageSummary) bool { return hasOnlyCheckpoints(&s) }); len(live) > 0 {
		return live
	}
	latest := list[0]
	for _, s := range list[1:] {
		if s.Meta.Path != latest.Meta.Path {
			return list
		}
		if s.Last.After(latest.Last) {
			latest = s
		}
	}
	return []vfs.StageSummary{latest}
}

// resolveParent follows the links in a path, except a link at the end of the path.
func resolveParent(path string) string {
	path = filepath.Clean(path)
	return filepath.Join(session.Resolve(filepath.Dir(path)), filepath.Base(path))
}

// below turns a path of the command line into a path below the root; "": the root itself.
func (c *chosenStage) below(path string) (string, error) {
	at := filepath.Clean(path)
	switch {
	case path == "": // mostly from an unset variable of a script
		return "", usage(errors.New("a path is empty: leave it out, or write . for everything below the working directory"))
	case filepath.IsAbs(at):
		at = resolveParent(at)
	case c.isInside():
		at = resolveParent(filepath.Join(c.dir, at))
	default:
		first, rest, _ := strings.Cut(at, "/")
		if first != string(c.Meta.Root) {
			return "", usage(fmt.Errorf("%s is not in root %s: write %s",
				names.Quote(path), names.Quote(string(c.Meta.Root)), names.ShellWord(string(c.Meta.Root)+"/PATH")))
		}
		at = filepath.Join(c.Meta.Path, rest)
	}
	rel, err := filepath.Rel(c.Meta.Path, at)
	if err != nil || !filepath.IsLocal(rel) {
		return "", usage(fmt.Errorf("%s lies outside of the root %s", names.Quote(path), names.Quote(c.Meta.Path)))
	}
	if rel == "." {
		return "", nil
	}
	return rel, nil
}

func noStage(root string, paths []string, all []vfs.StageSummary) error {
	text := "nothing is staged"
	if root != "" {
		text += " of a root " + names.Quote(root)
	} else if len(paths) > 0 {
		text += " at " + names.Quote(paths[0])
	}
	kept := slices.ContainsFunc(all, func(s vfs.StageSummary) bool { return hasOnlyCheckpoints(&s) })
	if all = slices.DeleteFunc(all, func(s vfs.StageSummary) bool { return hasOnlyCheckpoints(&s) }); len(all) > 0 {
		text += fmt.Sprintf("; there is: %s", stageNames(all))
	} else if kept {
		text += "; what was is in a checkpoint: rootsfs stage list -v"
	}
	return &control.Error{Class: control.NoSuch, Text: text}
}

// nothingAt returns a text that says that nothing is staged at the first of paths. Without paths,
// the text says that the stage has no changes.
func (o *openStage) nothingAt(paths []string) string {
	if len(paths) == 0 {
		return "nothing has changed in the stage of " + quoteIfNeeded(o.Meta.Path)
	}
	return fmt.Sprintf("nothing is staged at %s; what is: %s", quoteIfNeeded(paths[0]), o.command("diff", "--name-only"))
}

// stageNames lists stages, for an error.
func stageNames(list []vfs.StageSummary) string {
	var out []string
	for i := range list[:min(len(list), 5)] {
		out = append(out, fmt.Sprintf("%s (%s)", quoteIfNeeded(filepath.Base(list[i].Dir)), quoteIfNeeded(list[i].Meta.Path)))
	}
	if more := len(list) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, ", ")
}

// openStage is a stage that the command can use until close. If c is set, a session has the
// stage open and does the work. Otherwise this process has the stage open.
type openStage struct {
	*chosenStage
	c    *control.Client
	reg  *guard.Registry
	tree *vfs.Tree
}

// askStage sends the request in to the session that has the stage open. Without such a session,
// askStage calls here, a function that does the same work in this process.
func askStage[In, Out any](ctx context.Context, o *openStage, v control.Verb[In, Out], here func(context.Context, *guard.Registry, *vfs.Tree, In) (Out, error), in In) (Out, error) {
	if o.c != nil {
		return v.Call(ctx, o.c, in)
	}
	return here(ctx, o.reg, o.tree, in)
}

// request returns a request about paths below the root.
func (o *openStage) request(paths []string) control.StageRequest {
	return control.StageRequest{Store: o.Dir, Paths: control.StagePaths(paths)}
}

// changes lists the changes at and below paths.
func (o *openStage) changes(ctx context.Context, paths []string) ([]vfs.StageChange, error) {
	a, err := askStage(ctx, o, control.ListStage, session.ListStage, o.request(paths))
	return a.Result().Done, err
}

// closingTime is how long a command waits for a stage that a session or another command may be
// closing.
var closingTime = 10 * time.Second // tests replace it

// open opens the stage. While a process that takes no requests has the stage open, open waits for
// up to closingTime.
func (c *chosenStage) open(ctx context.Context) (*openStage, error) {
	for end := time.Now().Add(closingTime); ; {
		o, err := c.openNow(ctx)
		if !errors.Is(err, names.Locked) || time.Now().After(end) {
			return o, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(20 * time.Millisecond):
		}
		for _, s := range everyStage() {
			if s.Dir == c.Dir {
				c.StageSummary = s // another session may have continued the stage
			}
		}
	}
}

// openNow opens the stage without waiting. If a process that takes no requests has the stage open,
// the error is Locked. If a session has the stage open, an apply uses the rules of the session, and
// the session's setting for the trash. Otherwise an apply uses the rules of the stage's last
// session together with the rules that the configuration has for the root now, or with the built-in
// rules if the configuration does not have the root. The configuration then decides, too, whether
// replaced files go to the trash.
func (c *chosenStage) openNow(ctx context.Context) (*openStage, error) {
	if c.Held {
		if o, err := c.ofSession(ctx); !errors.Is(err, names.Locked) {
			return o, err
		}
	}
	store, err := session.Stages()
	if err != nil {
		return nil, err
	}
	conf, output, err := configuredRoot(&c.StageSummary)
	if err != nil {
		return nil, err
	}
	reg := guard.NewRegistry(guard.Config{Opener: vfs.StagingOpener(store, "")})
	_, err = reg.Grant(ctx, guard.Grant{
		Root: c.Meta.Root, Dir: names.Foreign(c.Meta.Path), Store: c.Dir, Origin: "command line", AllowSystem: true, AllowRootDir: true,
		Policy: guard.Policy{Rights: guard.ReadWrite | guard.Stage, Patterns: stricter(&conf.Patterns, c.Meta.Patterns), Trash: conf.Trash},
	})
	if errors.Is(err, names.Locked) { // another process has opened it since c was made
		return c.ofSession(ctx)
	}
	if err != nil {
		return nil, err
	}
	tree := vfs.New(reg)
	tree.SetStageOutput(output)
	return &openStage{chosenStage: c, reg: reg, tree: tree}, nil
}

// ofSession returns the stage as the session that has it open offers it to commands. If there is no
// such session, the error is Locked: another command has the stage open, or a session whose root
// has ended is closing the stage.
func (c *chosenStage) ofSession(ctx context.Context) (*openStage, error) {
	all, err := control.List()
	if err != nil {
		return nil, err
	}
	for _, in := range all {
		if in.Name != c.Meta.Session {
			continue
		}
		client := control.Dial(in)
		st, err := control.GetStatus.Call(ctx, client, control.None{})
		if err != nil {
			break // the session is ending
		}
		for i := range st.Roots {
			if s := st.Roots[i].Stage; s != nil && s.Store.Raw() == c.Dir {
				return &openStage{chosenStage: c, c: client}, nil
			}
		}
	}
	return nil, &guard.Error{Kind: names.Locked, Err: fmt.Errorf("the stage of %s is in use by another command, or by a session that is ending: try again", names.Quote(c.Meta.Path))}
}

// close closes the stage and writes the stage's changes to the disk. It does nothing if a session
// has the stage open.
func (o *openStage) close(ctx context.Context) error {
	if o.c != nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	_, err := o.reg.RevokeAll(ctx)
	return errors.Join(err, o.reg.AwaitStages(ctx))
}

// configuredRoot returns the root of a stage as the configuration has it, or the zero Root if the
// configuration does not have the root. It also returns the configured patterns of build output.
func configuredRoot(s *vfs.StageSummary) (config.Root, vfs.StageOutput, error) {
	conf, path, err := config.LoadFlag("")
	if err != nil {
		return config.Root{}, vfs.StageOutput{}, badConfig(path, err)
	}
	output, err := session.StageOutput(conf)
	if err != nil {
		return config.Root{}, output, err
	}
	for _, set := range append(slices.Collect(maps.Values(conf.Profiles)), conf.Roots) {
		for _, r := range set {
			if r.Name == s.Meta.Root && session.Resolve(r.Path) == s.Meta.Path {
				return r, output, nil
			}
		}
	}
	return config.Root{}, output, nil
}

// completeChanges offers the changed paths in the stage of the working directory or of --root.
func completeChanges(root *string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return completeWords(func(ctx context.Context) (out []string, err error) {
			c, err := chooseStage(*root, nil)
			if err != nil {
				return nil, err
			}
			o, err := c.open(ctx)
			if err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, o.close(ctx)) }()
			list, err := o.changes(ctx, nil)
			list, units := vfs.ReviewStage(list, nil)
			for i := range units {
				out = append(out, cobra.CompletionWithDesc(c.displayPath(units[i].Path).Raw(), outputText(&units[i])))
			}
			for i := range list {
				out = append(out, cobra.CompletionWithDesc(c.displayPath(list[i].Path).Raw(), classWords[list[i].Class]))
			}
			return out, err
		})
	}
}

// isRootGone reports whether open found no directory at the root's path, or another directory than
// the stage's.
func isRootGone(err error) bool {
	return errors.Is(err, names.NotExist) || errors.Is(err, names.Conflict)
}
