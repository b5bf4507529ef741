package names

import "strconv"

// Op is one operation of the guarded tree. It has the name of the system call that does the
// same, if there is one. Audit records and errors have its text form.
type Op uint8

// The operations. A new one goes before opCount, and its name to the same place in opNames.
// Until the table requiredRights of guard/rules has it, Admit refuses it. Look at the other
// tables with a row for each operation, too: accesses in guard/rules, isRecorded in guard,
// harmless in guard/audit. The numbers are not stored anywhere.
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
	// Operations on the registry itself. They do not pass the gate: only audit records and
	// errors have them.
	OpGrant
	OpRevoke
	OpSet
	OpExpire
	OpUnavailable
	OpMount
	OpUnmount
	OpReload
	OpPanic
	// The owner's operations on a root's trash.
	OpTrash
	OpRestore
	OpEmpty
	// The owner's operations on the changes of a staged root.
	OpStage
	OpApply
	OpDiscard
	OpUndo
	// Events of a subject that is refused too often: in audit records, and OpResume in errors.
	OpAbuse
	OpSuspend
	OpResume
	// The pause of a session: in audit records only. OpResume ends it.
	OpPause
	// The start of a command by rootsfs run, or its failure to start: in audit records only.
	OpRun
	// A network connection of a command of rootsfs run, and its end: in audit records only.
	OpConnect
	OpDisconnect
	// A request that was sent with one of the command's secrets: in audit records only.
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
	"trash", "restore", "empty", "stage", "apply", "discard", "undo", "abuse", "suspend", "resume", "pause",
	"run", "connect", "disconnect", "request",
}

// Ops is the number of operations, and the length of a table with one row for each.
const Ops = int(opCount)

// String returns the operation's name, or "op(N)" for a number that is no operation.
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
