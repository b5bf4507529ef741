// Package fleet connects the machines of one person or team: it has a server that all of them reach,
// the invites of machines, and the messages of owners, keepers and machines over the server.
//
// An owner invites machines, and gives them orders: revocations, locks and ceilings. A keeper confirms
// orders, and gives each machine its lease. The agent of a machine carries out the orders in the
// machine's sessions. A session serves its roots only while the machine's lease lasts.
//
// The server is NATS, embedded. Its keys (operator, account, users) decide who may connect and which
// subjects a connection may use. A fleet can use an external NATS server instead, whose administrator
// decides that. Everything that the parties rely on is signed by other keys. A signing key is never also
// the key of a connection, because a server has its clients sign a text that it chooses, the nonce.
//
// # Promises
//
//   - A machine's connection publishes only on the machine's own subjects, and once on the reply
//     subject of each message that it hears. It hears only messages for all machines or for this one.
//     The fleet's own server refuses everything else.
//   - A keeper answers a machine in that machine's inbox only, whatever address the request
//     gives.
//   - An invite enrols at most one machine, and none after the invite has expired.
//   - A machine that answers an order has carried it out in every session. A keeper that has confirmed
//     an order gives no lease to a machine that lacks the order. A machine that has the order extends
//     its lease only after it has carried out the order. When the lease has run out, nothing is served
//     on the machine.
//   - A lease counts from when the machine asked for it. The clocks of two machines are not compared,
//     and a late or repeated answer does not make the lease longer.
//   - The order with the highest number holds. A machine carries out all revocations that it has
//     missed, or revokes everything.
//   - Where a fleet has several keepers, a majority of them decides. One of three may fail. A keeper
//     that has missed an order cannot, by its answer alone, renew the lease of a machine that has
//     missed the order, too.
//   - The audit records of a machine whose user shares them reach every keeper at least once, unless
//     the machine's log deletes them first, the keeper refuses their file, or a record in the file is
//     too long. A keeper confirms records when they are on its disk. An owner who has pulled records,
//     or verifies them, is told of each record that was changed, moved or dropped after the machine
//     had sent it, except the newest: see below.
//   - The sessions of a machine that answers an order keep to the order's ceiling. The ceiling stays
//     on the machine until another order changes it, or the machine leaves the fleet.
//   - An owner's act at a machine is a request to one of its sessions, or for the list of them. An
//     act counts once, and only within 30 seconds. Owners may look and stop. The machine's user
//     chooses which other kinds of acts are allowed. No act shows the contents of a file, or changes
//     a file.
//   - Nothing that the server says is believed unless an owner, keeper or machine signed it.
//
// # Not promised
//
// A keeper that is restored from an older copy gives no lease until an owner has brought back the
// orders. Where the whole disk of a fleet's only keeper was restored, the keeper learns of that from the
// first owner or machine that knows an order which the keeper lacks. Until then the keeper gives leases
// by its older orders. A session that began before its machine joined hears revocations, and has no
// lease. All keepers of a fleet together can withhold the newest records of a session that no owner has
// pulled. They can also withhold the oldest ones, as if these had been more than the machine's share of
// the disk. The server can withhold, delay and repeat messages, and sees all of them. Names of subjects
// and fields of messages may change with every version.
//
// # Size
//
// TestThousandMachines has measured these figures on a busy machine with 2 processors, for each of 1,000
// machines and one keeper:
//
//   - 210 KB of memory for the agent with a session's registry, and 86 KB for the server and keeper;
//   - 3.8 KB in 5 files at the keeper, after 3 orders on record;
//   - on the wire at rest, 53 bytes a second with a lease of a minute, and 27 with one of two minutes.
//
// A request for a lease takes the keeper 0.7 ms of a processor. In three revocations the p99 of
// confirmations was 0.42 to 0.96 s, while other programs kept the machine busy, and all machines
// reported their status within 0.24 s.
//
// A keeper's answer to an owner breaks first, because it names all machines in one message: about 2,500
// machines reach the server's bound of 1 MiB (max_payload, https://docs.nats.io/reference/faq). Then
// commands of owners say that the keeper does not answer; leases go on. The next bound is 65,536
// connections, nats-server's default for max_connections. A hundred thousand machines would need answers
// in parts and a cluster with leaf nodes (https://docs.nats.io/concepts/topologies). With a lease of two
// minutes they would ask for 2,800 leases a second, which takes two processors of a keeper. They would
// need 8.6 GB of memory for connections, 380 MB in 500,000 files at each keeper, and 2.7 MB a second on
// the wire. The bounds of JetStream do not matter: the fleet stores nothing there.
package fleet
