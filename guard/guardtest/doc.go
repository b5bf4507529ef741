// Package guardtest is the conformance suite of the gate: one table of cases
// that every front end of the guarded tree must answer alike, whether it speaks
// through a mount, through method calls or through JSON-RPC.
//
// A front end implements Front and hands a constructor to Run. Each case builds
// a directory (see Tree), approves it as the root "code", makes one call through
// the front end and compares the verdict. A case that says Unguarded also makes
// the same call on the bare file system, where it has to succeed: that is what
// shows the guard, and not something else, stopped it.
//
// The package does not test races (package integration does) nor speed, and it
// runs as root where a case needs a device or a mount (Case.Root): as another user those
// are left out. What cannot be set up fails, it is not skipped.
package guardtest
