// Package broker answers files/* over JSON-RPC: MCP servers send requests, and the host
// executes them on the same guarded tree that the mount serves (package vfs). So a server gets
// the same verdicts over JSON-RPC and in the mount.
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
// Every operation on a file of a root passes the gate (package guard). Most requests are one
// operation. A copy, and the creation of a file with its parents, are several. A request that the
// gate or a limit refuses gets an error with one of the protocol's seven codes. A malformed
// request, or one for an unknown method, gets an error of JSON-RPC. No host path outside the roots
// appears in an answer. An unknown method or a flood of requests gets errors, and the connection
// goes on. With Lines the connection also goes on after a bad frame. A server that hangs up ends no
// other connection. Memory held for requests is bounded. When Revoke returns, the watches, uploads
// and requests of the root have ended. An answer with data from a root is checked again (Recheck)
// before each piece of it is written. If the peer may no longer have the answer, a refusal replaces
// it.
//
// No update of a file is lost silently among the users of one tree: its sessions and brokers, its
// mount (mount.Mount.Tree), and the tools (package broker/tools). A `rootsfs` session has one
// tree for all of them. An ifMatch is compared when no user of the tree can change the file any
// more, and a file that a program has open for writing in the mount is not replaced.
//
// # Not promised
//
// Two trees know nothing of each other, and a tree does not see writes by processes of
// the host. In both cases the etag is compared immediately before the new contents replace the
// file. An update that is made after the comparison and before the replacement is lost.
//
// A piece of an answer, 64 KiB at most, that is being written when Revoke returns may still
// arrive, and so may bytes that the system holds for the peer. Over an SDK's transport
// (Transport) one whole answer may still arrive.
//
// roots/list restricts no server: roots over MCP are advice. A server is restricted only if it
// has no other way to the files.
package broker
