// Package proxy tests the stdio proxy with real peers, each in a process of its own. On one side
// is a host: a program on the Go or TypeScript SDK, the MCP Inspector, or a Python script. On the
// other side is a server: a published server, a program on the Go or TypeScript SDK, or a script.
//
// Its only code outside tests is Serve, which runs a server behind the proxy as `rootsfs run` does,
// but without confinement. Only tests and the benchmark import the package.
package proxy
