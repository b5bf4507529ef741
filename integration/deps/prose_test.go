package deps

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// recordTypes are types whose field Detail is the text of a record for people.
var recordTypes = []string{"guard.Record", "guard.Event", "guard/audit.Entry", "cmd/rootsfs/internal/auditview.Entry", "cmd/rootsfs/internal/control.Event", "cmd/rootsfs/internal/control.Operation"}

// detailTakers lists the functions that may get a Detail because they bound or encode it.
// The functions of package names and the printers may get a Detail, too.
var detailTakers = []string{"len", "append", "clip", "detail", "textBound"}

// printers print their arguments, or add them to a log.
var printers = []string{"Sprintf", "Sprint", "Fprintf", "say", "add", "Warn", "Info", "Error", "Debug"}

// No code in cmd or broker reads the text that a record has for people: the facts that programs
// need are fields of guard.Facts. The code may only print, bound or encode the Detail of a record,
// copy it to another Detail, or compare it with "".
func TestNoProgramReadsDetails(t *testing.T) {
	found := 0
	for _, c := range load(t) {
		for _, f := range c.files {
			stack := []ast.Node{}
			ast.Inspect(f, func(n ast.Node) bool {
				if n == nil {
					stack = stack[:len(stack)-1]
					return true
				}
				if sel, ok := n.(*ast.SelectorExpr); ok && c.isDetail(sel) {
					found++
					if !c.mayUseDetail(sel, stack) {
						t.Errorf("%s uses the words of a record: read a field of guard.Facts, or add one", c.fset.Position(n.Pos()))
					}
				}
				stack = append(stack, n)
				return true
			})
		}
	}
	if found < 10 {
		t.Errorf("only %d uses of a record's Detail were found", found)
	}
}

// isDetail reports whether an expression is the Detail of a record.
func (c *typedPackage) isDetail(sel *ast.SelectorExpr) bool {
	t := c.info.Types[sel.X].Type
	if sel.Sel.Name != "Detail" || t == nil {
		return false
	}
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	return slices.Contains(recordTypes, strings.TrimPrefix(t.String(), module+"/"))
}

// mayUseDetail reports whether the nodes around a Detail use the Detail only as
// TestNoProgramReadsDetails permits. The innermost node is the last one.
func (c *typedPackage) mayUseDetail(sel *ast.SelectorExpr, around []ast.Node) bool {
	for i := len(around) - 1; i >= 0; i-- {
		switch n := around[i].(type) {
		case *ast.AssignStmt:
			at := slices.IndexFunc(n.Rhs, func(e ast.Expr) bool { return e.Pos() <= sel.Pos() && sel.End() <= e.End() })
			return at < 0 || isDetailName(n.Lhs[min(at, len(n.Lhs)-1)])
		case *ast.KeyValueExpr:
			return isDetailName(n.Key)
		case *ast.BinaryExpr:
			if n.Op == token.EQL || n.Op == token.NEQ {
				return isEmptyText(n.X) || isEmptyText(n.Y)
			}
		case *ast.CompositeLit: // the parts of a text that are joined
		case *ast.CallExpr:
			return takesDetail(n)
		case *ast.RangeStmt:
			return true // over the parts of a Detail that is put together
		}
	}
	return false
}

// isDetailName reports whether an expression is a variable, a field or a key that holds a Detail.
func isDetailName(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return strings.EqualFold(e.Name, "detail")
	case *ast.SelectorExpr:
		return isDetailName(e.Sel)
	}
	return false
}

func isEmptyText(e ast.Expr) bool {
	lit, ok := e.(*ast.BasicLit)
	return ok && lit.Value == `""`
}

// takesDetail reports whether the function of a call may get a Detail.
func takesDetail(call *ast.CallExpr) bool {
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		return slices.Contains(detailTakers, fun.Name)
	case *ast.SelectorExpr:
		if pkg, ok := fun.X.(*ast.Ident); ok && pkg.Name == "names" {
			return true
		}
		return slices.Contains(detailTakers, fun.Sel.Name) || slices.Contains(printers, fun.Sel.Name)
	}
	return false
}
