package deps

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// If the process of a test serves a mount, the test may reach this mount only by system calls
// during which Go's runtime gives the calling thread's processor to another thread. A call can keep
// the processor, or the lock of the address space, while the kernel waits for this very process.
// Such a call can stop the process for good: only aborting the FUSE connection ends the wait. Three
// kinds of code are known to do that. hangingCalls looks for each kind, but does not see whether a
// program that is executed lies in the mount:
//
//   - opening a file, which asks for POLL inside of epoll_ctl, unless POLL was answered
//     before (mount.New does that, unless Options.OpenNothing is set);
//   - a page fault in a mapping;
//   - a fork whose child changes into the mount, or executes a file of it: the runtime stands
//     still until the child has executed its program.

// ownMountExceptions lists the test files with such code, and why the code does not hang.
var ownMountExceptions = map[string]string{
	"cmd/rootsfs/completionshell_test.go":       "shells start in a temporary directory, which is in no mount",
	"cmd/rootsfs/internal/console/peer_test.go": "the program starts in /",
	"cmd/rootsfs/printed_test.go":               "shells start in a temporary directory, which is in no mount",
	"integration/files/peers.go":                "npm starts in the cache of the tests",
	"integration/revoke/calls_test.go":          "a child process makes its calls",
	"integration/revoke/faults_test.go":         "its code runs in the child process of calls_test.go",
	"integration/revoke/holder_test.go":         "a child process holds what is revoked",
	"integration/revoke/probes_test.go":         "the same child process tries what it holds",
	"integration/revoke/storm_test.go":          "a child process maps the mount; the page that the processes share is in no mount",
	"mount/layout_test.go":                      "its raw system calls change the user of a thread",
	"mount/mapping_test.go":                     "maps in a child process, for the other tests",
}

// notChecked lists the packages that need no check at run time, and why. In every other package
// whose tests serve a mount, childfs.Main sees each request of the kernel. So the tests fail if
// their process uses its own mount, by whatever call.
var notChecked = map[string]string{
	"cmd/rootsfs/internal/console": "its sessions have no mount",
	"integration/childfs":          "shows that the use of an own mount is found",
}

// hangingCalls returns the calls in a file that can make a process that serves a mount wait for
// itself, as "unix.Mmap at line 7".
func hangingCalls(fset *token.FileSet, file *ast.File) (found []string) {
	add := func(what string, n ast.Node) {
		found = append(found, what+" at line "+strconv.Itoa(fset.Position(n.Pos()).Line))
	}
	commands := map[string]bool{} // variables that hold an exec.Cmd
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, right := range n.Rhs {
				if isCommand(right) && i < len(n.Lhs) {
					if id, ok := n.Lhs[i].(*ast.Ident); ok {
						commands[id.Name] = true
					}
				}
			}
			for i, left := range n.Lhs {
				sel, ok := left.(*ast.SelectorExpr)
				if !ok {
					continue
				}
				id, _ := sel.X.(*ast.Ident)
				if sel.Sel.Name == "Dir" && id != nil && commands[id.Name] {
					add(id.Name+".Dir", n)
				}
				if sel.Sel.Name == "OpenNothing" && i < len(n.Rhs) && isTrue(n.Rhs[i]) {
					add("OpenNothing", n)
				}
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == "OpenNothing" && isTrue(n.Value) {
				add("OpenNothing", n)
			}
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok && (id.Name == "unix" || id.Name == "syscall") {
				switch n.Sel.Name {
				case "Mmap", "MmapPtr", "RawSyscall", "RawSyscall6", "ForkExec", "StartProcess":
					add(id.Name+"."+n.Sel.Name, n)
				}
			}
		}
		return true
	})
	return found
}

func isTrue(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "true"
}

// isCommand reports whether an expression makes an exec.Cmd.
func isCommand(e ast.Expr) bool {
	if u, ok := e.(*ast.UnaryExpr); ok {
		e = u.X
	}
	if c, ok := e.(*ast.CompositeLit); ok {
		sel, ok := c.Type.(*ast.SelectorExpr)
		return ok && sel.Sel.Name == "Cmd"
	}
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && (sel.Sel.Name == "Command" || sel.Sel.Name == "CommandContext")
}

