package rules

import (
	"fmt"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Rights are the rights of a grant, one bit each.
type Rights uint16

// The rights.
const (
	Read   Rights = 1 << iota // contents and attributes of files, link targets
	List                      // names in directories
	Write                     // contents and attributes of existing files, anywhere in them
	Append                    // contents, at the end of existing files only
	Create                    // new names: files, directories, links
	Delete                    // removing names
	Rename                    // moving names
	Watch                     // reports of changes
	rightsEnd
)

// Stage keeps the changes of programs apart until the owner applies them: the root looks
// writable to programs, and its directory stays unchanged. Stage is no right: it allows nothing by
// itself, and no operation requires it.
const Stage Rights = 1 << 15

// Modes: short names for common rights.
const (
	ReadOnly  = Read | List | Watch
	ReadWrite = rightsEnd - 1
	// MutatingRights are the rights to change a root. A root without any of them is read-only,
	// and refuses changes with EROFS rather than EACCES.
	MutatingRights = Write | Append | Create | Delete | Rename
)

// stageName is the word for Stage. Alone it is the mode that allows everything and keeps the
// changes apart.
const stageName = "stage"

// stagedReadOnly is the mode of a staged root that programs can only read for now.
const stagedReadOnly = "ro," + stageName

var rightNames = []string{"read", "list", "write", "append", "create", "delete", "rename", "watch"}

// String returns the mode's name if there is one, else the comma list of rights.
func (r Rights) String() string {
	switch r {
	case ReadOnly:
		return "ro"
	case ReadWrite:
		return "rw"
	case ReadWrite | Stage:
		return stageName
	case ReadOnly | Stage:
		return stagedReadOnly
	case 0:
		return "none"
	}
	var list []string
	for i, n := range rightNames {
		if r&(1<<i) != 0 {
			list = append(list, n)
		}
	}
	if r&Stage != 0 {
		list = append(list, stageName)
	}
	return strings.Join(list, ",")
}

// ParseMode reads "ro", "rw", "stage" or a comma list of rights. With "stage" in a list, the
// changes that the list allows are kept apart.
func ParseMode(s string) (Rights, error) {
	switch s {
	case "ro":
		return ReadOnly, nil
	case "rw":
		return ReadWrite, nil
	case stageName:
		return ReadWrite | Stage, nil
	case stagedReadOnly:
		return ReadOnly | Stage, nil
	}
	var r Rights
	for word := range strings.SplitSeq(s, ",") {
		bit := Rights(0)
		if word == stageName {
			bit = Stage
		}
		for i, n := range rightNames {
			if n == word {
				bit = 1 << i
			}
		}
		if bit == 0 {
			return 0, &names.Error{Kind: names.Invalid, Err: fmt.Errorf(
				"unknown mode %s: write ro, rw, stage, or a comma list of %s", names.QuoteShort(s), strings.Join(rightNames, ", "))}
		}
		r |= bit
	}
	return r, nil
}

// MarshalText implements encoding.TextMarshaler.
func (r Rights) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Rights) UnmarshalText(text []byte) (err error) {
	*r, err = ParseMode(string(text))
	return err
}

// Valid reports whether the rights are those of a root: at least one, and no other bits.
func (r Rights) Valid() bool { return r&ReadWrite != 0 && r&^(ReadWrite|Stage) == 0 }

// Staged reports whether changes are staged.
func (r Rights) Staged() bool { return r&Stage != 0 }

// AsStaged returns the rights with all changes staged. Rights that change nothing stay as they are.
func (r Rights) AsStaged() Rights {
	if r.Mutating() {
		return r | Stage
	}
	return r
}

// Visible returns the rights that programs see. No program learns that a root is staged.
func (r Rights) Visible() Rights { return r &^ Stage }

// WiderThan reports whether the rights allow something that other does not: a right, or
// changes that are not staged.
func (r Rights) WiderThan(other Rights) bool {
	return r&^other&^Stage != 0 || other.Staged() && !r.Staged() && r.Mutating()
}

// Mutating reports whether the rights can change anything.
func (r Rights) Mutating() bool { return r&MutatingRights != 0 }

// required says which rights an operation requires: each right in the field all, and at least
// one right in the field any. Some arguments require more rights (open for writing, rename over an
// existing name). These further rights are in guard.Request.Need.
type required struct{ all, any Rights }

