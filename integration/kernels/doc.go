// Command kernels (`make kernel-test`) boots Linux kernels of distributions in virtual
// machines and runs rootsfs there.
//
//	go run ./integration/kernels [FLAG]... [KERNEL]...
//
// table.go lists the kernels and the Debian packages that have them. In each machine guest.sh runs
// doctor and the demonstration, mounts with revocations, each level of `rootsfs run`, and, where
// the kernel has FUSE over io_uring, kills and revocations under load; with -suites also the
// tests of Go packages. The Markdown table of the results is printed, and written to OUT/table.md.
// Each machine's console and logs are in OUT/KERNEL.
//
// # Promises
//
// The exit code is 0 if each chosen kernel was booted and passed: every mount works, and
// nothing that a program holds open works after a revocation. `rootsfs run` reaches nothing
// outside, and doctor names the confinement level that `run` reaches. The tests that -suites
// names pass, and the kernel reports no fault of its own. If a kernel is not available, the output
// says why, and the exit code is 1.
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
