package deps

import (
	"go/ast"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A session, or the command run, sets each field of control.Status, and of the types of package
// control that it consists of, unless the field is in unfilled. If no code set a field, the command
// status would print the field as if there were nothing to report.
func TestStatusIsFilled(t *testing.T) {
	types := map[string]*ast.StructType{}
	for _, s := range sources(t, "cmd/rootsfs/internal/control") {
		ast.Inspect(s.file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if body, ok := spec.Type.(*ast.StructType); ok {
					types[spec.Name.Name] = body
				}
			}
			return true
		})
	}
	run := slices.DeleteFunc(sources(t, "cmd/rootsfs/internal/cli"), func(s source) bool {
		return !strings.HasPrefix(filepath.Base(s.rel), "run_")
	})
	set := setIn(append(sources(t, "cmd/rootsfs/internal/session"), run...))
	todo, count := []string{"Status"}, 0
	for i := 0; i < len(todo); i++ {
		for _, f := range types[todo[i]].Fields.List {
			for _, name := range f.Names {
				count++
				if full := todo[i] + "." + name.Name; !slices.Contains(set, name.Name) && unfilled[full] == "" {
					t.Errorf("neither package session nor a file run_*.go of package cli sets the field %s of package control", full)
				}
			}
			ast.Inspect(f.Type, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && types[id.Name] != nil && !slices.Contains(todo, id.Name) {
					todo = append(todo, id.Name)
				}
				_, isOther := n.(*ast.SelectorExpr) // a type of another package
				return !isOther
			})
		}
	}
	if count < 100 {
		t.Fatalf("found %d fields in the types %q", count, todo)
	}
}

// unfilled lists the fields that a session does not set itself, with the reason.
var unfilled = map[string]string{
	"Status.Stale": "set by the command that lists mounts, for a mount without a session",
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
