// Package atstart knows what this process was started with, of that which Go changes
// before any other package can look.
//
// # Promises
//
// It imports nothing, so that it is initialised before package syscall, whose
// initialisation raises the limit of descriptors (rlimit.go). It changes nothing.
//
// # Not promised
//
// Anything on processors other than amd64 and arm64, where there is nobody to ask for it.
package atstart

// Rlimit is struct rlimit of getrlimit(2).
type Rlimit struct{ Cur, Max uint64 }

// NoFile is the limit of descriptors (RLIMIT_NOFILE). Programs that Go starts get it
// back; who starts one by other means has to give it back.
var NoFile = noFile()

func noFile() (r Rlimit) {
	getNoFile(&r)
	return r
}
