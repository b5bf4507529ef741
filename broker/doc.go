// Package broker answers files/* over JSON-RPC: MCP servers ask, and the host
// executes on the same guarded tree that the mount serves (package vfs), so that
// both ways in give the same verdicts.
//
// A Broker belongs to one registry. Each MCP connection gets a Session, which
// knows the connection's subject and limits; a Session takes files/* requests out
// of the connection, in front of the SDK, which would refuse them (go-sdk v1.8.0
// knows no custom methods towards the client), and answers them concurrently:
//
//	Transport  wraps any mcp.Transport, or speaks lines itself (faster)
//	HTTP       filters the event streams of a Streamable HTTP client
//
// It promises that every request either passes the gate exactly once per file it
// touches or is refused before, with an error of one of the protocol's seven
// codes; that no host path outside the roots appears in an answer; that a bad
// frame, an unknown method, a flood or a hang-up costs the connection nothing
// but an error; that memory held for requests is bounded; and that what a
// revoked root gave (watches, uploads, requests under way) is over when Revoke
// returns.
//
// It does not promise that roots/list restrains a server: roots over MCP are
// advice. What restrains it is having no other way to the files.
package broker
