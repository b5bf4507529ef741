// Package network lets a confined program reach only the hosts that a person approved. The
// program needs no settings for that.
//
// The program runs in a network namespace of its own that no route leaves. The program's init opens
// a few sockets there and passes them out before anything is confined. With those sockets this
// package makes every address local to the namespace, makes the kernel pass TCP connections to the
// gate's listeners (nf_tables, TPROXY), and answers DNS. A name that a rule permits gets an address
// of its own from 198.18.0.0/15 (127.18.0.0/16 without routes), so a connection's name is known and
// not guessed. The gate resolves the name itself, checks the very address that it dials, and copies
// bytes both ways. A Service is a name inside the namespace. Connections to it are answered outside
// instead.
//
// With Options.Ask a connection to a host without a rule waits while a person is asked.
//
// # Promises
//
// A connection to a host, address or port without a rule is reset and recorded, except if a person
// allows it in time (Options.Ask). Addresses that are closed by default are not asked about.
// However many questions a program causes, the open questions and the connections that wait for
// answers are bounded. A name that resolves to an address of this machine, of a private network or
// of a cloud's metadata service is refused, unless that address has a rule of its own. A TLS
// connection that asks for a server name without a rule is refused, too, unless
// Options.AnyServerName is set. Nothing about a name without a rule goes to a resolver. Remove ends
// each connection that needs a removed rule. When Remove or Close returns, no byte of a connection
// that they ended is delivered any more, in either direction. If the process of the gate dies, the
// namespace has no way out.
//
// # Not promised
//
// An approved host can be used to send anything out. The gate checks the server name of TLS, but
// not the Host header of HTTP, so a request may name another host. A host may pass a connection on
// (a proxy, a hosting service with many customers). The kernel refuses UDP other than DNS,
// and TCP connections that the gate's Reach leaves out. These refusals have no record. If a host is
// down, the program's connection is accepted and then reset, because the kernel accepts before the
// gate dials.
package network
