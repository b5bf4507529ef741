// Package reports tries faults that people reported of other file systems, sandboxes and
// MCP servers, with the built program, as root and as an ordinary user. README.md has a row
// for each report; TestPage keeps the rows and the tests together.
//
// It promises one test for each kind of fault, with the right value in it, and that no case
// needs a network or judges by a time. It does not promise that a kind is covered: the
// conformance suite (integration/posix) and the other suites look at whole subjects.
package reports
