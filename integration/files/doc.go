// Package files tests files/* as a whole: a broker on one side, published servers on the other,
// and the file system under both.
//
// Its tests run the conformance suite of guard/guardtest over a real MCP session, over
// in-memory, line and Streamable HTTP transports. They run published peers: servers on
// the TypeScript SDK, the reference servers, the conformance package's scenarios. They
// race names against the broker, send it malformed and hostile messages, and kill it in
// the middle of uploads. ROOTSFS_SOAK=1 runs the loops in full.
//
// Outside of its tests it has only Peers and InstallModules, which other tests and the benchmark
// import.
package files