// serves reports whether a file makes a mount in its own process.
func serves(dir string, file *ast.File) (yes bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch f := call.Fun.(type) {
		case *ast.SelectorExpr:
			id, ok := f.X.(*ast.Ident)
			yes = yes || ok && (id.Name == "mount" && f.Sel.Name == "New" || id.Name == "session" && f.Sel.Name == "Start")
		case *ast.Ident:
			yes = yes || dir == "mount" && f.Name == "New" || dir == "cmd/rootsfs/internal/session" && f.Name == "Start"
		}
		return true
	})
	return yes
}

// callsMain reports whether a file calls childfs.Main, or lab.Main, which calls it.
func callsMain(file *ast.File) (yes bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Main" {
			id, _ := sel.X.(*ast.Ident)
			yes = yes || id != nil && (id.Name == "childfs" || id.Name == "lab")
		}
		return true
	})
	return yes
}

// In a directory whose tests serve a mount, no test file has calls that hangingCalls finds, unless
// ownMountExceptions lists the file. One of the test files calls childfs.Main or lab.Main, unless
// notChecked lists the directory. All files below integration count as test files.
func TestOwnMounts(t *testing.T) {
	base := top(t)
	files, serving, used, checked := map[string]source{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, dir := range []string{"mount", "integration", "cmd", "broker", "vfs"} {
		err := filepath.WalkDir(filepath.Join(base, dir), func(p string, d fs.DirEntry, err error) error {
			isTest := strings.HasSuffix(p, "_test.go") || dir == "integration" && strings.HasSuffix(p, ".go")
			if err != nil || d.IsDir() || !isTest {
				return err
			}
			rel, err := filepath.Rel(base, p)
			if err != nil {
				return err
			}
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, p, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			files[rel] = source{rel, fset, f}
			if serves(filepath.Dir(rel), f) {
				serving[filepath.Dir(rel)] = true
			}
			if callsMain(f) {
				checked[filepath.Dir(rel)] = true
			}
			return nil
		})
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	for dir := range serving {
		if !checked[dir] && notChecked[dir] == "" {
			t.Errorf("the tests of %s do not call childfs.Main or lab.Main in their TestMain: nothing sees that they use their own mount", dir)
		}
	}
	for rel, s := range files {
		if !serving[filepath.Dir(rel)] {
			continue
		}
		found := hangingCalls(s.fset, s.file)
		if len(found) == 0 {
			continue
		}
		used[rel] = true
		if ownMountExceptions[rel] == "" {
			t.Errorf("%s has %s, in a package whose tests serve a mount in their own process: such a call can wait for the process itself "+
				"forever; do it in a child process, or add the file to ownMountExceptions with the reason why it is in no such mount",
				rel, strings.Join(found, ", "))
		}
	}
	for rel, why := range ownMountExceptions {
		if !used[rel] {
			t.Errorf("%s is excepted (%s) but has no such code: drop it from the list", rel, why)
		}
	}
	for _, dir := range []string{"mount", "integration/policy", "integration/files", "integration/revoke", "integration/programs/lab", "cmd/rootsfs/internal/session"} {
		if !serving[dir] {
			t.Errorf("%s is not found to serve a mount: the search itself is broken", dir)
		}
	}
}

// hangingCalls finds each kind of call that it looks for.
func TestHangsAreFound(t *testing.T) {
	const code = `package x
func f() {
	o.OpenNothing = true
	New(Options{OpenNothing: true})
	cmd := exec.Command("sleep")
	cmd.Dir = point
	c := &exec.Cmd{}
	c.Dir = point
	b, _ := unix.Mmap(fd, 0, 4, 1, 1)
	syscall.RawSyscall(1, 2, 3, 4)
	g.Dir = code
	o.OpenNothing = false
}`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "x.go", code, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	want := "OpenNothing at line 3, OpenNothing at line 4, cmd.Dir at line 6, c.Dir at line 8, unix.Mmap at line 9, syscall.RawSyscall at line 10"
	if got := strings.Join(hangingCalls(fset, file), ", "); got != want {
		t.Errorf("found %s\nwant %s", got, want)
	}
}
