// Command suite (`make test`) runs go test on four packages at a time, and checks what a
// single test cannot see.
//
//	go run ./integration/suite [-race] [core|peers|confined|rest]...
//
// # Promises
//
// The exit code is 0 if every test passed (see below) and
//
//   - every skipped test is in the list of allowed skips (skips.go), each with its
//     reason; some are allowed only on a machine that is not CI's (environment variable CI);
//   - no mount, no process and no file in the temporary directory is left;
//   - the user's own directories are as before: the home directory and what the XDG
//     variables name, except for caches (userdirs.go).
//
// A run of root's has a mount namespace of its own, so that it neither reports nor ends mounts that
// other processes make meanwhile. A run of an ordinary user does both.
//
// No run hangs a machine: a FUSE connection of the suite's that leaves a request
// waiting is reported and aborted (watchdog.go), and a run of go test that takes too long is
// killed. The tests' files are on a file system of the run's own (scratch.go), where root
// can mount one. They lie below TMPDIR, or below /tmp if TMPDIR is long or has special characters
// such as spaces. The umask is 022.
//
// With -declared tests find only the programs that setup.sh names and Debian's essential packages
// have (programs.go), so that a test that calls another program fails here, not only on a bare
// machine. A command inside of `rootsfs run` finds the system's other programs, too.
//
// A failed test is run once more by itself when the others have ended. If it passes, the
// run passes and the last lines name it as FLAKY: it failed by chance, and must be mended.
// More than four failures, data races, panics and leaks are not forgiven (rerun.go).
//
// For each package the line is printed that go test prints, and the output of tests
// that failed. The last lines name the tests that took longest.
package main
