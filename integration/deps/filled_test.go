package deps

import (
	"go/ast"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// statusFields returns the fields of control.Status, and of the types of package control that it
// consists of, as TYPE.FIELD.
func statusFields(t *testing.T) (fields []string) {
	t.Helper()
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
	todo := []string{"Status"}
	for i := 0; i < len(todo); i++ {
		for _, f := range types[todo[i]].Fields.List {
			for _, name := range f.Names {
				fields = append(fields, todo[i]+"."+name.Name)
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
	if len(fields) < 100 {
		t.Fatalf("found %d fields in the types %q", len(fields), todo)
	}
	return fields
}

// commandFiles returns the files of package cli that belong to the command run, and the others.
func commandFiles(t *testing.T) (run, others []source) {
	t.Helper()
	for _, s := range sources(t, "cmd/rootsfs/internal/cli") {
		if strings.HasPrefix(filepath.Base(s.rel), "run_") {
			run = append(run, s)
		} else {
			others = append(others, s)
		}
	}
	return run, others
}

// checkFields fails the test for each field of a status whose name is neither in found nor, with a
// reason, in excepted. It also fails for an exception that found has.
func checkFields(t *testing.T, found []string, excepted map[string]string, problem string) {
	t.Helper()
	for _, full := range statusFields(t) {
		_, name, _ := strings.Cut(full, ".")
		if slices.Contains(found, name) == (excepted[full] != "") {
			t.Errorf("%s %s of package control, or it is no exception any more", problem, full)
		}
	}
}

// A session, or the command run, sets each field of a status. If no code set a field, the command
// status would print the field as if there were nothing to report.
func TestStatusIsFilled(t *testing.T) {
	run, _ := commandFiles(t)
	set := setIn(append(sources(t, "cmd/rootsfs/internal/session"), run...))
	checkFields(t, set, map[string]string{
		"Status.Stale": "set by the command that lists mounts, for a mount without a session",
	}, "neither package session nor a file run_*.go of package cli sets the field")
}

// A command prints each field of a status for people, or decides by it. A field that is for programs
// only is an exception.
func TestStatusIsShown(t *testing.T) {
	_, commands := commandFiles(t)
	var used []string
	for _, s := range commands {
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				used = append(used, sel.Sel.Name)
			}
			return true
		})
	}
	checkFields(t, used, map[string]string{
		"Root.LastUse":          "a time, for programs that clean up",
		"Root.Epoch":            "a number, for programs that compare grants",
		"Root.Nested":           "roots list has these roots in rows of their own",
		"Confined.Interpreters": "roots list has these roots in rows of their own",
	}, "no file of package cli, but for run_*.go, reads the field")
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
