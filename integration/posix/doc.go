// Package posix is a conformance suite for a directory: it makes the calls that POSIX and
// Linux describe and expects the results that an ordinary local file system (ext4) gives. It
// replaces pjdfstest: it has the same calls, the same error numbers and the same tables over
// file types and users.
//
// Every case works in a fresh directory of its own below the given one, and removes what
// it made. A case does not depend on the order or the speed of the others. Calls on
// behalf of another user are made by a child process that gave up its rights for good,
// never by a thread of the test process.
//
// The suite does not promise to be complete. It does not test chflags (Linux has none),
// EROFS, ENOSPC and EDQUOT (they need a file system of their own), crashes or speed. A time
// stamp that the tested call takes from the kernel's clock is compared for order only, after
// waiting until this clock has ticked.
//
// A test binary that calls Run must call Main from its TestMain, because the
// children that act as other users are the same binary started again.
package posix
