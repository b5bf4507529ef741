//go:build amd64 || arm64

package atstart

// getNoFile asks the kernel (prlimit(2)). A filter of system calls may refuse, which
// leaves zeros.
//
//go:noescape
func getNoFile(r *Rlimit)
