// Package sandbox tries to get out of a confined command.
//
// It holds nothing but tests, and the hostile program that they run (in Go, and as a shell
// script) through `rootsfs run`, with all that belongs to it: the mount, the broker, the proxy.
// Outside are files, processes, sockets and keys of the user that the program runs as, and
// another session of the owner. Inside, the program has one root. Every attempt is made at
// every level, as root and as an ordinary user, and once without rootsfs, where it must
// succeed: an attempt that fails everywhere shows nothing. What an MCP server can forge is
// attempted by the same program as such a server, and shown to succeed once the host's user
// says yes.
//
// `go test -run Table -v` prints the results as a table.
//
// Requirements shown here: R001, R063, R113, R131, R151, R165.
package sandbox
