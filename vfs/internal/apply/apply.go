// Package apply compares the changes of a staged root with its source, and applies them to the
// source.
//
// # Promises
//
// Plan changes nothing. If the owner has changed a file since a program first changed it, the
// file is a conflict, and not overwritten. If the owner then asks for the stage's file, the
// source's goes to the trash. A file of the source has at each moment its old contents or all
// of the new ones. After a crash, Recover finishes or takes back each step that had begun. No
// link is followed, in the stage or in the source.
//
// # Not promised
//
// Several files are not applied in one transaction: each is applied by itself.
package apply

import (
	"context"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
	"github.com/rootsfs/rootsfs/vfs/internal/trash"
)

// Class says what applying a change would do, or why it is not applied.
type Class byte

// The classes. Those from Conflict on are not applied.
const (
	Same      Class = 0 // nothing to do; not listed
	New       Class = 'A'
	Changed   Class = 'M' // contents
	Mode      Class = 'm' // the mode or the attributes alone
	Removed   Class = 'D'
	Replaced  Class = 'T' // by something of another kind
	Conflict  Class = 'C' // the owner has changed it, too; or another reason, see Change.Why
	InUse     Class = 'W' // somebody has it open for writing, or a program has just changed it
	Protected Class = 'P' // the present policy protects or hides the name
	Link      Class = 'L' // a link that leaves the root
	Special   Class = 'S' // a device, FIFO or socket
	Unsure    Class = '?' // written shortly before the machine stopped
	Refused   Class = 'X' // the file system of the source refuses it
)

// Applies reports whether changes of the class can be applied.
func (c Class) Applies() bool { return strings.IndexByte("AMmDT", byte(c)) >= 0 }

// Blocks reports whether a change of the class keeps all others from being applied, unless the
// owner asks for a partial apply.
func (c Class) Blocks() bool { return strings.IndexByte("CWPL?X", byte(c)) >= 0 }

// Change is the change of one path by the stage.
type Change struct {
	Path          names.Foreign // below the root
	Class         Class
	Mode, OldMode uint32 // of the stage's file and the source's, as in stat(2); 0: no file
	Size, OldSize int64
	Why           names.Text    // why the change is not applied: a clause, with names quoted
	Output        names.Foreign // the build output that it belongs to, below the root; "": none

	want, have side           // the file of the stage, and that of the source
	mode       uint32         // the mode that the file gets
	prepared   *prepared      // see Env.Prepare; nil: not prepared
	isTaken    bool           // the owner asked for the stage's file: the source's must go to the trash
	appliedID  rules.Identity // the source's file, once it has the change
}

// applied describes the change for the stage, once the source has it.
func (c *Change) applied() beneath.Applied {
	return beneath.Applied{Path: c.Path.Raw(), Upper: c.want.info, Source: c.appliedID}
}

// side describes the file that the stage or the source has at a path.
type side struct {
	exists bool
	info   beneath.Info
}

func (s *side) isDir() bool { return s.exists && s.info.IsDir() }

// Env gives the operations of this package access to the tree.
type Env struct {
	Root  guard.RootName
	Trash *trash.Store
	// Output says what is build output.
	Output Output
	// IsWritten reports whether a program has a file open for writing.
	IsWritten func(rules.Identity) bool
	// StaysInside refuses a link's target that leads out of the root.
	StaysInside func(l *guard.Lease, dir guard.Path, target string) error
}

// AtStep, unless nil, is called at points of an operation. Tests set it: if it returns an
// error, the operation ends there, as if the process were killed.
var AtStep func(point, path string) error

func atStep(point, path string) error {
	if AtStep == nil {
		return nil
	}
	return AtStep(point, path)
}

// applier is one operation on a stage.
type applier struct {
	Env
	ctx   context.Context
	l     *guard.Lease
	st    beneath.Stage
	store *draft.Store
	// writables caches the results of writable, by directory, during Plan; nil: nothing is cached.
	writables map[string]writableResult
}

func (e Env) begin(ctx context.Context, l *guard.Lease) applier {
	st, _ := beneath.StageOf(l)
	return applier{Env: e, ctx: ctx, l: l, st: st, store: st.Store()}
}

// splitRel splits a path into its directory and its last element.
func splitRel(rel string) (parent, base string) {
	i := strings.LastIndexByte(rel, '/')
	return rel[:max(i, 0)], rel[i+1:]
}

// lookSource describes the file that the source has at a path. If a directory of the path is a
// link, the error is ELOOP.
func (a *applier) lookSource(rel string) (side, error) {
	return look(a.st.Source(a.l).Below(rel, false))
}

// look describes and closes d, the result of resolving a path. err is the error of the
// resolution. If err says that there is no file, look returns an empty side and no error.
func look(d beneath.Dir, err error) (side, error) {
	if beneath.IsAbsent(err) {
		return side{}, nil
	}
	if err != nil {
		return side{}, err
	}
	defer d.Close()
	info, err := d.Own()
	return side{err == nil, info}, err
}

// lookUpper describes the file that the upper directory has at a path. Below a link it finds
// nothing.
func (a *applier) lookUpper(rel string) (side, error) {
	got, err := look(a.st.Upper(rel, false))
	if err == unix.ELOOP { //nolint:errorlint // bare errno
		return side{}, nil
	}
	return got, err
}

// selects reports whether a path is one of paths or lies below one. If paths is empty, every
// path is selected.
func selects(paths []string, rel string) bool {
	for _, p := range paths {
		if p == "" || rel == p || strings.HasPrefix(rel, p+"/") {
			return true
		}
	}
	return len(paths) == 0
}
