package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// Each verb of package control has one handler in a session, and at least one command calls the
// verb.
func TestVerbs(t *testing.T) {
	const handled, called = "Handle", "Call"
	uses := map[string]map[string]int{handled: {}, called: {}}
	set := token.NewFileSet()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == handled {
				uses[handled][verbOf(f.X)]++
			} else if ok && f.Sel.Name == called {
				uses[called][verbOf(f.X)]++
			}
			for _, arg := range call.Args { // functions such as ask and do call the verb that is their argument
				uses[called][verbOf(arg)]++
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(set, "internal/control/verb.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	verbs, wireNames := 0, map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		verbs++
		name := spec.Names[0].Name
		literal := spec.Values[0].(*ast.CompositeLit).Elts[0].(*ast.BasicLit).Value
		if wireNames[literal] {
			t.Errorf("two verbs are named %s", literal)
		}
		wireNames[literal] = true
		if n := uses[handled][name]; n != 1 {
			t.Errorf("%s has %d handlers, want 1", name, n)
		}
		if uses[called][name] == 0 {
			t.Errorf("no command calls %s", name)
		}
		return true
	})
	if verbs < 15 {
		t.Errorf("found only %d verbs", verbs)
	}
}

// verbOf returns NAME for an expression control.NAME, and "" for any other.
func verbOf(e ast.Expr) string {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if pkg, ok := sel.X.(*ast.Ident); !ok || pkg.Name != "control" {
		return ""
	}
	return sel.Sel.Name
}
