package deps

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// typedPackage is a package with its types.
type typedPackage struct {
	path  string
	fset  *token.FileSet
	files []*ast.File
	pkg   *types.Package
	info  *types.Info
}

// listedPackage is a package as go list prints it.
type listedPackage struct {
	ImportPath, Export, Dir string
	GoFiles                 []string
}

// compilePackages compiles the packages and all their imports. It returns the output of go list for
// each, and an importer of their types.
func compilePackages(patterns ...string) (all []listedPackage, fset *token.FileSet, imports types.Importer, err error) {
	cmd := exec.Command("go", append([]string{"list", "-trimpath", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles"}, patterns...)...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as testkit.Build compiles them
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, nil, err
	}
	exports := map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, nil, err
		}
		exports[p.ImportPath] = p.Export
		all = append(all, p)
	}
	fset = token.NewFileSet()
	imports = importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return all, fset, imports, nil
}

func newInfo() *types.Info {
	return &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Instances: map[*ast.Ident]types.Instance{}}
}

// typedPackages type-checks the module's packages that print foreign text: cmd and broker.
var typedPackages = sync.OnceValues(func() (all []typedPackage, err error) {
	list, fset, imports, err := compilePackages("./cmd/...", "./broker/...")
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		path, isOurs := strings.CutPrefix(p.ImportPath, module+"/")
		if !isOurs || !strings.HasPrefix(path, "cmd/") && !strings.HasPrefix(path, "broker") {
			continue
		}
		c := typedPackage{path: path, fset: fset, info: newInfo()}
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			c.files = append(c.files, f)
		}
		conf := types.Config{Importer: imports}
		if c.pkg, err = conf.Check(p.ImportPath, fset, c.files, c.info); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
})

func fieldName(owner types.Type, field string) string {
	if p, ok := types.Unalias(owner).(*types.Pointer); ok {
		owner = p.Elem()
	}
	named, ok := types.Unalias(owner).(*types.Named)
	if !ok || named.Obj().Pkg() == nil {
		return ""
	}
	pkg := named.Obj().Pkg().Path()
	return filepath.Base(pkg) + "." + named.Obj().Name() + "." + field
}

// prints reports whether a call shows its arguments to a person as they are.
func (c *typedPackage) prints(call *ast.CallExpr) bool {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		obj := c.info.Uses[f.Sel]
		if obj == nil || obj.Pkg() == nil {
			return false
		}
		switch obj.Pkg().Path() {
		case "log/slog": // the handler of the log escapes all values
			return false
		case "fmt", "errors":
			return f.Sel.Name != "Sscanf" && f.Sel.Name != "Is" && f.Sel.Name != "As"
		}
		return slices.Contains([]string{"Say", "say", "Fold", "add", "WriteString", "Usage", "Fail", "fail", "Warn", "warn", "ok"}, f.Sel.Name)
	case *ast.Ident:
		return slices.Contains([]string{"Usage", "invalid", "refuse", "say", "add"}, f.Name)
	}
	return false
}

// printedBy returns the call that prints the innermost expression of a stack unchanged. If the
// expression is in a literal of type []string, printedBy returns the literal. Otherwise it returns
// nil.
func (c *typedPackage) printedBy(stack []ast.Node) ast.Node {
	for i := len(stack) - 2; i >= 0; i-- {
		switch outer := stack[i].(type) {
		case *ast.BinaryExpr:
			if outer.Op != token.ADD {
				return nil
			}
		case *ast.ParenExpr:
		case *ast.CallExpr:
			if tv := c.info.Types[outer.Fun]; tv.IsType() { // a conversion
				continue
			}
			if c.prints(outer) && outer.Fun != stack[i+1] {
				return outer
			}
			return nil
		case *ast.CompositeLit:
			if t := c.info.Types[outer].Type; t != nil && t.String() == "[]string" {
				return outer
			}
			return nil
		default:
			return nil
		}
	}
	return nil
}

// addTexts adds the text fields of a type, and of the types in it, to seen, by their names.
func (c *typedPackage) addTexts(t types.Type, seen map[string]types.Type) {
	switch t := types.Unalias(t).(type) {
	case *types.Pointer:
		c.addTexts(t.Elem(), seen)
	case *types.Slice:
		c.addTexts(t.Elem(), seen)
	case *types.Map:
		c.addTexts(t.Elem(), seen)
	case *types.Named:
		st, ok := t.Underlying().(*types.Struct)
		if !ok || t.Obj().Pkg() == nil || !strings.HasPrefix(t.Obj().Pkg().Path(), module) {
			return
		}
		for i := range st.NumFields() {
			f := st.Field(i)
			name := fieldName(t, f.Name())
			if !f.Exported() || seen[name] != nil || strings.Contains(st.Tag(i), `json:"-"`) {
				continue
			}
			if elem := elemOf(f.Type()); elem != nil {
				seen[name] = elem
			}
			c.addTexts(f.Type(), seen)
		}
	}
}

// elemOf returns the text type that a type holds, or nil if it holds no text.
func elemOf(t types.Type) types.Type {
	for {
		switch u := t.Underlying().(type) {
		case *types.Slice:
			t = u.Elem()
		case *types.Map:
			t = u.Elem()
		case *types.Pointer:
			t = u.Elem()
		case *types.Basic:
			if u.Info()&types.IsString != 0 {
				return t
			}
			return nil
		default:
			return nil
		}
	}
}

func load(t *testing.T) []typedPackage {
	t.Helper()
	all, err := typedPackages()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// printsItself reports whether values of a type of text escape themselves when they are printed.
func printsItself(t types.Type) bool {
	return t != nil && slices.Contains([]string{"names.Foreign", "names.Text", "names.RootName", "rules.Subject"}, strings.TrimPrefix(types.Unalias(t).String(), module+"/guard/"))
}

// printedRaws finds texts that would escape themselves, but whose raw form is printed: the result
// of the method Raw, or of a conversion to a type that does not escape itself.
func (c *typedPackage) printedRaws(f *ast.File) (found []ast.Node) {
	var stack []ast.Node
	ast.Inspect(f, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		stack = append(stack, n)
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, method := call.Fun.(*ast.SelectorExpr)
		isRaw := method && sel.Sel.Name == "Raw" && printsItself(c.info.Types[sel.X].Type)
		converts := len(call.Args) == 1 && c.info.Types[call.Fun].IsType() && printsItself(c.info.Types[call.Args[0]].Type) && !printsItself(c.info.Types[call].Type)
		if (isRaw || converts) && c.printedBy(stack) != nil {
			found = append(found, call)
		}
		return true
	})
	return found
}

// top returns the directory of the module, with a slash at the end.
func (c *typedPackage) top() string {
	name := c.fset.Position(c.files[0].Pos()).Filename
	return name[:strings.LastIndex(name, c.path+"/")]
}
