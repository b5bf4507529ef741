package deps

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// errorKinds returns the kinds of errors, in the order of guard/names/error.go.
func errorKinds(t *testing.T) (kinds []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(top(t), "guard/names/error.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		if typ, ok := g.Specs[0].(*ast.ValueSpec).Type.(*ast.Ident); !ok || typ.Name != "Kind" {
			continue
		}
		for _, s := range g.Specs {
			kinds = append(kinds, s.(*ast.ValueSpec).Names[0].Name)
		}
	}
	if len(kinds) < 20 {
		t.Fatalf("found only the kinds %v", kinds)
	}
	return kinds[:len(kinds)-1] // the last constant is the number of kinds
}

// kindIn returns the kind that an expression names, as names.Rate and names.Rate.String() name
// Rate. It returns "" if the expression names no kind.
func kindIn(e ast.Expr, kinds []string) string {
	if call, ok := e.(*ast.CallExpr); ok {
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "String" {
			e = sel.X
		}
	}
	if sel, ok := e.(*ast.SelectorExpr); ok && identName(asIdent(sel.X)) == "names" && slices.Contains(kinds, sel.Sel.Name) {
		return sel.Sel.Name
	}
	return ""
}

func asIdent(e ast.Expr) (*ast.Ident, bool) {
	x, ok := e.(*ast.Ident)
	return x, ok
}

// kindsIn returns the kinds by which a function decides: the kinds in its cases and comparisons, in
// the arguments of calls such as errors.Is and slices.Contains, and in the keys of its tables.
func kindsIn(fn ast.Node, kinds []string) (named []string) {
	add := func(list ...ast.Expr) {
		for _, e := range list {
			if k := kindIn(e, kinds); k != "" && !slices.Contains(named, k) {
				named = append(named, k)
			}
		}
	}
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CaseClause:
			add(n.List...)
		case *ast.BinaryExpr:
			if n.Op == token.EQL || n.Op == token.NEQ {
				add(n.X, n.Y)
			}
		case *ast.KeyValueExpr:
			add(n.Key)
		case *ast.CallExpr:
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok && (sel.Sel.Name == "Is" || sel.Sel.Name == "Contains") {
				add(n.Args...)
			}
		}
		return true
	})
	return named
}

// consumer is a function that decides by the kind of an error.
type consumer struct {
	fn     string
	others string // what it does with a kind that it does not name
}

// consumers are the columns of decided.
var consumers = []consumer{
	{"broker.filesError", "a peer gets the number of the kind's code"},
	{"broker/tools.rpc", "a client gets the number of the kind's code, or CodeInvalidParams for a missing file or a malformed request"},
	{"broker/tools.remedy", "the error's text says what a client can do"},
	{"cmd/rootsfs/internal/control.classOf", "the exit code is that of a failure, or of a mistake in the command"},
	{"cmd/rootsfs/internal/session.noteRefusal", "allow --last has nothing to allow"},
	{"cmd/rootsfs/internal/cli.observe", "run --learn learns nothing from it"},
	{"cmd/rootsfs/internal/cli.remedy", "why proposes no command"},
	{"cmd/rootsfs/internal/cli.noteMissingRights", "why names no right that is missing"},
	{"cmd/rootsfs/internal/cli.limitsOf", "why names no limit"},
	{"guard.Explanation", "the explanation names no missing right, no link that leaves the root and no root whose limit was reached"},
	{"guard.countRefusal", "a refusal of this kind counts against the server, unless Kind.About is AboutMoment"},
	{"guard.isOrdinary", "the error is on record"},
	{"vfs.isFinal", "the upload can be committed again"},
	{"vfs/watch.work", "the watch goes on, unless the error is about its root"},
	{"vfs/watch.watchAnew", "vfs/watch.work decides"},
}

