// Package tools serves the guarded tree as MCP tools and resources, to hosts that
// know nothing of files/*. It takes the place of
// @modelcontextprotocol/server-filesystem (2026.8.31): the tools of that server
// have its names, arguments, annotations, output schemas and results; what
// differs on purpose is listed in the topic serve and in integration/serve. Beside
// them are tools to copy, delete, append, read ranges and search in files.
//
// # Promises
//
//   - Every file is reached through vfs.Tree, as a caller via tools, so that the
//     gate's rights, patterns, limits and audit hold here as in the mount.
//   - Links are followed only where they stay inside their root; special files are
//     refused unopened.
//   - An answer is bounded, and says how to go on where it ends before the end. No
//     path outside the roots appears in one.
//   - Tools which no root allows are not offered, unless a person can be asked.
//   - Over HTTP each session is a subject by itself, whose consents no other has and
//     which end with it. Since revision 2026-07-28 requests have no session: consents are
//     then those of who a request proves to be from. By OAuth that is one user through one
//     client; by a bearer token of the server's, or none, all clients share them until
//     the server ends, and the question says so.
//   - A question to a person is withdrawn when nobody waits for its answer any more.
//   - Every refusal and failure is on record once.
//   - No client holds a revocation by not reading.
//
// # Not promised
//
// A listing of a directory that changes meanwhile is not of one moment. A client's
// roots, by which a session may be narrowed, restrain nobody but that client: what
// restrains is what the owner granted.
package tools
