// Package sandbox tries to get out of a confined command.
//
// It holds nothing but tests, and the hostile program that they run (in Go, and as a shell
// script) through `rootsfs run`, with all that a run has: the mount, the broker, the proxy.
// Outside are files, processes, sockets and keys of the user that the program runs as, and
// another session of the owner. Inside, the program has one root. Every attempt is made at
// every level, as root and as an ordinary user. Each attempt is also made without rootsfs, where
// it must succeed for one of the two users (except for the list unproven), because an attempt that
// fails everywhere shows nothing. As an MCP server, the same program tries to forge the consent of
// its host's user. The tests show that the attempt succeeds once that user says yes.
//
// `go test -run Table -v` prints the results as a table.
//
// Requirements shown here: R001, R063, R070, R113, R131, R151, R165.
package sandbox
