// Package tools serves the guarded tree as MCP tools and resources, to hosts that do not
// know files/*. It replaces @modelcontextprotocol/server-filesystem (2026.8.31): it has every
// tool of that server, with the same name, arguments, annotations, output schema and results.
// "rootsfs help serve" and the tests of integration/serve list the intended differences.
// Further tools copy, delete and append, read ranges, and search in files.
//
// # Promises
//
//   - Every file is reached through vfs.Tree, by a caller with guard.ViaTools. So the gate's
//     rights, patterns, limits and audit hold as in the mount.
//   - Links are followed only where they stay inside their root. Special files are refused
//     unopened.
//   - An answer is bounded. An answer that is cut says so. If a later call can return the rest,
//     the answer says how. No path outside the roots appears in an answer.
//   - Data that a tool read before a revocation is in no answer that the tool gives afterwards.
//   - A tool that no root allows is not offered, unless a person can be asked.
//   - Over HTTP each session is a subject of its own. No other session has its consents,
//     which end with it. Since revision 2026-07-28 requests have no session. Then the consents
//     belong to the sender, as far as the requests prove who sends them. With OAuth the sender is
//     one user through one client. With the server's own bearer token, or without a token, all
//     clients share the consents until the server ends, and the question says so.
//   - A client over HTTP answers no question, neither its own nor another client's: the Asker
//     of Config.Ask is asked.
//   - A question to a person is withdrawn when no call waits for its answer any more. If a
//     call returns a question as its result (input required), the question stays open until it
//     expires, because the client may call again with the answer.
//   - Every refusal and failure of a call is recorded once. If very many HTTP requests are
//     refused, only some of these refusals get a record of their own.
//   - Over HTTP, answers that clients do not read hold bounded memory, over all connections.
//     A call that finds no room in time is refused before it changes anything.
//   - A client that does not read delays no revocation. Data read before a revocation is in no
//     answer that is written after it. An HTTP connection on which such an answer is still on
//     its way is reset (HTTP.Attach).
//
// # Not promised
//
// A listing of a directory that changes meanwhile is not of one moment. A client's roots can
// narrow its own session only. The owner's grants restrict every client.
//
// Over streams, the piece of an answer that is being written when a revocation returns (64 KiB
// at most) may still arrive, and so may data that the system has buffered for the client.
// Answers that the SDK writes to a transport of another package (Server.MCP) are not checked
// again.
package tools
