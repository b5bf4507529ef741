// Package proxy stands between an MCP host and a server that speak over stdio,
// and answers for the host what rootsfs answers: roots/list in both of its forms,
// files/*, and the capabilities that announce them.
//
// Everything else passes byte for byte: numbers that no float holds, unknown
// fields, keys that repeat deep inside, odd ids, CR LF, a last line without an end,
// and, from the host, also text that is not UTF-8 and lines that are no JSON. A line
// is read by a scanner that finds its outermost keys; nothing that passes is decoded. In
// initialize, and since revision 2026-07-28 in the _meta of every request, only
// the members that announce roots and files/* are spliced in.
//
// # Promises
//
//   - The server gets no roots but the session's, and the host no request for files
//     or roots: neither by itself, nor inside a result or a task's notification
//     (inputRequests), whatever the revision, the type and the id of the result.
//   - A host reads no message of the server's that was not judged: hosts read a stream
//     of JSON, or lines that end in LF or in CR, and some pass over a byte order mark.
//     So a line passes only if it is blank, or exactly one object or batch of RFC 8259 in
//     UTF-8, without a CR before its end and nested no deeper than 10,000. Any other is
//     refused, counted and recorded, and whoever waits for it is told. Before the peers
//     speak MCP, what a server prints passes as far as no host reads a message in it.
//   - Consent asked through the host's elicitation/create is answered by the host and
//     nobody else: ids of ours are 128 random bits behind a prefix that each proxy
//     draws for itself, and a message of the server's that uses the prefix is not passed
//     on.
//   - Readers differ in which of two equal keys counts, and some compare keys without
//     their case. So a message does not pass that has two outermost keys which differ in
//     their case at most, or one of JSON-RPC's in another case, however it is escaped; or
//     that is both a request and an answer.
//   - Neither direction waits for the other, nor for a request that the session
//     answers.
//   - Memory is bounded, by two lines of Options.Frame, the session's limits and those
//     of calls being repeated.
//   - A message longer than Options.Frame is not carried. Whoever waits for it is told
//     by an error, if its id can be told, and the session goes on. Nor is a batch of
//     more than wire.MaxBatch messages: its sender is told.
//
// # Not promised
//
// That the host shows its user who asks: a server may send forms of its own that look
// like ours, and a host that answers forms by itself answers these. It does not look
// into what the peers say to each other: paths in the arguments and results of tools
// pass as they are, because a string that looks like one may as well be the contents
// of a file. Where the server sees its roots under other paths than the host
// (broker.Config.FlatAt), roots/list and files/* speak the server's; what the two tell
// each other beside that, they have to mean alike. Since 2026-07-28 no request may come
// out of the blue: a host of that revision is asked for consent in the place of the
// answer to a call of its own that is open (tools/call, prompts/get, resources/read), if
// it can show forms; where none is, the session's other askers are asked. Which call a
// server's question belongs to it does not say: it is put in the place of the latest.
// It confines nobody.
package proxy
