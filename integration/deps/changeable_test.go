package deps

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"strings"
	"testing"
)

// changingCalls are the functions of package beneath that change a file through its descriptor,
// write it back, lock it or link it. Each must take a Changeable.
var changingCalls = []string{"Chmod", "Chown", "Utimes", "Truncate", "TruncatePath", "Setxattr", "Removexattr", "CopyXattr", "CopyXattrs", "CopyUnsupportedXattrs",
	"Pwritev", "Fsync", "Fallocate", "CopyFileRange", "OFDLock", "Flock", "Link"}

// A descriptor that beneath.Change has not checked cannot be passed to a call that changes a file:
// such code does not compile. No other package can make a Changeable from a descriptor.
func TestUncheckedDescriptorChangesNothing(t *testing.T) {
	const path = module + "/vfs/internal/beneath"
	_, fset, imports, err := compilePackages(path)
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := imports.Import(path)
	if err != nil {
		t.Fatal(err)
	}
	changeable := pkg.Scope().Lookup("Changeable").Type()
	fields := changeable.Underlying().(*types.Struct)
	for i := range fields.NumFields() {
		if fields.Field(i).Exported() {
			t.Errorf("Changeable.%s is exported: any package could make one", fields.Field(i).Name())
		}
	}
	found := map[string]bool{}
	for _, name := range pkg.Scope().Names() {
		f, ok := pkg.Scope().Lookup(name).(*types.Func)
		if !ok || !f.Exported() {
			continue
		}
		sig := f.Type().(*types.Signature)
		for i := range sig.Params().Len() {
			if !types.Identical(sig.Params().At(i).Type(), changeable) {
				continue
			}
			found[name] = true
			if err := compile(imports, fset, callWith(name, sig, i, "beneath.Changeable")); err != nil {
				t.Errorf("%s with a Changeable does not compile: %v", name, err)
			}
			for _, unchecked := range []string{"int", "beneath.Handle", "*beneath.Handle", "beneath.Dir", "beneath.Names", "struct{ int }"} {
				if compile(imports, fset, callWith(name, sig, i, unchecked)) == nil {
					t.Errorf("%s compiles with a %s, which may refer to a source that must not be changed", name, unchecked)
				}
			}
		}
	}
	for _, name := range changingCalls {
		if !found[name] {
			t.Errorf("%s takes no Changeable", name)
		}
	}
}

// callWith returns a program that calls a function of package beneath. One argument has the
// given type, and the others have the right types.
func callWith(name string, sig *types.Signature, which int, typ string) string {
	used := map[string]bool{"beneath": true}
	qualify := func(p *types.Package) string { used[p.Name()] = true; return p.Name() }
	var params, args []string
	for i := range sig.Params().Len() {
		t := types.TypeString(sig.Params().At(i).Type(), qualify)
		if i == which {
			t = typ
		}
		params, args = append(params, fmt.Sprintf("a%d %s", i, t)), append(args, fmt.Sprintf("a%d", i))
	}
	imports := fmt.Sprintf("import beneath %q\n", module+"/vfs/internal/beneath")
	if used["guard"] {
		imports += fmt.Sprintf("import guard %q\n", module+"/guard")
	}
	return fmt.Sprintf("package p\n%sfunc f(%s) { beneath.%s(%s) }", imports, strings.Join(params, ", "), name, strings.Join(args, ", "))
}

func compile(imports types.Importer, fset *token.FileSet, text string) error {
	file, err := parser.ParseFile(fset, "fixture.go", text, 0)
	if err != nil {
		return err
	}
	_, err = (&types.Config{Importer: imports}).Check("p", fset, []*ast.File{file}, nil)
	return err
}
