// Package serve tests `rootsfs serve` as a whole: the program as a host starts it, side
// by side with @modelcontextprotocol/server-filesystem, which it replaces, and under
// attacks that succeed against such servers.
//
// Its tests speak to both programs over stdio without an SDK, so that they compare the
// bytes on the wire. They run published clients (the conformance package, the Inspector,
// the TypeScript and Go SDKs) against rootsfs, over stdio and Streamable HTTP. They
// swap files for links that lead out while rootsfs uses the files, and attack rootsfs's HTTP
// server. ROOTSFS_SOAK=1 runs the loops in full.
//
// The package has no code outside tests.
package serve
