// Package programs runs real programs inside a mount: git, sqlite3, rsync, go,
// npm, tar, cp, find, make, editors' ways of saving, locks and mappings.
//
// It holds nothing but tests, and package lab, with which these and other tests mount. In a
// writable root the programs must work, and their files must be on the source, whole, with the
// right owner. In a read-only root every way of writing must fail with EROFS, and every way of
// reading must show the contents of the source. The programs work on files that the test
// makes; only npm's test with a registry package goes to the network.
//
// A program that is missing fails its test with the command that installs it.
package programs
