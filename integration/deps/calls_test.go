package deps

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// confinedDirs are the directories whose packages reach files only through vfs/internal/beneath,
// apart from exceptions.
var confinedDirs = []string{"guard", "vfs", "mount", "broker"}

// exceptions are the files and directories whose code may call the file system itself, and why.
var exceptions = map[string]string{
	"vfs/internal/beneath":      "it is the place for these calls",
	"vfs/internal/draft":        "keeps its log in the state directory, which lies in no root",
	"guard/audit":               "writes the log, which lies in no root",
	"guard/guardtest":           "builds the trees that tests look at",
	"mount/mountpoint":          "looks at mountpoints, /dev/fuse, /proc and /sys/fs/fuse, which are in no root",
	"mount/sandbox":             "sets a child's namespaces up",
	"broker/proxy/stdin.go":     "opens its own standard input once more, which is in no root",
	"broker/client/resolve.go":  "resolves the links of a path for Guard.Within, and opens nothing",
	"vfs/watch/source.go":       "reads the limit of inotify watches from /proc/sys",
	"mount/distro":              "reads /etc/os-release",
	"mount/transport/poll.go":   "opens a file of the mount itself, so that the kernel stops sending POLL",
	"mount/transport/awake.go":  "opens /dev/cpu_dma_latency",
	"mount/caller.go":           "reads a caller's pending signals and supplementary groups from /proc",
	"mount/transport/kernel.go": "reads /sys and /proc: the processors, the switch of FUSE over io_uring, what threads do",
}

// fileCalls are the functions that reach a file by its path.
var fileCalls = map[string][]string{
	"os": {"Chmod", "Chown", "Chtimes", "Create", "CreateTemp", "DirFS", "Lchown", "Link", "Lstat", "Mkdir", "MkdirAll",
		"MkdirTemp", "NewRoot", "Open", "OpenFile", "OpenInRoot", "OpenRoot", "ReadDir", "ReadFile", "Readlink", "Remove",
		"RemoveAll", "Rename", "Stat", "Symlink", "Truncate", "WriteFile", "CopyFS", "UserHomeDir"},
	"path/filepath": {"EvalSymlinks", "Glob", "Walk", "WalkDir"},
	"io/ioutil":     {"ReadFile", "WriteFile", "ReadDir", "TempDir", "TempFile"},
	"golang.org/x/sys/unix": {"Open", "Openat", "Openat2", "Creat", "Mkdirat", "Mkdir", "Unlink", "Unlinkat", "Rename", "Renameat",
		"Renameat2", "Link", "Linkat", "Symlink", "Symlinkat", "Readlink", "Readlinkat", "Chmod", "Fchmodat", "Chown", "Fchownat",
		"Truncate", "Getxattr", "Setxattr", "Lgetxattr", "Lsetxattr", "Listxattr", "Removexattr", "Mknod", "Mknodat", "Mkfifo",
		"UtimesNanoAt", "Access", "Faccessat", "Rmdir"},
	"syscall": {"Open", "Openat", "Creat", "Mkdir", "Unlink", "Rename", "Link", "Symlink", "Readlink", "Chmod", "Chown", "Truncate",
		"Mknod", "Stat", "Lstat", "Rmdir"},
}

// source is a parsed file of the module.
type source struct {
	rel  string // from the top of the module
	fset *token.FileSet
	file *ast.File
}

// sources parses the module's files below dir that are not tests.
func sources(t *testing.T, dir string) []source {
	t.Helper()
	base := top(t)
	var all []source
	err := filepath.WalkDir(filepath.Join(base, dir), func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return err
		}
		rel, err := filepath.Rel(base, p)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, p, nil, parser.SkipObjectResolution)
		all = append(all, source{rel, fset, f})
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return all
}

// exceptionOf returns why a file may call the file system, "" if it may not.
func exceptionOf(rel string) string {
	for prefix, why := range exceptions {
		if rel == prefix || strings.HasPrefix(rel, prefix+"/") {
			return why
		}
	}
	return ""
}

// calls returns the file-system calls of one file, as "os.Open at line 7".
func calls(s source) []string {
	local := map[string]string{} // the name in this file -> package
	for _, imp := range s.file.Imports {
		p, _ := strconv.Unquote(imp.Path.Value)
		if _, ok := fileCalls[p]; !ok {
			continue
		}
		name := p[strings.LastIndexByte(p, '/')+1:]
		if imp.Name != nil {
			name = imp.Name.Name
		}
		local[name] = p
	}
	var found []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if id, ok := sel.X.(*ast.Ident); ok && slices.Contains(fileCalls[local[id.Name]], sel.Sel.Name) {
			found = append(found, local[id.Name]+"."+sel.Sel.Name+" at line "+strconv.Itoa(s.fset.Position(sel.Pos()).Line))
		}
		return true
	})
	return found
}

// In confinedDirs, only package beneath and the other code listed in exceptions makes file-system
// calls. Code that cannot open a file cannot forget a check.
func TestFileCalls(t *testing.T) {
	used := map[string]bool{}
	files := 0
	for _, dir := range confinedDirs {
		for _, s := range sources(t, dir) {
			files++
			found := calls(s)
			if len(found) == 0 {
				continue
			}
			if exceptionOf(s.rel) == "" {
				t.Errorf("%s calls %s: only vfs/internal/beneath reaches files, under a lease; "+
					"if this file's calls reach no root, add it to exceptions with the reason", s.rel, strings.Join(found, ", "))
			}
			used[s.rel] = true
		}
	}
	for rel, why := range exceptions {
		if strings.HasSuffix(rel, ".go") && !used[rel] {
			t.Errorf("%s is excepted (%s) but has no such call: drop it from the list", rel, why)
		}
	}
	if files < 40 || !used["vfs/internal/beneath/descriptors.go"] {
		t.Errorf("%d files were looked at, calls found in %d: the search itself is broken", files, len(used))
	}
}

// A descriptor that is passed through to the kernel cannot be revoked. So no type has the
// method that go-fuse calls to pass one through.
func TestNoPassthrough(t *testing.T) {
	for _, s := range sources(t, ".") {
		ast.Inspect(s.file, func(n ast.Node) bool {
			if f, ok := n.(*ast.FuncDecl); ok && f.Name.Name == "PassthroughFd" {
				t.Errorf("%s:%d: PassthroughFd: a descriptor passed through cannot be revoked", s.rel, s.fset.Position(f.Pos()).Line)
			}
			if f, ok := n.(*ast.Field); ok && slices.ContainsFunc(f.Names, func(id *ast.Ident) bool { return id.Name == "PassthroughFd" }) {
				t.Errorf("%s:%d: PassthroughFd: a descriptor passed through cannot be revoked", s.rel, s.fset.Position(f.Pos()).Line)
			}
			return true
		})
	}
}

// No Go file has more than 500 lines: a longer file holds more than one group of calls.
func TestFileLength(t *testing.T) {
	const most = 500
	base := top(t)
	err := filepath.WalkDir(base, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && p != base {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(p, ".go") {
			return nil
		}
		b, err := os.ReadFile(p)
		if n := strings.Count(string(b), "\n"); n > most {
			rel, _ := filepath.Rel(base, p)
			t.Errorf("%s has %d lines, more than %d: split it by group of calls", rel, n, most)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
