// Package tools serves the guarded tree as MCP tools and resources, to hosts that
// know nothing of files/*. It takes the place of
// @modelcontextprotocol/server-filesystem (2026.8.31): the tools of that server
// have its names, arguments, annotations, output schemas and results; what
// differs on purpose is listed in the README and in integration/serve. Beside
// them are tools to copy, delete, append, read ranges and search in files.
//
// It promises that every file is reached through vfs.Tree, as a caller via
// tools, so that the gate's rights, patterns, limits and audit hold here as in
// the mount; that links are followed only where they stay inside their root;
// that special files are refused unopened; that an answer is bounded, and says
// how to go on where it ends before the end; that no path outside the roots
// appears in one; that tools which no root allows are not offered, unless a person
// can be asked; that over HTTP each session is a subject by itself, whose consents no
// other has and which end with it; that a question to a person is withdrawn when nobody
// waits for its answer any more; that every refusal and failure is on record once;
// and that no client holds a revocation by not reading.
//
// It does not promise that a listing of a directory that changes meanwhile is
// of one moment, nor that a client's roots, by which a session may be narrowed,
// restrain anybody but that client: what restrains is what the owner granted.
package tools
