// Package serve shows `rootsfs serve` whole: the program as a host starts it,
// side by side with @modelcontextprotocol/server-filesystem, whose place it
// takes, and under the attacks that such servers fail.
//
// Its tests speak to both programs over stdio without an SDK, so that what is
// compared is what stands on the wire; put published clients (the conformance
// package, the Inspector, the TypeScript and Go SDKs) before ours, over stdio
// and Streamable HTTP; exchange names under it; and attack its HTTP door.
// ROOTSFS_SOAK=1 runs the loops in full.
//
// It has no code outside tests and promises nothing to anybody else.
package serve