// decided has a row for each kind. A row has a mark for each consumer, in the order of consumers: x
// if the consumer names the kind, and a dot if the text in consumer.others is right for the kind.
const decided = `
Other        . . .  . . .  . . .  . . .  . . .
Invalid      . . .  . . .  . . .  . . .  . . x
TooLong      . . .  . . .  . . .  . . .  . . .
Escaped      . x x  . . .  . . .  x x .  . . x
Permission   . . .  x x x  . x .  x . .  . x .
ReadOnly     . . .  . x x  . x .  x . .  . x .
Revoked      . . x  . x .  . . .  . . .  x . .
NotExist     . . .  x . .  . . .  . . x  x . x
Timeout      . . .  . . .  . . .  . . .  . . .
IO           . . .  . . .  . . .  . . .  . . .
NoConsent    . x x  x x .  x . .  . . .  . . .
NotDir       . . .  . . .  . . .  . . .  x . x
IsDir        . . .  . . .  . . .  . . .  x . .
NotEmpty     . . .  . . .  . . .  . . .  . . .
Exist        . . x  . . .  . . .  . . .  x . .
Conflict     . . x  . . .  . . .  . . x  x . .
Locked       . . .  . . .  . . .  . . x  . . .
Rate         x . x  . . .  . . x  x . .  . . .
Quota        . . .  . . .  . . x  x . .  . . .
Internal     x . .  . . .  . . .  . . .  . . .
Hidden       x . .  . . .  . . .  . x .  x x .
Unavailable  . . .  . . .  x . .  . . .  . . .
Suspended    . . .  . . .  x . .  . x .  . . .
Paused       . . .  . . .  . . .  . . .  . . .
`

// oneCallHandlers lists functions that treat certain errors of one call apart. They treat every
// other error alike, or by the code of its kind.
var oneCallHandlers = []string{
	"broker.conflict", "cmd/rootsfs/internal/cli.grant", "cmd/rootsfs/internal/cli.isRootGone", "cmd/rootsfs/internal/cli.isUnreadable",
	"cmd/rootsfs/internal/session.ignoreGone", "vfs.removeEntry", "vfs/internal/beneath.ignore", "vfs/internal/beneath.passOver",
}

// deciders returns the functions that name two kinds or more, with those kinds.
func deciders(t *testing.T, kinds []string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, p := range list(t, "./...") {
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok {
					if named := kindsIn(fn, kinds); len(named) > 1 {
						key := p.name() + "." + fn.Name.Name
						all[key] = append(all[key], named...)
					}
				}
			}
		}
	}
	return all
}

// Each consumer has a mark in decided for each kind. A new kind needs a row in decided. A new
// function that names two kinds or more needs a column in decided or an entry in oneCallHandlers,
// or calls a method of names.Kind instead.
func TestKindsAreDecided(t *testing.T) {
	kinds := errorKinds(t)
	found := deciders(t, kinds)
	rows := map[string][]string{}
	for line := range strings.Lines(decided) {
		if marks := strings.Fields(line); len(marks) > 0 {
			rows[marks[0]] = marks[1:]
		}
	}
	for _, k := range kinds {
		marks := rows[k]
		delete(rows, k)
		for i, c := range consumers {
			isNamed := slices.Contains(found[c.fn], k)
			switch {
			case i >= len(marks):
				t.Errorf("%s has not decided about %s: is it right that %s? Add a mark to the row of %s in decided.", c.fn, k, c.others, k)
			case marks[i] == "x" && !isNamed:
				t.Errorf("%s does not name %s, but decided has an x there", c.fn, k)
			case marks[i] != "x" && isNamed:
				t.Errorf("%s names %s, but decided has no x there", c.fn, k)
			}
		}
	}
	for k := range rows {
		t.Errorf("decided has a row for %s, which is no kind", k)
	}
	for fn, named := range found {
		isColumn := slices.ContainsFunc(consumers, func(c consumer) bool { return c.fn == fn })
		if !isColumn && !slices.Contains(oneCallHandlers, fn) {
			t.Errorf("%s decides by the kinds %v, and no test makes it decide about a new kind: let it ask names.Kind "+
				"(Code, Refusal, Retryable, About), or make it a column of decided", fn, named)
		}
	}
	for _, fn := range oneCallHandlers {
		if found[fn] == nil {
			t.Errorf("%s names fewer than two kinds: take it out of oneCallHandlers", fn)
		}
	}
}
