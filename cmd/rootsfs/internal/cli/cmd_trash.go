package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/rootspec"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

const trashLong = `List, restore and remove for good what programs removed from roots with a trash. A root
has one with mount --trash, or trash = { on = true } in the configuration. It keeps what
is removed in its directory .rootsfs-trash, which no server sees. The oldest goes when
the trash is full or its age is reached.

--root names a root of the session. A path, one with a slash in it, names the
directory of a root itself, and needs no session.`

const trashExamples = `  rootsfs trash list
  rootsfs trash restore 4kq2jx5n
  rootsfs trash empty --older-than 72h`

func (a *app) newTrashCmd() *cobra.Command {
	return group(&cobra.Command{
		Use:     "trash",
		Short:   "List, restore and empty what was removed",
		Long:    trashLong,
		Example: trashExamples,
	}, newTrashListCmd(a), newTrashRestoreCmd(a), newTrashEmptyCmd(a))
}

// trashRootFlag adds --root and --session.
func trashRootFlag(a *app, cmd *cobra.Command, root *string) {
	a.rootFlag(cmd, root, "only this `root`: its name, or the path of its directory, for which no session is needed")
	a.ofSession(cmd)
}

// trashPlace is the place of kept files: the roots of a session, or one directory, which this
// process opens as a root without a session.
type trashPlace struct {
	c    *control.Client // of the session; nil: without a session
	reg  *guard.Registry // nil: with a session
	tree *vfs.Tree       // nil: with a session
	root string          // the root's name in the session or in reg; "": every root of the session
}

// askTrash sends the request to the session. Without a session, it calls the function local, which
// does the same in this process.
func askTrash[In, Out any](ctx context.Context, t *trashPlace, v control.Verb[In, Out], local func(context.Context, *guard.Registry, *vfs.Tree, In) (Out, error), in In) (Out, error) {
	if t.c != nil {
		return v.Call(ctx, t.c, in)
	}
	return local(ctx, t.reg, t.tree, in)
}

// isTrashPath reports whether a --root is the path of a directory.
func isTrashPath(root string) bool {
	return strings.Contains(root, "/") || root == "." || root == ".." || root == "~"
}

// trashOf returns the place of the kept files for --root. If --root is a path, the built-in rules
// apply, because a server may have chosen the files in the trash and the paths recorded for these
// files. noDefaults turns the built-in rules off, and is an error if --root is not a path.
func (a *app) trashOf(ctx context.Context, root string, noDefaults bool) (*trashPlace, error) {
	if !isTrashPath(root) {
		if noDefaults {
			return nil, usage(errors.New("--no-default-policy is for a --root that is a path: the session's policy holds; restore with --to, or change it with: rootsfs policy set"))
		}
		c, err := a.client()
		return &trashPlace{c: c, root: root}, err
	}
	if a.Session != "" {
		return nil, usage(errors.New("--session and a path in --root cannot be combined: use one of them"))
	}
	g, err := fromSpec(rootspec.Spec{Path: root})
	if err != nil {
		return nil, err
	}
	g.Origin, g.AllowSystem, g.AllowRootDir = "command line", true, true
	g.Policy = guard.Policy{Rights: guard.ReadWrite, Patterns: guard.Patterns{NoDefaults: noDefaults}, Trash: rules.Trash{On: true}}
	t := &trashPlace{reg: guard.NewRegistry(guard.Config{Opener: vfs.Opener()}), root: string(g.Root)}
	t.tree = vfs.New(t.reg)
	_, err = t.reg.Grant(ctx, g)
	return t, err
}

const trashListLong = `Show what the trashes of a session's roots hold, root by root and the oldest first:
the id to restore it by, when, by which operation and server it was removed, its size,
and its path.`

const trashListExamples = `  rootsfs trash list
  rootsfs trash list --root ~/code --json`

func newTrashListCmd(a *app) *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "Show what is kept, the oldest first",
		Long:    trashListLong,
		Example: trashListExamples,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := a.trashOf(cmd.Context(), root, isTrashPath(root))
			if err != nil {
				return err
			}
			ans, err := askTrash(cmd.Context(), t, control.ListTrash, session.ListTrash, control.TrashRequest{Root: t.root})
			if err != nil {
				return err
			}
			return a.report(ans.Files, func() { a.printTrash(ans.Files, root) })
		},
	}
	trashRootFlag(a, cmd, &root)
	return cmd
}

