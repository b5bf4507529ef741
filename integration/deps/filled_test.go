package deps

import (
	"go/ast"
	"path/filepath"
	"slices"
	"testing"
)

// Package session sets each field of control.Status that is not in unfilled. If no code set a
// field, the command status would print the field as if there were nothing to report.
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

// unfilled lists the fields that a session does not set itself, with the reason.
var unfilled = map[string]string{
	"Stale": "set by the command that lists mounts, for a mount without a session",
}

// setIn returns the names of the fields that files set in literals or by assignment, or whose
// address they take.
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
