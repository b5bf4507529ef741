package guardtest

import (
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// rightsCases: R110: each right alone against each operation. The table is
// written out by hand, not taken from package guard, so that a slip there shows.
func rightsCases() []Case {
	table := []struct {
		call  Call
		takes guard.Rights // any of these is enough; 0: any right at all
	}{
		{stat("code/a"), 0},
		{read("code/a", whatever), guard.Read},
		{readlink("code/l", whatever), guard.Read},
		{list("code"), guard.List},
		{write("code/a", "x"), guard.Write},
		{truncate("code/a", 1), guard.Write},
		{setxattr("code/a", "user.x"), guard.Write},
		{chmod("code/a", 0o600), guard.Write},
		{write("code/new", ""), guard.Create},
		{mkdir("code/newdir"), guard.Create},
		{symlink("a", "code/l2"), guard.Create},
		{link("code/a", "code/a2"), guard.Create},
		{remove("code/a"), guard.Delete},
		{remove("code/empty"), guard.Delete},
		{rename("code/a", "code/a3"), guard.Rename},
	}
	const reading = guard.Read | guard.List | guard.Watch
	var all []Case
	for _, right := range []guard.Rights{guard.Read, guard.List, guard.Write, guard.Append, guard.Create, guard.Delete, guard.Rename, guard.Watch} {
		for _, row := range table {
			c := Case{Name: "rights/" + right.String() + "/" + row.call.Text, Req: "R110",
				Tree: []string{"a=hello", "empty/", "l => a"}, Policy: guard.Policy{Rights: right}, Call: row.call, Unguarded: true}
			switch {
			case row.takes == 0:
			case row.takes&right != 0:
				c.Unguarded = false // the front end's call has succeeded, so the same call on the bare file system may fail
			case right&reading != 0 && row.takes&reading == 0:
				c.Want = names.ReadOnly // nothing in this root changes, whatever the operation
			default:
				c.Want = names.Permission
			}
			all = append(all, c)
		}
	}
	return append(all,
		Case{Name: "rights/create/chmod-made", Req: "R110", Tree: []string{"a=hello"}, Policy: guard.Policy{Rights: guard.Create},
			Steps: []Call{mkdir("code/newdir")}, Call: chmod("code/newdir", 0o700)},
		Case{Name: "rights/create/contents", Req: "R162", Tree: []string{"a=hello"}, Policy: guard.Policy{Rights: guard.Create},
			Call: write("code/new", "text"), Check: func(e *Env) { e.Contents(e.Src+"/new", "text") }},
		Case{Name: "rights/create/no-second-time", Req: "R162", Tree: []string{"a=hello"}, Policy: guard.Policy{Rights: guard.Create},
			Steps: []Call{write("code/new", "text")}, Call: write("code/new", "other"), Want: names.Permission, Unguarded: true,
			Check: func(e *Env) { e.Contents(e.Src+"/new", "text") }},
		Case{Name: "rights/append/append", Req: "R110", Tree: []string{"a=hello"}, Policy: guard.Policy{Rights: guard.Append},
			Call: appendTo("code/a", "!"), Check: func(e *Env) { e.Contents(e.Src+"/a", "hello!") }},
		Case{Name: "rights/rename/no-replacing", Req: "R110", Tree: []string{"a=hello", "b=kept"}, Policy: guard.Policy{Rights: guard.Rename},
			Call: rename("code/a", "code/b"), Want: names.Exist, Unguarded: true,
			Check: func(e *Env) { e.Contents(e.Src+"/b", "kept") }},
	)
}
