package rules

import (
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// Access is the kind of access that an operation has to a name.
type Access uint8

// The accesses. A denied name permits ToLook only; a protected one ToLook and ToRead.
const (
	ToLook   Access = iota + 1 // whether the name exists, attributes
	ToRead                     // contents, names in a directory, the target of a link
	ToChange                   // contents, attributes, the name itself
	ToMake                     // create the name, or give it new contents
)

// accesses is the one table from operations to accesses, for the name an
// operation is about. An operation that is not in the table has the access ToChange.
var accesses = [names.Ops]Access{
	names.OpLookup: ToLook, names.OpGetattr: ToLook, names.OpStatfs: ToLook, names.OpFlush: ToLook,
	names.OpFsync: ToLook, names.OpReadlink: ToRead, names.OpOpendir: ToRead, names.OpReaddir: ToRead,
	names.OpOpen: ToRead, names.OpRead: ToRead, names.OpLseek: ToRead, names.OpCopyFileRange: ToRead,
	names.OpGetxattr: ToRead, names.OpListxattr: ToRead, names.OpGetlk: ToRead, names.OpSetlk: ToRead,
	names.OpWatch: ToRead, names.OpCreate: ToMake, names.OpTmpfile: ToMake, names.OpMkdir: ToMake,
	names.OpMknod: ToMake, names.OpSymlink: ToMake, names.OpLink: ToMake, names.OpReplace: ToMake,
}

// AccessOf returns the access of an operation to its name. need are the rights that the operation's
// arguments require in addition. makes says that the operation creates the name.
func AccessOf(op names.Op, need Rights, makes bool) Access {
	a := ToChange
	if int(op) < len(accesses) && accesses[op] != 0 {
		a = accesses[op]
	}
	switch {
	case op == names.OpOpen && need.Mutating():
		return ToChange
	case a == ToChange && makes:
		return ToMake
	}
	return a
}

// OnlyLooks reports whether an operation reads no contents and changes nothing: its access is
// ToLook, or it reads extended attributes.
func OnlyLooks(op names.Op) bool {
	return accesses[op] == ToLook || op == names.OpGetxattr || op == names.OpListxattr
}

// createdType returns the type of the file that an operation creates; pattern.Unknown if the
// operation alone does not determine the type.
func createdType(op names.Op) pattern.Type {
	switch op {
	case names.OpMkdir:
		return pattern.Dir
	case names.OpSymlink:
		return pattern.Link
	case names.OpCreate, names.OpMknod, names.OpReplace, names.OpWrite:
		return pattern.Other
	}
	return pattern.Unknown
}

// removesName reports whether an operation removes a name, or moves its file to another name.
func removesName(op names.Op) bool {
	return op == names.OpUnlink || op == names.OpRmdir || op == names.OpRename
}
