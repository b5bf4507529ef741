// Package proxy shows the stdio proxy with peers as they are in the world: a host
// on the Go SDK or the MCP Inspector on one side, published servers and a script
// on the other, each in a process of its own.
//
// Its only code outside tests is Serve, which stands in for `rootsfs run` without
// confinement, for the tests and for the benchmark. It promises nothing to
// anybody else.
package proxy
