// Package sandbox confines a command to a private mount of rootsfs.
//
// # Promises
//
// At level Namespaces the command has a root directory that holds the system's
// programs, read-only, private directories in memory, and the tree; no network
// but its own loopback interface unless asked for; no capability, no way to get
// one, no process but its own, no socket that reaches out of it, and no
// descriptor of the caller's. What it starts is confined alike. When the
// command ends, or the caller dies in whatever way, all of it is gone.
//
// The level reached, each layer, and what stays possible are in Report. A level
// is never lowered silently: an error says what this machine lacks.
//
// # Not promised
//
// What the tree shows is the tree's business (package guard). The system's
// programs and libraries can be read: a secret in /usr is a secret no more.
// Bugs of the kernel are not ours to hide, though the system call filter keeps
// much of it out of reach; nor are side channels, or the time that a command may
// use. Its memory is bounded only if Options.MemoryMax says so, and a control group
// can be made (Report says whether). What it writes to streams of the caller's, a terminal's escape
// sequences among it, is not looked into. The limit of processes is a soft one that
// the command can raise by 64, which are there for the init's own threads.
//
// # Model
//
// Start runs this very program again as the init (package initproc), whose main hands over
// to Main: so does every program that calls Start, before anything else. The init makes
// itself a root directory with mount calls on detached trees, drops everything it could use
// to get out, starts the command, and waits: as pid 1 it takes everything with it. Between
// it and the caller there is one socket; when that ends, so does the init.
//
// Works on Linux 5.6 and newer, on amd64 and arm64; level Namespaces on 5.12, and Landlock on
// 5.13 and newer.
package sandbox
