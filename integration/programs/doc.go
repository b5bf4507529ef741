// Package programs runs real programs inside a mount: git, sqlite3, rsync, go, npm, tar, cp, find,
// make and others. It also tests the ways in which editors save, locks and mappings.
//
// The package has only tests. Package lab, below it, mounts for these and other tests. In a
// writable root the programs must work, and their files must be whole on the host, with the right
// owner: on the source, or in the stage of a staged root. In a read-only root every way of writing
// must fail with EROFS, and every way of reading must show the contents of the source. The programs
// work on files that the test makes; only npm's test with a registry package goes to the network.
//
// A missing program fails its test. For most programs the message names the package to install.
package programs
