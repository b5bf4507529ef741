// Command bench measures the cost of a mount. It runs the same workloads on a native
// directory and on the same directory seen through rootsfs at each cache level, through bindfs
// (plain and tuned), libfuse's passthrough_hp (if it is in PATH) and go-fuse's loopback
// example. It also measures file systems that keep changes apart: a staged root, the kernel's
// overlay, and fuse-overlayfs (if it is in PATH). It prints tables of the slowdowns, and whether
// the goals of the project are met.
//
//	go run ./integration/bench                     # size full, medians of five
//	go run ./integration/bench -size small -n 1    # does everything still run?
//	go run ./integration/bench -only 'tar|du' -peers 'audit|tuned'
//
// # What is measured, and how
//
// One run is one workload on one peer. It empties the scratch directory, starts the peer on the
// source directory (so no other daemon is alive, and the peer has no state of an earlier run),
// prepares and times the workload, and stops the peer. For a workload the repetitions are outermost
// and the peers take turns inside each repetition. The order of the peers rotates and is reversed
// every other time, so that a noisy minute, and the disk writes that the previous peer has left, hit
// all peers alike. A cell is the median of the repetitions divided by the native median. A peer
// that no goal depends on (see inGoals), such as plain bindfs, is not repeated after it has used up
// -limit on a workload. The report names such cells under the table.
//
//   - A warm row is timed immediately after one pass through the same mount (the
//     pass of the cold row, if there is one; random reads first read the whole file
//     instead). It is repeated inside the run until 50 ms have been timed.
//   - A cold row is timed once after sync and drop_caches, which also empties
//     the kernel's caches of the mount. The programs that the row runs (tar, git) are
//     read back into memory before the clock starts. A cold row needs root. Without
//     root it is skipped, and the report names it.
//   - Reads check a stamp in every 4 KiB block, and walks check counts and sizes. Writes are
//     read back, with the clock stopped, from the directory in which the peer keeps them: the
//     source, or an upper directory. tar is checked by its length, du against du of the
//     source, and git status must be clean. A peer that answers wrongly is "broken", never fast.
//   - audit-plain is rootsfs with --cache audit and --transport plain, whose readers read
//     /dev/fuse. rootsfs falls back to them where the kernel offers no FUSE over io_uring.
//   - patterns-0 and patterns-50 are rootsfs with --cache audit: patterns-0 has no pattern,
//     patterns-50 has the built-in ones and fifty more. They run only the workloads about names.
//   - The cost of patterns for a creation is measured in turns of two hundred files
//     through patterns-0 and patterns-50, mounted side by side. The disk changes the time of a
//     whole pass by more than the patterns do. The row of the table has whole passes
//     nevertheless.
//   - The work rows are steps on a tree of 10,000 files in 1,200 directories, which the first
//     step unpacks through the mount. Each step is timed once, and works on what the steps
//     before it have made. If -only leaves out steps before a selected step, they run, too, but
//     are not timed.
//   - Further work rows are programs. npm installs twenty packages of fifty files, without
//     network and with an empty cache. go build builds forty packages with an empty cache. make
//     -j4 compiles sixty C files. SQLite makes a thousand inserts with a write-ahead log, each in
//     a transaction. Node loads three packages of a hundred modules. Tests write, read and remove
//     two thousand files. The files that a program needs are copied into the mount just before it
//     starts.
//   - rootsfs-run runs the programs of the work rows in the sandbox of "rootsfs run". The start of
//     the sandbox does not count. rootsfs-run does not run the other workloads.
//   - The CPU time of the daemon is the CPU time of the peer's process. In rootsfs-run this process
//     serves the files, too. The process of overlayfs and fuse-overlayfs only waits.
//   - The loopback runs without passthrough: passthrough has native speed, but nothing
//     can revoke it.
//   - Sequential write includes its fsync; 4 KiB writes overwrite and do not sync.
//   - Requests are counted by the kernel's tracepoint fuse:fuse_request_send, in
//     the first repetition, for every peer alike. Counting needs root. The counts do not
//     depend on the machine, so compare them first when two runs disagree.
//
// For the revocation rows, a child process holds open and mapped files, and many more inodes are
// cached. The rows time the command "rootsfs revoke" from start to exit. This includes the start
// of a process, whose cost is printed beside the time. Then the child tries every descriptor,
// mapping and name: one that still works breaks the row. The held mappings are clean, because
// the cost of flushing dirty mappings would be the cost of the disk.
//
// The memory row looks up many names once and reads the daemon's VmRSS when the VmRSS
// has stopped changing. It does the same with a go-fuse tree of as many nodes that hold
// nothing. Both processes are left to their own garbage collector.
//
// The footprint rows are bytes. "memory per root" is the heap for each of 10,000 roots.
// "memory per run" is the memory of the processes of each of 16 runs at once, five
// seconds after their start. "audit bytes" is the size of the audit files for each
// operation.
//
// The files rows compare a server that asks a broker for files with server-filesystem, which
// opens files itself. The first server is a child process with package broker/client; its broker
// (package broker) is in this process. Both servers run over stdio and through the MCP Go SDK,
// each for a second in turn, and the results are checked for length. The side that asks measures
// the time of a call. server-filesystem is downloaded from the npm registry once (package
// integration/files). Without server-filesystem, only the first server is measured. The files
// memory row is the resident size of this process, which is the host.
//
// The proxy rows are calls of server-filesystem with and without the proxy (a process of
// its own, package integration/proxy, without confinement) between it and the MCP Go SDK.
// The two ways take turns of a tenth of a second, ten in a repetition. A cell is the
// median over these turns of the ratio (or, for the latency, of the difference) of
// neighbours in time. A shared machine changes its speed by more than the cost of any proxy,
// so only neighbours in time can be compared.
//
// The serve rows are calls of tools of `rootsfs serve` and of server-filesystem on the
// same files, each for a second in turn (a call that takes longer is one call). The host
// only finds the id in an answer, because a host that parses a megabyte costs more than
// either server. Every answer is checked for length and for being no error.
//
// The network rows move 256 MB between a client (this program) and a server (this process) on the
// loopback interface. They do so without a sandbox, in rootsfs run --net=HOST, and behind
// slirp4netns, pasta and srt, if they are in PATH. srt serves only programs that use its proxy, so
// the client uses that proxy. The peers take turns, and the start of a client does not count. The
// start of rootsfs run is timed by itself, with and without --net=HOST. "Connect and first byte" is
// the median of 300 connections. The memory of many connections is the growth of VmRSS of rootsfs.
// Revoke is the command from start to exit; then the client must find every connection broken off,
// or the row is broken.
//
// The secret rows are requests by https to a server in this process, without a sandbox and in
// rootsfs run --secret. With --secret, rootsfs terminates the client's TLS and makes a TLS
// connection of its own to the server. "Request" is the median of 300 requests on one open
// connection. "Connect and first byte" is the median of 300 requests, each on a new connection.
//
// # What not to conclude
//
// The numbers are of one client on an otherwise idle machine. They say nothing
// about many clients at once, the slowest calls, a source on a network file system, or
// another kernel. Cold rows depend on the disk and on whatever caches lie below
// a virtual one. Ratios under about 1.2 are within the noise of a shared
// machine: the JSON output holds every sample, and rows whose native samples
// differ widely are named. A table made while others use the machine says so. The bindfs
// rows are of the version named in the heading; versions built on libfuse 2 and 3 have
// different default timeouts, so "plain" is not the same thing everywhere.
//
// The exit code is 1 if something broke, 2 for a wrong command line, and 130 after an
// interruption. A missed goal is printed, and makes the exit code 1 only with -strict.
// Otherwise the exit code is 0. No time decides whether a test passes.
package main
