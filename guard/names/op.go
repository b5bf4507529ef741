package names

import "strconv"

// Op is one operation of the guarded tree, named after the system call it
// stands for. Its text form is what audit records and errors carry.
type Op uint8

// The operations. New ones are appended before opCount, never inserted:
// numbers are not stored, but tables are indexed by them.
const (
	OpNone Op = iota
	OpLookup
	OpGetattr
	OpReadlink
	OpOpendir
	OpReaddir
	OpOpen
	OpRead
	OpWrite
	OpCreate
	OpTmpfile
	OpMkdir
	OpMknod
	OpSymlink
	OpLink
	OpUnlink
	OpRmdir
	OpRename
	OpSetattr
	OpTruncate
	OpAllocate
	OpFsync
	OpFlush
	OpLseek
	OpCopyFileRange
	OpGetxattr
	OpListxattr
	OpSetxattr
	OpRemovexattr
	OpStatfs
	OpGetlk
	OpSetlk
	OpWatch
	OpReplace
	OpClose
	// Operations on the registry itself: they appear in audit records only.
	OpGrant
	OpRevoke
	OpSet
	OpExpire
	OpUnavailable
	OpMount
	OpUnmount
	OpReload
	OpPanic
	// Operations of the owner's on a root's trash.
	OpTrash
	OpRestore
	OpEmpty
	// What happens to a subject that was refused too often: in audit records only.
	OpAbuse
	OpSuspend
	OpResume
	// The start of a command by rootsfs run, or its failure to start: in audit records only.
	OpRun
	// A network connection of that command's, and its end: in audit records only.
	OpConnect
	OpDisconnect
	// A request that went out with a secret of the command's: in audit records only.
	OpRequest
	opCount
)

var opNames = [opCount]string{
	"none", "lookup", "getattr", "readlink", "opendir", "readdir", "open", "read", "write",
	"create", "tmpfile", "mkdir", "mknod", "symlink", "link", "unlink", "rmdir", "rename",
	"setattr", "truncate", "allocate", "fsync", "flush", "lseek", "copy_file_range",
	"getxattr", "listxattr", "setxattr", "removexattr", "statfs", "getlk", "setlk", "watch",
	"replace", "close",
	"grant", "revoke", "set", "expire", "unavailable", "mount", "unmount", "reload", "panic",
	"trash", "restore", "empty", "abuse", "suspend", "resume",
	"run", "connect", "disconnect", "request",
}

// Ops is the number of operations; a table with one row for each has this length.
const Ops = int(opCount)

// String returns the operation's name, "op(N)" for a number that is none.
func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return "op(" + strconv.Itoa(int(o)) + ")"
}

// ParseOp is the inverse of String.
func ParseOp(s string) (Op, bool) {
	for i, n := range opNames {
		if n == s {
			return Op(i), true
		}
	}
	return OpNone, false
}
