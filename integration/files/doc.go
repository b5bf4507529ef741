// Package files tests the MCP methods files/* from end to end: a broker on one side, published
// servers on the other, and the file system under both.
//
// Its tests run the conformance suite of guard/guardtest over a real MCP session, over
// in-memory, line and Streamable HTTP transports. They run published peers: servers on
// the TypeScript SDK, the reference servers, the conformance package's scenarios. They exchange
// names for links while the broker resolves them, send the broker malformed and hostile messages,
// and kill it in the middle of uploads. ROOTSFS_SOAK=1 runs the loops in full.
//
// The code outside of its tests installs the published servers (Peers, InstallModules) and runs
// the conformance package (Peers.Conformance), also for other tests and the benchmark.
package files
