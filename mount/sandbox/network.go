package sandbox

import "os"

// Network is a network namespace of the command's own that the caller serves. A socket stays
// in the namespace that it was opened in, so the init opens them and passes them out.
type Network struct {
	// Listeners is how many sockets Serve gets to listen on single ports.
	Listeners int
	// Optional has levels without a network namespace go on without it.
	Optional bool
	// ResolvConf is the command's /etc/resolv.conf.
	ResolvConf []byte
	// Serve is called once, before the command is started, with sockets by their names (see
	// package initproc). It owns them. Its error is Start's.
	Serve func(sockets map[string][]*os.File) error
}
