package beneath

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// harmless lists the calls that change no source. A call that opens a file counts as harmless only
// if its arguments name none of changingFlags, and no variable called flags or how.
var harmless = map[string][]string{
	"unix": {"Close", "Dup3", "Faccessat", "FcntlInt", "Fstat", "Fstatfs", "Getdents", "Geteuid", "Getrlimit", "Getxattr", "InotifyAddWatch", "InotifyInit1",
		"InotifyRmWatch", "IoctlGetInt", "Listxattr", "MemfdCreate", "Mkdev", "Pipe2", "Poll", "Pread", "Readlinkat", "Seek", "Setfsgid", "Setfsuid", "Statx",
		"Open", "Openat", "Openat2"},
	"os": {"Getegid", "Geteuid", "NewFile", "ReadFile", "Readlink"},
}

// changingFlags are the flags with which open(2) changes the source.
var changingFlags = []string{"O_CREAT", "O_TRUNC", "O_TMPFILE"}

// masked lists the functions that open a file with the flags of their caller, but without
// changingFlags. TestOpenChangesNothing tests them.
var masked = []string{"open", "Reopen"}

// special lists other calls that change nothing, by the function that makes them.
var special = map[string]string{
	"xfsAsk":      "Syscall",    // XFS_IOC_FSGEOMETRY
	"OFDConflict": "FcntlFlock", // F_OFD_GETLK
}

// qualifiedCall returns the names and the call if n is a call pkg.name(...), where pkg is a package
// or a variable. For any other node call is nil.
func qualifiedCall(n ast.Node) (pkg, name string, call *ast.CallExpr) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", "", nil
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", "", nil
	}
	if id, ok := sel.X.(*ast.Ident); ok {
		return id.Name, sel.Sel.Name, call
	}
	return "", "", nil
}

// mentions reports whether an expression has an identifier for which f reports true.
func mentions(e ast.Node, f func(name string) bool) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && f(id.Name) {
			found = true
		}
		return true
	})
	return found
}

// unguarded returns the names of the system calls in f that may change a source. It leaves out the
// calls in a function that is passed to change or write.
func unguarded(f *ast.FuncDecl) (list []string) {
	inside := map[ast.Node]bool{} // the functions that are passed to change or write
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			name := ""
			switch fun := call.Fun.(type) {
			case *ast.Ident:
				name = fun.Name
			case *ast.SelectorExpr: // Changeable.change and Changeable.write
				name = fun.Sel.Name
			}
			if (name == "change" || name == "write") && len(call.Args) == 2 {
				inside[call.Args[1]] = true
			}
		}
		if inside[n] {
			return false
		}
		pkg, name, call := qualifiedCall(n)
		allowed, isChecked := harmless[pkg]
		switch {
		case call == nil || !isChecked || special[f.Name.Name] == name:
		case !slices.Contains(allowed, name):
			list = append(list, pkg+"."+name)
		case strings.HasPrefix(name, "Open") && !slices.Contains(masked, f.Name.Name):
			isHarmless := true
			for _, arg := range call.Args {
				// Flags are constants of unix; a variable could have any flag.
				if mentions(arg, func(id string) bool { return slices.Contains(changingFlags, id) || id == "flags" || id == "how" }) {
					isHarmless = false
				}
			}
			if !isHarmless {
				list = append(list, pkg+"."+name)
			}
		}
		return true
	})
	return list
}

// functions parses the package without its tests, and returns its functions by name.
func functions(t *testing.T) map[string]*ast.FuncDecl {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*ast.FuncDecl{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				name := f.Name.Name
				if f.Recv != nil && all[name] != nil {
					name += " (method)"
				}
				all[name] = f
			}
		}
	}
	if len(all) < 100 {
		t.Fatalf("only %d functions were found", len(all))
	}
	return all
}

// Every system call that changes a source is made by change, which asks the lease.
func TestChangesAskTheLease(t *testing.T) {
	for name, f := range functions(t) {
		if got := unguarded(f); len(got) > 0 {
			t.Errorf("%s calls %v without change: make the call through change(l, ...), or add it to harmless", name, got)
		}
	}
}

// unguarded, and so TestChangesAskTheLease, finds the calls that it must find.
func TestUnguardedIsNoticed(t *testing.T) {
	for body, want := range map[string]string{
		`unix.Unlinkat(fd, base, 0)`:                                                                      "unix.Unlinkat",
		`retry(func() error { return unix.Fsync(fd) })`:                                                   "unix.Fsync",
		`change(l, func() error { return unix.Fsync(fd) })`:                                               "",
		`change(l, func() error { return nil }); unix.Fsync(fd)`:                                          "unix.Fsync",
		`unix.Openat(fd, base, unix.O_RDWR|unix.O_TRUNC, 0)`:                                              "unix.Openat",
		`unix.Openat(fd, base, flags|unix.O_CLOEXEC, 0)`:                                                  "unix.Openat",
		`unix.Openat(fd, base, unix.O_RDONLY, 0)`:                                                         "",
		`os.WriteFile(path, nil, 0)`:                                                                      "os.WriteFile",
		`unix.Statx(fd, "", 0, 0, nil)`:                                                                   "",
		`unix.Syscall(unix.SYS_UNLINKAT, 0, 0, 0)`:                                                        "unix.Syscall",
		`o.as(func() error { return unix.Mkdirat(fd, base, 0) }, nil)`:                                    "unix.Mkdirat",
		`o.as(func() error { return change(l, func() error { return unix.Mkdirat(fd, base, 0) }) }, nil)`: "",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc F() { "+body+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(unguarded(file.Decls[0].(*ast.FuncDecl)), " "); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}

// callsOne reports whether f calls a function or method of the package that has one of the names.
func callsOne(f *ast.FuncDecl, names map[string]bool) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if pkg, name, call := qualifiedCall(n); call != nil {
			found = found || names[name] && harmless[pkg] == nil && pkg != "guard"
		} else if call, ok := n.(*ast.CallExpr); ok {
			id, ok := call.Fun.(*ast.Ident)
			found = found || ok && names[id.Name]
		}
		return true
	})
	return found
}

// changes lists exactly the exported functions, without methods, that call change directly or
// through other functions of the package.
func TestChangesAreComplete(t *testing.T) {
	all := functions(t)
	reach := map[string]bool{"change": true}
	for grown := true; grown; {
		grown = false
		for name, f := range all {
			if !reach[name] && callsOne(f, reach) {
				reach[name], grown = true, true
			}
		}
	}
	var want []string
	for name, f := range all {
		if reach[name] && ast.IsExported(name) && f.Recv == nil {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	if have := slices.Sorted(maps.Keys(changes)); !slices.Equal(have, want) {
		t.Errorf("changes lists %v, but the package has %v", have, want)
	}
}
