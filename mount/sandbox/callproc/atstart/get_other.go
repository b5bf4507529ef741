//go:build !(amd64 || arm64)

package atstart

func getNoFile(*Rlimit) {}
