// Package sandbox tries to get out of a confined command.
//
// It holds nothing but tests, and the hostile program that they run (in Go, and
// as a shell script). Outside lie files, processes, sockets and keys of the very
// user the program runs as; inside it has one root. Every attempt is made at
// every level, as root and as an ordinary user, and once without rootsfs, where
// it must succeed: an attempt that fails everywhere shows nothing.
//
// `go test -run Table -v` prints what came out as a table.
//
// Requirements shown here: R001, R063, R113, R131, R151, R165.
package sandbox
