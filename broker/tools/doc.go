// Package tools serves the guarded tree as MCP tools and resources, to hosts that do not
// know files/*. It replaces @modelcontextprotocol/server-filesystem (2026.8.31): the tools
// of that server have its names, arguments, annotations, output schemas and results.
// The topic serve and integration/serve list what differs on purpose. Further tools copy,
// delete and append, read ranges, and search in files.
//
// # Promises
//
//   - Every file is reached through vfs.Tree, by a caller via tools. So the gate's rights,
//     patterns, limits and audit hold as in the mount.
//   - Links are followed only where they stay inside their root. Special files are refused
//     unopened.
//   - An answer is bounded, and one that ends before the end says how to go on. No path
//     outside the roots appears in an answer.
//   - What a tool read before a revocation is in no answer that it gives afterwards.
//   - A tool that no root allows is not offered, unless a person can be asked.
//   - Over HTTP each session is a subject of its own. No other session has its consents,
//     which end with it. Since revision 2026-07-28 requests have no session. Then the
//     consents belong to whom a request proves to be from: with OAuth, one user through one
//     client. With a bearer token of the server's, or none, all clients share them until
//     the server ends, and the question says so.
//   - Whoever calls over HTTP answers no question, neither his own nor another's: it is put
//     to the Asker of Config.Ask.
//   - A question to a person is withdrawn when nobody waits for its answer any more.
//   - Every refusal and failure is recorded once.
//   - Over HTTP, answers that clients do not read hold bounded memory, over all connections.
//     A call that finds no room in time is refused before it changes anything.
//   - A client that does not read delays no revocation. What was read before a revocation is
//     in no answer that is written after it, and a connection over HTTP whose client has not
//     got all of such an answer is reset (HTTP.Watch).
//
// # Not promised
//
// A listing of a directory that changes meanwhile is not of one moment. A client's roots
// can narrow a session, but they restrain only that client: what restrains every client is
// what the owner granted.
//
// Over streams, a piece of an answer, 64 KiB at most, that is being written when a revocation
// returns may still arrive, and so may what the system holds for the client. What the SDK
// writes to a transport of another package (Server.MCP) is not looked at again.
package tools
