// Command kernels (`make kernel-test`) boots Linux kernels of distributions in virtual
// machines and runs rootsfs there.
//
//	go run ./integration/kernels [FLAG]... [KERNEL]...
//
// table.go lists the kernels and the packages of Debian and Ubuntu that have them. In each machine
// guest.sh runs these phases, unless -phases or -smoke chooses fewer:
//
//   - `rootsfs doctor`, and the demonstration (make demo)
//   - mounts, with a revocation in each
//   - each level of `rootsfs run`, and the network there
//   - kills of the daemon, and revocations, under load, where the kernel has FUSE over io_uring
//   - with -suites, the tests of Go packages
//
// The command prints a Markdown table of the results and writes the table to OUT/table.md, where
// OUT is the directory of -out. Each machine's console and logs are in OUT/KERNEL.
//
// # Promises
//
// The exit code is 0 if each chosen kernel was booted and passed all of this:
//
//   - Every mount works, and nothing that a program holds open works after a revocation.
//   - The demonstration works.
//   - `rootsfs run` reaches nothing outside its confinement, and doctor names the confinement level
//     that `rootsfs run` reaches.
//   - The tests of the packages that -suites names pass.
//   - The kernel reports no fault of its own.
//
// If a kernel is not available, the output says why, and the exit code is 1.
//
// Kernels come from the releases that table.go lists, on the mirrors that this machine's own apt
// sources name. apt verifies them with the distribution's keys; nothing is installed. A mirror of
// another distribution is named with -mirror.
//
// Each step has a time limit, and a machine that is stopped reports what it did until then.
//
// # Not promised
//
// Anything about speed: where KVM cannot boot a plain kernel, machines are emulated.
package main
