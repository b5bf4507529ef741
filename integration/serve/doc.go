// Package serve tests `rootsfs serve` as a whole: the program as a host starts it, side
// by side with @modelcontextprotocol/server-filesystem, which it replaces, and under the
// attacks that such servers fail.
//
// Its tests speak to both programs over stdio without an SDK, so that they compare the
// bytes on the wire. They run published clients (the conformance package, the Inspector,
// the TypeScript and Go SDKs) against rootsfs, over stdio and Streamable HTTP. They
// exchange names under it, and attack its HTTP server. ROOTSFS_SOAK=1 runs the loops in
// full.
//
// It has no code outside tests.
package serve
