//go:build amd64 || arm64

package atstart

// getNoFile asks the kernel (prlimit(2)), which cannot refuse.
//
//go:noescape
func getNoFile(r *Rlimit)
