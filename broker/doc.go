// Package broker answers files/* over JSON-RPC: MCP servers send requests, and the host
// executes them on the same guarded tree that the mount serves (package vfs). So both ways in
// give the same verdicts.
//
// A Broker belongs to one registry. Each MCP connection gets a Session, which knows the
// connection's subject and limits. The Session takes files/* requests out of the
// connection before the SDK sees them, and answers them concurrently. The SDK would
// refuse them: go-sdk v1.8.0 knows no custom methods towards the client.
//
//	Transport  wraps any mcp.Transport, or speaks lines itself (faster)
//	HTTP       filters the event streams of a Streamable HTTP client
//
// # Promises
//
// Every request either passes the gate exactly once per file it touches or is
// refused before, with an error of one of the protocol's seven codes. No host path
// outside the roots appears in an answer. A bad frame, an unknown method, a flood or a hang-up
// costs the connection only an error. Memory held for requests is bounded. When Revoke returns,
// the watches, uploads and requests of the root have ended. An answer that waits for its peer
// is checked again before each piece of it is written (Recheck), and replaced by a refusal.
//
// No update of a file is lost silently among the users of one tree: other sessions
// and brokers on it, its mount (mount.Mount.Tree), the tools. A `rootsfs` session
// has one tree for all of its fronts. An ifMatch is compared when none of them can change
// the file any more, and a file that a program has open for writing in the mount is not
// replaced.
//
// # Not promised
//
// Two trees know nothing of each other, and a tree does not see writes by processes of
// the host. In both cases the etag is compared immediately before the new contents take
// the name. An update made between the two is lost.
//
// A piece of an answer, 64 KiB at most, that is being written when Revoke returns may still
// arrive, and so may bytes that the system holds for the peer. Over an SDK's transport
// (Transport) one whole answer may.
//
// roots/list restricts no server: roots over MCP are advice. A server is restricted only if it
// has no other way to the files.
package broker
