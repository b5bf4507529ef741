package deps

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// command matches the beginning of a command that a text tells its reader to type, and commandEnd
// its end. verb matches a verb of a format for package fmt.
var (
	command    = regexp.MustCompile(`(?:^|[^\w-])(?:rootsfs [a-z]+|chmod|mkdir|mv|rm|kill -\w+|umount|fusermount3 -|fuser -|(?:say|add|write|with) --[a-z-]+ )`)
	commandEnd = regexp.MustCompile(`;|, | \(|\)|: |\n|&&|…| confines `)
	verb       = regexp.MustCompile(`%(?:\[(\d+)\])?[-+# 0]*\d*(?:\.\d+)?([a-zA-Z%])`)
)

// ownWords are functions and fields whose values need no names.ShellWord, and why: rootsfs itself
// chose these words.
var ownWords = map[string]string{
	"shortID":      "digits and letters of an id that rootsfs made",
	"strconv.Itoa": "digits",
	".ID":          "digits and letters of an id that rootsfs made",
}

// unquoted finds the words in printed commands that no function has quoted.
func unquoted(fset *token.FileSet, file *ast.File) (found []string) {
	for _, decl := range file.Decls {
		quoted := map[string]bool{} // variables that hold a quoted word
		ast.Inspect(decl, func(n ast.Node) bool {
			if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == 1 && len(a.Rhs) == 1 {
				if name, ok := a.Lhs[0].(*ast.Ident); ok && isQuoted(a.Rhs[0], nil) {
					quoted[name.Name] = true
				}
			}
			return true
		})
		report := func(at ast.Node, text string) {
			found = append(found, fset.Position(at.Pos()).String()+": "+strconv.Quote(text))
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				for i, arg := range n.Args {
					text, ok := literal(arg)
					if !ok {
						continue
					}
					for _, at := range commandVerbs(text) {
						if at = i + at; at < len(n.Args) && !isQuoted(n.Args[at], quoted) {
							report(n, text)
						}
					}
				}
			case *ast.BinaryExpr:
				left := n.X
				if b, ok := left.(*ast.BinaryExpr); ok {
					left = b.Y
				}
				text, ok := literal(left)
				if _, both := literal(n.Y); n.Op != token.ADD || !ok || both {
					break
				}
				if starts := command.FindAllStringIndex(text, -1); starts != nil {
					rest := text[starts[len(starts)-1][1]:]
					if !commandEnd.MatchString(rest) && !isQuoted(n.Y, quoted) {
						report(n, text)
					}
				}
			}
			return true
		})
	}
	return found
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

// commandVerbs returns the numbers of a format's arguments that are printed in a command. The first
// argument has the number 1. Arguments that %d or %o prints are left out.
func commandVerbs(format string) (args []int) {
	next := 1
	starts := command.FindAllStringIndex(format, -1)
	for _, m := range verb.FindAllStringSubmatchIndex(format, -1) {
		if format[m[4]] == '%' {
			continue
		}
		arg := next
		if m[2] >= 0 {
			arg, _ = strconv.Atoi(format[m[2]:m[3]]) // digits
		}
		next = arg + 1
		for _, s := range starts {
			if s[1] <= m[0] && !commandEnd.MatchString(format[s[1]:m[0]]) && format[m[4]] != 'd' && format[m[4]] != 'o' {
				args = append(args, arg)
			}
		}
	}
	return args
}

// isQuoted reports whether an expression is a quoted word or one of ownWords. vars are the
// variables that hold a quoted word.
func isQuoted(e ast.Expr, vars map[string]bool) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return vars[e.Name]
	case *ast.SelectorExpr:
		return ownWords["."+e.Sel.Name] != ""
	case *ast.CallExpr:
		name := ""
		switch f := e.Fun.(type) {
		case *ast.Ident:
			name = f.Name
		case *ast.SelectorExpr:
			name = f.Sel.Name
			if x, ok := f.X.(*ast.Ident); ok {
				name = x.Name + "." + name
			}
		}
		return strings.HasSuffix(name, "ShellWord") || ownWords[name] != ""
	}
	return false
}

// If a program prints a command for a person to type, each word that is inserted in the command is
// quoted for the shell: a server or a repository may have chosen the word. Numbers and ownWords
// need no quotes.
func TestPrintedCommandsAreQuoted(t *testing.T) {
	for _, dir := range []string{"cmd", "broker", "mount", "guard", "vfs"} {
		for _, s := range sources(t, dir) {
			if strings.HasPrefix(s.rel, "guard/guardtest/") {
				continue // its texts name system calls, such as chmod, and are no commands
			}
			for _, f := range unquoted(s.fset, s.file) {
				t.Errorf("%s holds a command with a word that is not quoted: use names.ShellWord", f)
			}
		}
	}
}

// unquoted finds the unquoted words in commands, and no others.
func TestUnquotedIsFound(t *testing.T) {
	const before = "package p\nfunc f(){ "
	for text, want := range map[string]int{
		`say("do: rootsfs unmount %s", shown(p))`: 1, `say("do: rootsfs unmount %s", names.ShellWord(p))`: 0,
		`say("%s; write rootsfs roots add %s=%s", e, a, b)`: 2, `say("%s is open: chmod 0700 %[1]s", p)`: 1, `p := names.ShellWord(x); say("%s: mkdir -p %[1]s", p)`: 0,
		`x = "its directory is gone: rootsfs roots renew " + names.Escape(name)`: 1, `x = a + "; rootsfs unmount " + name`: 1, `x = "see: rootsfs status; " + name`: 0,
		`say("see: rootsfs roots list, and name %s", a)`: 0, `say("kill -KILL %d", pid)`: 0, `say("add --root %s", spec)`: 1, `say("rootsfs consent deny %s", shortID(q))`: 0,
	} {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, "p.go", before+text+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := unquoted(fset, file); len(got) != want {
			t.Errorf("%s: found %q, want %d", text, got, want)
		}
	}
}
