// Package proxy tests the stdio proxy with real peers, each in a process of its own. On
// one side is a host on the Go SDK or the MCP Inspector, on the other are published
// servers and a script.
//
// Its only code outside tests is Serve, which replaces `rootsfs run` without confinement, for
// the tests and for the benchmark. Only tests import it.
package proxy
