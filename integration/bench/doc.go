// Command bench measures the cost of a mount. It runs the same workloads on a native
// directory and on that directory seen through rootsfs at each cache level, through bindfs
// (plain and tuned), libfuse's passthrough_hp (if it is in PATH) and go-fuse's loopback
// example. It also measures file systems that keep changes apart: a staged root, the kernel's
// overlay, and fuse-overlayfs (if it is in PATH). It prints the slowdowns as one table beside
// the goals of the project.
//
//	go run ./integration/bench                     # full, medians of five
//	go run ./integration/bench -size small -n 1    # does everything still run?
//	go run ./integration/bench -only 'tar|du' -peers 'audit|tuned'
//
// # What is measured, and how
//
// One run is one workload on one peer. It empties the scratch directory, starts the peer on the
// source directory (so no other daemon is alive and no state of an earlier run is left in it),
// prepares, times, stops the peer. For a workload the repetitions are outermost and the peers
// take turns inside each repetition. Their order rotates and is reversed every other time, so
// that a noisy minute, and the disk writes that the peer before has left, hit all peers alike. A
// cell is the median of the repetitions divided by the native median. Peers that no goal depends on
// (strict, plain bindfs, passthrough_hp, loopback) are not repeated after they used up -limit on
// a workload; those cells are named under the table.
//
//   - A warm row is timed immediately after one pass through the same mount (the
//     cold row's, where there is one), and repeated inside the run until 50 ms
//     have been timed.
//   - A cold row is timed once after sync and drop_caches, which also empties
//     the kernel's picture of the mount; the programs it runs (tar, git) are read
//     back into memory before the clock starts. It needs root. Without root it is
//     skipped, and the report names it.
//   - Reads check a stamp in every 4 KiB block, and walks check counts and sizes. Writes
//     are read back from the source directory with the clock stopped. tar is checked by its
//     length, du against du of the source, and git status must be clean. A peer that
//     answers wrongly is "broken", never fast.
//   - audit-plain is rootsfs with --cache audit and --transport plain, whose readers read
//     /dev/fuse. rootsfs falls back to them where the kernel offers no FUSE over io_uring.
//   - patterns-0 and patterns-50 are rootsfs with --cache audit, without any pattern and with
//     fifty besides the built-in ones. They run only the workloads about names.
//   - The cost of patterns for a creation is measured in turns of two hundred files
//     through both peers, mounted side by side, because the disk changes the time of a whole
//     pass by more than the patterns do. The row of the table has whole passes nevertheless.
//   - The work rows are steps on a tree of 10,000 files in 1,200 directories, which the first
//     step unpacks through the mount. Each step is timed once, and works on what the steps
//     before it have made. With -only, the steps before it run, too, and are not timed.
//   - Further work rows are programs: npm install of twenty packages of fifty files without
//     network and with an empty cache, go build of forty packages with an empty cache, make -j4
//     of sixty C files, a thousand inserts in SQLite with a write-ahead log, each a transaction,
//     Node with three packages of a hundred modules, and tests that write, read and remove two
//     thousand files. The files that a program needs are copied into the mount just before it starts.
//   - rootsfs-run runs the programs of the work rows in the sandbox of "rootsfs run". Its start
//     does not count. The other workloads are no programs, so it does not run them.
//   - The CPU time of the daemon is that of the peer's process, which in rootsfs-run serves the
//     files, too. The process of overlayfs and fuse-overlayfs only waits.
//   - The loopback runs without passthrough, which is native speed that nothing
//     can revoke.
//   - Sequential write includes its fsync; 4 KiB writes overwrite and do not sync.
//   - Requests are counted by the kernel's tracepoint fuse:fuse_request_send, in
//     the first repetition, for every peer alike; they need root. They do not depend
//     on the machine, so compare them first when two runs disagree.
//
// The revocation rows hold open, mapped files over many cached inodes in a child process.
// They time the command "rootsfs revoke" from start to exit; this includes the start of a
// process, whose cost is printed beside it. Then the child tries every descriptor,
// mapping and name: one that still works breaks the row. The held mappings are clean,
// because the cost of flushing dirty ones is the disk's.
//
// The memory row looks up many names once and reads the daemon's VmRSS when
// it has stopped changing, beside a go-fuse tree of as many nodes that hold
// nothing. Both processes are left to their own garbage collector.
//
// The footprint rows are bytes. "memory per root" is the heap for each of 10,000 roots.
// "memory per run" is the memory of the processes of each of 16 runs at once, five
// seconds after their start. "audit bytes" is the size of the audit files for each
// operation.
//
// The files rows compare a server that asks a broker for files (package broker/client, a
// child process; package broker, this one) with server-filesystem, which opens them
// itself. Both run over stdio and through the MCP Go SDK, each for a second in turn, and
// the results are checked for length. The side that asks measures the time of a call.
// server-filesystem comes from the npm registry once (package integration/files); without
// it the rows are measured alone. The files memory row is the resident size of this
// process, which is the host.
//
// The proxy rows are calls of server-filesystem with and without the proxy (a process of
// its own, package integration/proxy, without confinement) between it and the MCP Go SDK.
// Each runs for a tenth of a second in turn, ten times in a repetition. A cell is the
// median over these turns of the ratio (or, for the latency, of the difference) of
// neighbours in time, because a shared machine changes its speed by more than the cost of
// any proxy.
//
// The serve rows are calls of tools of `rootsfs serve` and of server-filesystem on the
// same files, each for a second in turn (a call that takes longer is one call). The host
// only finds the id in an answer, because a host that parses a megabyte costs more than
// either server. Every answer is checked for length and for being no error.
//
// The network rows move 256 MB between a client (this program) and a server (this process) on
// the loopback interface. They do so without a sandbox, in rootsfs run --net=HOST, and behind
// slirp4netns, pasta and srt, if they are in PATH. srt serves only programs that use its
// proxy, so the client uses it. The peers take turns, and starts are not timed. "Connect and
// first byte" is the median of 300 connections. The memory of many connections is the growth
// of VmRSS of rootsfs. Revoke is the command from start to exit; then the client must find
// every connection broken off, or the row is broken.
//
// The secret rows are requests by https to a server in this process, without a sandbox and in
// rootsfs run --secret, where rootsfs ends TLS and goes on over TLS of its own. "Request" is the
// median of 300 on an open connection, "connect and first byte" of as many with connections of
// their own.
//
// # What not to conclude
//
// The numbers are of one client on an otherwise idle machine. They say nothing
// of many clients at once, of latency's tail, of network file systems below, or
// of another kernel. Cold rows depend on the disk and on whatever caches lie below
// a virtual one. Ratios under about 1.2 are within the noise of a shared
// machine: the JSON output holds every sample, and rows whose native samples
// differ widely are named. A table made while others use the machine says so. The bindfs
// rows are of the version named in the heading; versions built on libfuse 2 and 3 have
// different default timeouts, so "plain" is not the same thing everywhere.
//
// The exit code is 0 unless something broke; a missed goal is printed, and makes
// the exit code 1 only with -strict. No time decides whether a test passes.
package main
