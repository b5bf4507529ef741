// Package callproc starts processes that make a list of system calls, and know nothing
// of Go: such a process costs a fiftieth of a program, and what it calls happens before
// there is any other thread, in the order of the list.
//
// # Promises
//
// The process shares this one's memory, and has copies of its descriptors. All signals
// are blocked in it and have no handlers; none is ignored that this process does not
// ignore. It ends, with exit code Failed, at the first call that fails, so that nothing
// is done by halves. It uses no stack and none of Go's runtime.
//
// # Not promised
//
// Anything about the caller's memory: the list, and all it points to, must stay as and
// where they are, so not on the stack of a goroutine, until the process has ended or
// executed a program. Whatever changes the memory of
// the process changes it here: to change credentials, for one, makes this process one
// that is not dumped (prctl(2), PR_SET_DUMPABLE). Nobody waits for the process but the
// caller.
//
// The package is for amd64 and arm64; elsewhere Start fails with errors.ErrUnsupported.
package callproc

// Failed is the exit code of a process of which a call has failed.
const Failed = 127

// Call is a system call: its number, and its arguments.
type Call struct {
	Nr   uintptr
	Args [5]uintptr
}
