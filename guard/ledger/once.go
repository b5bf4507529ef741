package ledger

import (
	"errors"
	"sync"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// A grant for one use (Policy.Once) is for a single file. Looking at the file (its name, its
// attributes) does not count as a use. The use begins with the first operation that reads or
// changes the file, and belongs to the subject and the front end of that operation:
//
//   - A use that begins with an opening lasts until the last copy of the descriptor and the
//     last mapping are closed. Until then, what the subject does to the file through the same
//     front end is part of the use, except opening the file again.
//   - Any other operation, such as a server's files/read or files/write, is the whole use.
//     An operation that fails without having moved a byte does not count, unless it was
//     answered before its system calls had ended.
//
// During the use, an operation that would begin another use is refused. After the use the root
// ends as by a revocation. Once.done stays true until the root has ended, so that no second use
// begins. Watching a file that is granted for one use is refused.

// Once is the one use of a root.
type Once struct {
	mu      sync.Mutex    // guards the fields below
	begun   bool          // the use has begun
	done    bool          // the use is over
	open    int           // open files that belong to the use
	subject rules.Subject // whose use it is
	via     rules.Via     // the front end through which the use began
}

// Use is an operation on the file, which may begin the one use or be a part of it.
type Use struct {
	Op      names.Op
	Subject rules.Subject
	Via     rules.Via
	Quiet   bool // the operation is one step of another operation
	Dry     bool // the operation is a dry run
}

var (
	errUsed    = errors.New("the file is granted for one use, which has begun; for another use the owner has to grant it again")
	errNoWatch = errors.New("a file that is granted for one use cannot be watched; read it instead")
)

// Admit admits or refuses an operation. began reports whether the use begins with it.
func (o *Once) Admit(u Use) (began bool, err error) {
	if rules.OnlyLooks(u.Op) {
		return false, nil
	}
	if u.Op == names.OpWatch {
		return false, &names.Error{Kind: names.Permission, Err: errNoWatch}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.done:
		return false, &names.Error{Kind: names.Revoked}
	case !o.begun && u.Dry:
		return false, nil
	case !o.begun:
		o.begun, o.subject, o.via = true, u.Subject, u.Via
		return true, nil
	case o.open > 0 && o.subject == u.Subject && o.via == u.Via && (u.Op != names.OpOpen || u.Quiet):
		return false, nil
	}
	return false, &names.Error{Kind: names.Permission, Err: errUsed}
}

// AddOpen counts one more open file. The use lasts at least until RemoveOpen is called for it.
func (o *Once) AddOpen() {
	o.mu.Lock()
	o.open++
	o.mu.Unlock()
}

// RemoveOpen counts one open file less. done reports whether this ended the use.
func (o *Once) RemoveOpen() (done bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == 0 {
		return false
	}
	o.open--
	o.done = o.open == 0
	return o.done
}

// End ends the operation that began the use. If used is false, the operation does not count
// as a use. done reports whether the use is over.
func (o *Once) End(used bool) (done bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case !used:
		o.begun = false
	case o.open == 0:
		o.done = true
	}
	return o.done
}

// State returns the use's state as `rootsfs status` shows it.
func (o *Once) State() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.done:
		return "used"
	case o.begun:
		return "in use"
	}
	return "unused"
}
