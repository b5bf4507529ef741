package deps

import (
	"go/ast"
	"path/filepath"
	"slices"
	"testing"
)

// Each field of the answer to status is set somewhere in the session: a field that nobody fills is
// printed as if it had nothing to say.
func TestStatusIsFilled(t *testing.T) {
	var fields []string
	for _, s := range sources(t, "cmd/rootsfs/internal/control") {
		if filepath.Base(s.rel) != "types.go" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != "Status" {
				return true
			}
			for _, f := range spec.Type.(*ast.StructType).Fields.List {
				for _, name := range f.Names {
					fields = append(fields, name.Name)
				}
			}
			return false
		})
	}
	if len(fields) < 20 {
		t.Fatalf("found the fields %q", fields)
	}
	set := setIn(sources(t, "cmd/rootsfs/internal/session"))
	for _, name := range fields {
		if !slices.Contains(set, name) && unfilled[name] == "" {
			t.Errorf("nothing in cmd/rootsfs/internal/session sets the field %s of control.Status", name)
		}
	}
}

// unfilled are fields that a session does not set itself, and why.
var unfilled = map[string]string{
	"Stale": "of a mount that no session has: the command that lists it sets it",
}

// setIn returns the names of the fields that files set, in literals and by assignment.
func setIn(files []source) (names []string) {
	for _, s := range files {
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if id, ok := n.Key.(*ast.Ident); ok {
					names = append(names, id.Name)
				}
			case *ast.AssignStmt:
				for _, left := range n.Lhs {
					if sel, ok := left.(*ast.SelectorExpr); ok {
						names = append(names, sel.Sel.Name)
					}
				}
			case *ast.UnaryExpr: // &st.Files, for a function that fills it
				if sel, ok := n.X.(*ast.SelectorExpr); ok {
					names = append(names, sel.Sel.Name)
				}
			}
			return true
		})
	}
	return names
}
