// Package reports tries faults that people reported of other file systems, sandboxes and
// MCP servers, with the built program, as root and as an ordinary user. README.md has a row
// for each report; TestPage keeps the rows and the tests together.
//
// It promises one test for each kind of fault, which checks for the right result. No test needs a
// network or depends on timing. It does not promise to cover a kind of fault completely: the
// conformance suite (integration/posix) and the other suites test whole subjects.
package reports
