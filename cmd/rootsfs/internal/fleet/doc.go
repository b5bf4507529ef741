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
//     them first. A keeper confirms records when they are on its disk. An owner who has pulled them, or
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
// a fleet together can withhold the newest records of a session that no owner has pulled. They can
// also withhold the oldest ones, as if these had been more than the machine's share of the disk. The
// server can withhold, delay and repeat messages, and sees all of them. Names of subjects and fields
// of messages may change with every version.
//
// # Size
//
// Measured by TestThousandMachines on a busy machine with 2 processors, for each of 1,000 machines and
// one keeper: 210 KB of memory for the agent with a session's registry, 86 KB for the server and
// keeper, 3.8 KB in 5 files at the keeper after 3 orders on record, and 53 bytes a second on the wire
// at rest with a lease of a minute, 27 with two. A request for a lease takes the keeper 0.7 ms of a
// processor. Of three revocations the p99 of confirmations was 0.42 to 0.96 s, while other
// programs kept the machine busy, and all machines reported their status within 0.24 s.
//
// What breaks first is a keeper's answer to an owner, which names all machines in one message: the
// server's bound of 1 MiB (max_payload, https://docs.nats.io/reference/faq) is reached by about 2,500
// machines. Then commands of owners say that the keeper does not answer; leases go on. The next bound
// is 65,536 connections, nats-server's default for max_connections. A hundred thousand machines would
// need answers in parts and a cluster with leaf nodes (https://docs.nats.io/concepts/topologies). They
// would ask for 2,800 leases a second, which is two processors of a keeper, with 8.6 GB of memory for
// connections, 380 MB in 500,000 files at each keeper, and 2.7 MB a second on the wire. No bound of
// JetStream counts: nothing is kept there.
package fleet
