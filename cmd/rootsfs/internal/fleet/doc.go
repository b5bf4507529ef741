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
//   - A machine that answers an order has carried it out in every session. One that does not
//     answer gets no lease from a keeper that has confirmed the order: when its lease has run
//     out, nothing is served there.
//   - A lease counts from when the machine asked for it. No clocks are compared, and a late or
//     repeated answer gives no time.
//   - The order with the highest number holds. A machine carries out all that it has missed, or
//     ends everything.
//   - Where a fleet has several keepers, each with a server, a majority of them decides. One of three
//     may fail, and a keeper that has missed an order cannot renew what the order ended.
//   - A machine's audit records reach every keeper at least once, unless the machine's log deletes
//     them first. A keeper confirms those that are on its disk. An owner who has pulled them, or
//     verifies them, is told of each that was changed, moved or dropped after the machine had sent
//     it, except the newest: see below.
//   - The sessions of a machine that answers an order keep to the order's ceiling, and the machine
//     keeps it until another order or until it leaves.
//   - An owner's act at a machine counts once, and within 30 seconds. The machine's user says which
//     kinds of acts count. None shows the contents of a file, or changes one.
//   - Nothing that the server says is believed unless an owner, keeper or machine signed it.
//
// # Not promised
//
// A keeper that is restored from an older copy gives no lease until an owner has brought back the
// orders. Where a whole disk was restored, the keeper learns that from the first owner, or machine,
// that knows an order which it lacks; until then it gives leases by its older orders. A session
// that began before its machine joined hears revocations, and has no lease. All keepers of
// a fleet together can withhold the newest records of a session that no owner has pulled, and the
// oldest as if they had been too many. The server can withhold, delay and repeat messages, and sees all of them. Names of subjects
// and fields of messages may change with every version.
package fleet
