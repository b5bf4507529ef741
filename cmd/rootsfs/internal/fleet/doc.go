// Package fleet connects the machines of one person or team: a server that all of them reach,
// the invitation of machines, and what owners, keepers and machines say to each other over it.
//
// The server is that of NATS, embedded. Its keys (operator, account, users) decide who may
// connect and which subjects a connection may use. What the parties rely on is signed by other
// keys, because a server has its clients sign a text that it chooses, the nonce: a signing key
// never is a connection's key.
//
// # Promises
//
//   - A machine's connection publishes on its own subjects only, and hears only what is for all
//     machines or for it. The server refuses everything else.
//   - A keeper answers a machine in that machine's inbox only, whatever address the request
//     gives.
//   - An invite enrols one machine, once, until its time is up.
//   - Nothing that the server says is believed unless an owner, keeper or machine signed it.
//
// # Not promised
//
// The server can withhold, delay and repeat messages, and sees all of them. Names of subjects
// and fields of messages may change with every version.
package fleet
