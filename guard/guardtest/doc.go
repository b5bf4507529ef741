// Package guardtest is the conformance suite of package guard. It is one table of cases that every
// front end of the guarded tree must answer alike: a mount, method calls, JSON-RPC and tools.
//
// A front end implements Front and hands a constructor to Run. Each case builds
// a directory (see Tree), approves it as the root "code", makes one call through
// the front end and compares the verdict. A case that says Unguarded also makes
// the same call on the bare file system, where it has to succeed. This shows that it was the
// guard that refused the call. One case runs alone by its name:
//
//	go test ./vfs -run 'TestConformance/plain/read$'
//
// The package does not test races (integration/race does) or speed. Cases that need a
// mount or a trusted attribute (Case.Root) run only as root. A case whose setup fails is a
// failure, unless the front end does not support the policy of a grant: then the case is left out.
package guardtest
