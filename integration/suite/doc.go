// Command suite (`make test`) runs go test on four packages at a time (with -race=least, on five),
// and checks what a single test cannot see.
//
//	go run ./integration/suite [-race=auto] [core|peers|confined|rest]...
//
// # Promises
//
// The exit code is 0 if every test passed, at the latest when it was run again (see below), and
//
//   - every skipped test is in the list of allowed skips (skips.go), each with its
//     reason; some are allowed only outside CI (the environment variable CI is empty), and some
//     only for an ordinary user;
//   - no mount, no process and no file in the temporary directory is left;
//   - the user's own directories are as before: the home directory and what the XDG
//     variables name, except for caches (userdirs.go). Outside CI only the directories of
//     rootsfs count.
//
// If root runs the suite, the suite has a mount namespace of its own. It then neither reports nor
// ends mounts of rootsfs that other processes make meanwhile. If an ordinary user runs the suite,
// it reports and ends such mounts, too.
//
// No run hangs a machine: a FUSE connection of the suite's that leaves a request
// waiting is reported and aborted (watchdog.go), and a run of go test that takes too long is
// killed. If root runs the suite and can mount a file system, the tests' files are on a file
// system of the run's own (scratch.go). They lie below TMPDIR, or below /tmp if TMPDIR is long or
// has special characters such as spaces. The umask is 022.
//
// With -race=most, all packages but a few are tested with the race detector (race.go). With
// -race=least, only the packages whose goroutines share most memory are. -race=auto is -race=most,
// but -race=least on a machine where new pages of memory are slow, because most packages would take
// too long there. The first line of the output then says so.
//
// With -declared, tests find only the programs of the packages that setup.sh names, of Debian's
// essential packages and of their dependencies (programs.go). A test that calls another program
// then fails here, not only on a bare machine. A command inside of `rootsfs run` finds the
// system's other programs, too.
//
// A failed test is run once more by itself when the others have ended. If it passes, the
// run passes and the last lines name the test as FLAKY: it failed by chance, and must be mended.
// No test is run again after a data race, a panic or a leak, nor if more than four tests failed
// (rerun.go).
//
// The suite prints go test's line for each package, and the output of the tests that failed or did
// not end. The last lines name the slowest tests.
package main