func (a *app) printTrash(list []vfs.Trashed, root string) {
	if len(list) == 0 && root == "" {
		a.say("nothing is kept by the roots of the session; what stage apply replaced: rootsfs trash list --root PATH")
		return
	}
	if len(list) == 0 {
		a.say("nothing is kept")
		return
	}
	rows := [][]string{{"ID", "REMOVED", "BY", "FOR", "SIZE", "PATH"}}
	for i := range list {
		e := &list[i]
		path, whom := "(not known)", "-"
		if e.Path != "" {
			path = quoteIfNeeded(e.Root.Raw() + "/" + e.Rel())
		}
		if e.Subject != "" {
			whom = quoteIfNeeded(string(e.Subject))
		}
		rows = append(rows, []string{e.Short(), e.Time.Local().Format("2006-01-02 15:04:05"), names.Escape(e.Op), whom, sizeText(e.Size), path})
	}
	a.table(rows)
}

const trashRestoreLong = `Put a kept file back where it was, or, with --to, at another path below its root.
Nothing is replaced: move away first what has the path now. Nothing is put where the
rules hide, deny or protect it: those of the session, or, where --root is a path, the
built-in ones.`

const trashRestoreExamples = `  rootsfs trash restore 4kq2jx5n
  rootsfs trash restore 4kq2jx5n --to docs/old.md
  rootsfs trash restore --root ~/code 4kq2jx5n`

func newTrashRestoreCmd(a *app) *cobra.Command {
	var root, to string
	var noDefaults bool
	cmd := &cobra.Command{
		Use:     "restore ID",
		Short:   "Put a kept file back",
		Long:    trashRestoreLong,
		Example: trashRestoreExamples,
		Args:    argCount(1, 1, "an id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.trashOf(cmd.Context(), root, noDefaults)
			if err != nil {
				return err
			}
			req := control.RestoreRequest{Root: t.root, ID: args[0], To: to}
			ans, err := askTrash(cmd.Context(), t, control.RestoreTrash, session.RestoreTrash, req)
			if errors.Is(err, names.Permission) && isTrashPath(root) && !noDefaults {
				return fmt.Errorf("%w; put it elsewhere with --to, or, if you know the file, use --no-default-policy", err)
			} else if err != nil {
				return err
			}
			return a.report(ans, func() { a.say("restored: %s", quoteIfNeeded(ans.Root.Raw()+"/"+ans.Path.Raw())) })
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVar(&to, "to", "", "restore to this `path` below the root")
	cmd.Flags().BoolVar(&noDefaults, "no-default-policy", false, "with a path as --root: restore also where the built-in rules forbid it")
	trashRootFlag(a, cmd, &root)
	return cmd
}

const trashEmptyLong = `Remove kept files for good: the named ones, all, or those that were removed longer ago
than a duration; in every root of the session, or in that of --root.`

const trashEmptyExamples = `  rootsfs trash empty --all
  rootsfs trash empty --older-than 72h --root code
  rootsfs trash empty 4kq2jx5n`

func newTrashEmptyCmd(a *app) *cobra.Command {
	var root string
	var all bool
	var age time.Duration
	cmd := &cobra.Command{
		Use:     "empty [ID]... | --all | --older-than DURATION",
		Short:   "Remove kept files for good",
		Long:    trashEmptyLong,
		Example: trashEmptyExamples,
		Args: func(cmd *cobra.Command, args []string) error {
			if age < 0 {
				return usage(fmt.Errorf("--older-than %v: write a duration of 0 or more, such as 72h", age))
			}
			return oneOf("ids, --all and --older-than", "name what to remove for good, or use --all or --older-than; see: rootsfs trash list", len(args) > 0, all, cmd.Flags().Changed("older-than"))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.trashOf(cmd.Context(), root, isTrashPath(root))
			if err != nil {
				return err
			}
			req := control.EmptyRequest{Root: t.root, IDs: args, OlderThanMS: age.Milliseconds()}
			ans, err := askTrash(cmd.Context(), t, control.EmptyTrash, session.EmptyTrash, req)
			if err != nil {
				return err
			}
			return a.report(ans, func() { a.say("removed for good: %s, %s", plural(ans.Files, "file"), sizeText(ans.Bytes)) })
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&all, "all", false, "everything that is kept")
	cmd.Flags().DurationVar(&age, "older-than", 0, "files that were removed longer ago than this `duration`, such as 72h")
	trashRootFlag(a, cmd, &root)
	return cmd
}
