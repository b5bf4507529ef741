// Package proxy stands between an MCP host and a server that speak over stdio. Instead of the
// host, the proxy answers the server's requests for roots and files: files/*, and roots/list, both
// as a request of its own and inside a result (SEP-2322). The proxy adds the capabilities for roots
// and files/* to the host's.
//
// Everything else passes byte for byte: numbers that no float holds, unknown fields, keys
// that repeat deep inside, odd ids, CR LF, and a last line without an end. From the host,
// text that is not UTF-8 and lines that are no JSON pass too. A scanner finds a line's
// outermost keys; nothing that passes is decoded. In initialize, and since revision
// 2026-07-28 in the _meta of every request, only the members that announce roots and
// files/* are spliced in.
//
// # Promises
//
//   - The server gets no roots but the session's, and the host no request for files
//     or roots. This holds for requests, results and a task's notifications
//     (inputRequests), whatever the revision, the type and the id of the result.
//   - A host reads no message of the server that was not examined. Hosts read a stream of
//     JSON, or lines that end in LF or in CR, and some skip a byte order mark. So a line
//     passes only if it is blank, or exactly one object or batch of RFC 8259 in UTF-8,
//     without a CR before its end and nested no deeper than 10,000. Any other line is refused,
//     counted and recorded, and the peer that waits for it gets an error, if the line's id can be
//     read. Before the peers speak MCP, a server's output passes as long as no host reads a
//     message in it.
//   - Only the host can answer a question for consent that the proxy puts to the host with
//     elicitation/create. The ids of the proxy's requests are 128 random bits behind a random
//     prefix of this proxy. A request, an answer or a cancellation of the server is not passed
//     on if its id begins with the prefix. The exception is the answer to a call that the proxy
//     has repeated: the host gets the answer with the id of the host's call.
//   - Readers differ in which of two equal keys counts, and some compare keys without regard
//     to case. So a message does not pass if two of its outermost keys differ at most
//     in case, or if it has a key of JSON-RPC in another case, however the key is
//     escaped. A message of the server that is both a request and an answer does not pass
//     either.
//   - Neither direction waits for the other, nor for a request that the session answers. The
//     exception is a peer that goes on sending and leaves hundreds of the proxy's own messages
//     unread.
//   - Memory is bounded, by two lines of Options.Frame bytes each, the session's limits and
//     the limits of the calls that are kept.
//   - A message longer than Options.Frame is not carried. The peer that waits for it gets
//     an error, if its id can be read, and the session goes on. A batch of more than
//     wire.MaxBatch messages is not carried either, and its sender gets an error.
//
// # Not promised
//
// The host need not show its user who asks: a server may send forms that look like those
// of rootsfs, and a host that answers forms by itself also answers those for consent. The proxy
// does not translate paths in the arguments and results of tools: a string that looks
// like a path may be the contents of a file. If the server sees its roots under other
// paths than the host (broker.Config.FlatAt), only roots/list and files/* use the
// server's paths. Since 2026-07-28 a host takes no unsolicited request: if it can show
// forms, it is asked for consent in the place of the answer to an open call of its own
// (tools/call, prompts/get, resources/read). Without such a call the session's other
// askers are asked (broker.Config.Asker). A server's question does not say to which call it
// belongs: the host gets it as the answer to the latest call. The proxy confines no process.
package proxy