// anything, as required.any, is met by every right: a caller that has any right in a root has
// to be able to walk the root.
const anything = rightsEnd - 1

// requiredRights is the one table from operations to rights. An operation that is not in it
// has any == 0, which Lacked refuses. So a new operation is denied until it has a row here.
var requiredRights = [names.Ops]required{
	names.OpLookup:        {any: anything},
	names.OpGetattr:       {any: anything},
	names.OpStatfs:        {any: anything},
	names.OpOpendir:       {all: List, any: anything},
	names.OpReaddir:       {all: List, any: anything},
	names.OpReadlink:      {all: Read, any: anything},
	names.OpOpen:          {any: anything}, // plus Request.Need from the open flags
	names.OpRead:          {all: Read, any: anything},
	names.OpWrite:         {any: Write | Append | Create}, // plus Request.Need; Create alone is for files just created
	names.OpCreate:        {all: Create, any: anything},
	names.OpTmpfile:       {all: Create, any: anything},
	names.OpMkdir:         {all: Create, any: anything},
	names.OpMknod:         {all: Create, any: anything},
	names.OpSymlink:       {all: Create, any: anything},
	names.OpLink:          {all: Create, any: anything},
	names.OpUnlink:        {all: Delete, any: anything},
	names.OpRmdir:         {all: Delete, any: anything},
	names.OpRename:        {all: Rename, any: anything},
	names.OpSetattr:       {any: Write | Create}, // with Create alone: see guard.Lease.MayChange
	names.OpTruncate:      {any: Write | Create}, // as OpWrite: see vfs.Tree.Setattr
	names.OpAllocate:      {all: Write, any: anything},
	names.OpFsync:         {any: anything},
	names.OpFlush:         {any: anything},
	names.OpLseek:         {any: Read | Write},
	names.OpCopyFileRange: {all: Read, any: anything},
	names.OpGetxattr:      {any: Read | List},
	names.OpListxattr:     {any: Read | List},
	names.OpSetxattr:      {all: Write, any: anything},
	names.OpRemovexattr:   {all: Write, any: anything},
	names.OpGetlk:         {any: anything},
	names.OpSetlk:         {any: anything},
	names.OpWatch:         {all: Watch, any: anything},
	names.OpReplace:       {any: Write | Create},
	// Only the owner calls these (vfs.Tree.TrashList and so on), and needs no particular right.
	names.OpTrash:   {any: anything},
	names.OpRestore: {any: anything},
	names.OpEmpty:   {any: anything},
	// Likewise for these: vfs.Tree.StageChanges and so on.
	names.OpStage:   {any: anything},
	names.OpApply:   {any: anything},
	names.OpDiscard: {any: anything},
	names.OpUndo:    {any: anything},
}

// Lacked returns the rights that op lacks in a root whose rights are have. It returns none if op is
// allowed. If any of several rights would be enough, it returns all of these. extra are the rights
// that the arguments of op require.
func Lacked(op names.Op, extra, have Rights) Rights {
	if have&Write != 0 {
		have |= Append // the right to write anywhere includes the end
	}
	var r required
	if int(op) < len(requiredRights) {
		r = requiredRights[op]
	}
	switch lacks := (r.all | extra) &^ have; {
	case r.any == 0:
		return anything
	case lacks != 0:
		return lacks
	case r.any&have == 0:
		return r.any
	}
	return 0
}

// RequiredRights returns the rights that every call of an operation requires, whatever its
// arguments. Rights of which any one is enough are not among them. ok is false if there is no such
// operation.
func RequiredRights(op names.Op) (all Rights, ok bool) {
	if int(op) >= len(requiredRights) {
		return 0, false
	}
	return requiredRights[op].all, true
}

// Plainest returns the rights that the owner should add for an operation that lacks some. If any of
// several rights would be enough, and Write is one of them, it returns Write.
func Plainest(op names.Op, lacks Rights) Rights {
	if int(op) < len(requiredRights) && lacks == requiredRights[op].any && lacks&Write != 0 {
		return Write
	}
	return lacks
}

// Refusal returns the error of an operation that lacks the rights r in a root whose rights are have:
// names.ReadOnly (EROFS) if the root is read-only and the operation would change it, otherwise
// names.Permission (EACCES).
func (r Rights) Refusal(have Rights) error {
	if r.Mutating() && !have.Mutating() {
		return &names.Error{Kind: names.ReadOnly}
	}
	return &names.Error{Kind: names.Permission}
}
