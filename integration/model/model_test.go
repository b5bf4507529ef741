package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The smallest configurations hold, and Spin finds the faults of the fastest mutations.
// `make model` runs all configurations and mutations.
func TestSmallest(t *testing.T) {
	if _, err := exec.LookPath("spin"); err != nil {
		t.Skip("spin is missing: sh integration/setup.sh model installs it")
	}
	remaining := []string{
		"names, attributes", "a source that hangs for longer than the deadline",
		"no drain of requests", "no second round", "answers that wait for a peer that does not read", "no second look at an answer", "the gate leaves the end of a lease to a timer", "calls are not counted (F2)", "a request belongs to its last view only (F3)",
	}
	for i := range tables {
		for _, r := range tables[i].runs {
			at := slices.Index(remaining, r.name)
			if at < 0 {
				continue
			}
			remaining = slices.Delete(remaining, at, at+1)
			t.Run(r.name, func(t *testing.T) {
				o := outcome{run: r}
				o.result, o.err = search(t.Context(), r, tables[i].faulty)
				if v := tables[i].verdict(&o); v != ok {
					t.Error(v)
				}
			})
		}
	}
	if len(remaining) > 0 {
		t.Errorf("no table has %q", remaining)
	}
}

// A search fails if it was cut short, if it found no fault in a wrong model, or if it found a
// fault in a right one.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		name, report string
		faulty       bool
		want         string
	}{
		{"holds", pansReport(0) + "   10 states, stored\n", false, ok},
		{"too deep", "error: max search depth too small\n" + pansReport(0) + "   10 states, stored\n", false, "not exhaustive"},
		{"out of memory", "pan: reached -DMEMLIM bound\nWarning: Search not completed\n" + pansReport(0) + "   10 states, stored\n", false, "not exhaustive"},
		{"fails", "pan:1: assertion violated x (at depth 7)\n" + pansReport(1) + "   10 states, stored\n", false, "assertion violated x, after 7 steps"},
		{"mutation found", "pan:1: invalid end state (at depth 7)\n" + pansReport(1) + "   10 states, stored\n", true, ok},
		{"mutation not found", pansReport(0) + "   10 states, stored\n", true, "no counterexample"},
		{"no report", "Segmentation fault\n", true, "no report"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var o outcome
			o.result, o.err = parse(c.report)
			if v := (&table{faulty: c.faulty}).verdict(&o); !strings.Contains(v, c.want) {
				t.Errorf("%q, want %q", v, c.want)
			}
		})
	}
}

// pansReport returns a part of a report of pan, the verifier that Spin generates: the lines about a
// full search that found this number of errors.
func pansReport(errors int) string {
	return fmt.Sprintf("Full statespace search for:\nState-vector 64 byte, depth reached 12, errors: %d\n", errors)
}

var (
	codeComment = regexp.MustCompile(`(?s)\bcode: (.*?)\s*\*/`)
	codeName    = regexp.MustCompile(`^([a-z/]+)\.(\(\*?\w+\)\.)?\w+$`)
	definition  = regexp.MustCompile(`(?m)^(inline|proctype) (\w+)`)
	mutation    = regexp.MustCompile(`\bM_[A-Z0-9]+`)
)

// Each step of the models has a comment with "code:" and the functions of the code that the step
// stands for, or a comment with "kernel:". The named functions exist.
func TestNamedFunctions(t *testing.T) {
	count := 0
	for file, text := range texts(t) {
		names := namedFunctions(text)
		count += len(names)
		for _, name := range missing(t, names) {
			t.Errorf("%s: there is no function %s any more: look at what has become of it, and at the step that stands for it", file, name)
		}
		defs := definition.FindAllStringSubmatchIndex(text, -1)
		last := 0
		for i, d := range defs {
			end := len(text)
			if i+1 < len(defs) {
				end = defs[i+1][0]
			}
			own := text[last:end]
			if !strings.Contains(own, "code: ") && !strings.Contains(own, "kernel: ") {
				t.Errorf("%s: %s says neither \"code: \" nor \"kernel: \"", file, text[d[2]:d[5]])
			}
			last = d[1]
		}
	}
	if count < 30 {
		t.Errorf("only %d functions are named", count)
	}
	wrong := "/* code: guard.(*root).acquires, guard.(*root).acquire, mount.lookup */"
	if got := missing(t, namedFunctions(wrong)); !slices.Equal(got, []string{"guard.(*root).acquires", "mount.lookup"}) {
		t.Errorf("of %s these are missing: %q", wrong, got)
	}
}

// A table has every mutation that is in the models, and the models have every mutation that is in
// a table.
func TestMutationsAreRun(t *testing.T) {
	inModels, inTables := map[string]bool{}, map[string]bool{}
	for _, text := range texts(t) {
		for _, m := range mutation.FindAllString(text, -1) {
			inModels[m] = true
		}
	}
	for _, table := range tables {
		for _, r := range table.runs {
			for _, m := range mutation.FindAllString(strings.Join(r.flags, " "), -1) {
				inTables[m] = true
				if !inModels[m] {
					t.Errorf("no model has %s", m)
				}
			}
		}
	}
	for m := range inModels {
		if !inTables[m] {
			t.Errorf("no table has %s", m)
		}
	}
}

// texts returns the text of each model by its file name.
func texts(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.pml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no models: %v", err)
	}
	all := map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[f] = string(b)
	}
	return all
}

// namedFunctions returns the names in the lists after "code: " in comments.
func namedFunctions(text string) (names []string) {
	for _, m := range codeComment.FindAllStringSubmatch(text, -1) {
		for name := range strings.SplitSeq(m[1], ",") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

// missing returns the names for which the source has no function. A name consists of the
// package's directory, the receiver's type in parentheses if there is a receiver, and the
// function's name.
func missing(t *testing.T, names []string) (gone []string) {
	t.Helper()
	known := map[string]map[string]bool{}
	for _, name := range names {
		m := codeName.FindStringSubmatch(name)
		if m == nil {
			t.Errorf("%q is not written as package.Function or package.(*Type).Method", name)
			continue
		}
		if known[m[1]] == nil {
			known[m[1]] = functions(t, m[1])
		}
		if !known[m[1]][name] {
			gone = append(gone, name)
		}
	}
	return gone
}

// functions returns the names of the functions of the package in dir, as the models write them.
func functions(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no package %s: %v", dir, err)
	}
	found := map[string]bool{}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				found[dir+"."+receiver(fn)+fn.Name.Name] = true
			}
		}
	}
	return found
}

// receiver returns the type of a method's receiver in parentheses and a dot, such as "(*root).". It
// returns "" for a function without a receiver.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	star, typ := "", fn.Recv.List[0].Type
	if p, ok := typ.(*ast.StarExpr); ok {
		star, typ = "*", p.X
	}
	switch g := typ.(type) {
	case *ast.IndexExpr:
		typ = g.X
	case *ast.IndexListExpr:
		typ = g.X
	}
	return fmt.Sprintf("(%s%s).", star, typ.(*ast.Ident).Name)
}
