// Package sandbox confines a command to a private mount of rootsfs, the tree.
//
// # Promises
//
// At level Namespaces the command has a root directory that holds the system's programs
// (read-only), private directories in memory, and the tree. Unless Options gives it more, its
// only network is its own loopback interface, and it holds no socket that reaches out of the
// sandbox. It has no capability and no way to get one, sees no process but its own, and holds no
// descriptor of the caller. Its child processes are confined alike. When the command
// ends, or the caller dies in whatever way, all processes and mounts of the sandbox are gone.
//
// Report has the level reached, each layer, and the remaining holes. A level is never
// lowered silently: Report says which level Start took, and if Options names a level, Start takes
// no other. An error says what this machine lacks.
//
// # Not promised
//
// The contents of the tree are up to package guard. The system's programs and libraries can be
// read: a secret in /usr is not protected. Kernel bugs can be exploited, although the system
// call filter keeps much of the kernel out of reach. Side channels and processor time are not
// limited. Memory is bounded only if Options.MemoryMax says so and a control group can be made
// (Report says whether). The command's output, such as a terminal's escape sequences, is not
// filtered. The limit of processes is a soft one: the command can raise it by 64, a reserve
// for the init's own threads.
//
// # Model
//
// Start runs this very program again as the init (package initproc). So the main function of
// every program that calls Start must first call Main, which then acts as the init. At level
// Namespaces the init makes itself a root directory with mount calls on detached mounts, drops all
// rights that it could use to get out, starts the command, and waits. When the init ends, all
// processes inside end, because the init is pid 1. One socket connects the init and the caller;
// when the caller's end is closed, the init ends.
//
// Works on Linux 5.6 and newer, on amd64 and arm64; level Namespaces on 5.12, and Landlock on
// 5.13 and newer.
package sandbox
