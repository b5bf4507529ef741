// Command model looks for faults in models of revocation, of staged roots and of the leases of a
// fleet, with the model checker Spin. It also shows that Spin finds the faults of wrong models.
//
//	go run ./integration/model [-only REGEXP] [-jobs N] [-limit DURATION]
//
// `make model` runs it. It fails unless each configuration holds and was searched
// exhaustively, and each mutation, which is a model with one step changed, has a
// counterexample. The searches of mutations are breadth first: their counterexamples
// are the shortest, in Spin's steps. `make test` runs a few small configurations and
// mutations, if Spin is installed.
//
// The models are these; the next three after gate.pml include it:
//
//   - gate.pml: the gate
//   - mount.pml: the mount with the kernel and programs
//   - tree.pml: the operations on the source, and their callers
//   - answers.pml: the answers of the broker and of the tools, each of which waits until a peer
//     reads it
//   - lease.pml: the lease of a machine of a fleet: the duties of an agent and its keepers, and
//     the machine's session
//   - orders.pml: how two owners' orders get a majority of three keepers
//   - stage.pml: a staged root: its open files, its names, and the owner's apply
//
// # Properties
//
// An ending is one run of `revoke`. It is clean if it returns nil. A narrowing takes rights from a
// root that stays, or hides names in it.
//
//	P1  An access that begins after the ending of a root has returned gets nothing of the
//	    root: no name, attribute, page or list out of the kernel, and no answer. Nothing
//	    is put into the mount's tables any more.
//	P2  No system call that changes the source begins after the ending, clean or not,
//	    except the calls that the ending has reported as left. After a clean ending no
//	    such call is running in the source.
//	P3  Nothing gets stuck. Programs may stop at any step. (The models do not show that an
//	    ending returns while programs go on for ever.)
//	P4  A file or an upload opened in one lifetime of a root reaches nothing in the next.
//	P5  Once a narrowing has returned, what it forbids is refused: names as by P1, writes
//	    as by P2. A store that a program makes while nobody may write is not seen by
//	    programs that open the file later.
//	P6  P1 holds for names and attributes: in the configurations of P6, programs walk, look
//	    up and stat.
//	P7  No event of a watch begins after the ending.
//	P8  After the ending or the narrowing, a connection gets at most one more piece of the
//	    answers that say what was read in the root: the piece that is being written.
//	P9  A descriptor that moves to a copy still refers to the same file. Once somebody has
//	    written to the copy, nobody reads the original.
//	P10 What the owner writes into a file while the file is applied is not lost, wherever the
//	    process is killed. The owner's version is at the file's path, in the trash, or at a
//	    path that the owner is told.
//	P11 A change of a staged name is seen whole or not at all, wherever the process is killed.
//	P12 A checkpoint contains what a file contained when the checkpoint was made, whatever is
//	    written later.
//	P13 When the owner of a fleet has all confirmations of a revocation, and then the length of
//	    a lease has passed, no earlier grant is live on a machine. This holds whatever messages
//	    are lost, late or repeated.
//	P14 A machine that asks for a lease after the confirmation of a revocation gets no lease
//	    unless it has carried out the revocation. This holds whatever other owners order, and
//	    also if a keeper is restored from an old copy.
//
// # What is modelled
//
// A step is a statement, or a sequence in atomic. No other process sees a part of a step. The
// comment "code:" names the functions that a step stands for, and a test fails when one of these
// functions does not exist any more. "kernel:" marks steps of the kernel, as in Linux 6.13:
// attr_version, the counter of evictions, directory locks (shared for look-ups, exclusive
// for notifications), page locks, writing back, the cached list. One root is one
// directory with one file, whose one page is also its mapping. There is one program, or
// two with NU=2; with LEAN the two programs do different things and neither stops. The mount
// has two handlers. The tree has two operations, or one with NW=1.
//
// A time limit may pass at any moment (DEADLINE, REMOTE), so that the properties hold
// whatever the clock does.
//
// These situations are modelled. Capitals are the flags that select a situation:
//
//   - FORGET against a look-up: NAMES FORGET. The table keeps what the kernel knows.
//   - Inode numbers used again, displaced nodes: NAMES DISPLACE.
//   - Stores while read-only, written back when read-write returns: PAGES DISPLACE.
//   - A local source that hangs: DEADLINE. A drain that gave up has its operations cut.
//   - Nested roots: NESTED of mount.pml and tree.pml; several roots that end at the same
//     time: TOGETHER, CROSSWISE.
//   - A name that is granted again, before or after the ending has returned, by the owner
//     or by a consent: REGRANT, MEANWHILE.
//   - Answers that wait, and are written in pieces: answers.pml. A peer stops reading at
//     any piece. The reset of HTTP connections is left out.
//   - Uploads and open files: each is modelled as an operation that holds what they hold.
//   - Watches: WATCH.
//
// # What is left out
//
//   - A page that is stuck, for which the mount aborts its connection.
//   - Names that a program keeps the kernel from dropping, except with NESTED.
//   - The removal of an upload's staged file, which is a call like any other.
//   - Fixed directories (rootsfs run), whose node is shown as another; several mounts.
//   - Attributes of O_TMPFILE, which no directory lock covers; expiry; single uses.
//   - An open(2) of the owner that has found a file by its path and has not yet opened it
//     while an apply replaces the file. Without a trash its writes go to a file without a
//     name, as with any program that replaces a file.
//   - A power loss: in stage.pml, each record is on the disk at once.
//   - Directories, and links of files, in staged roots (stage.pml).
//   - Kernels without the counter of evictions: in the model a file has one name, so the
//     model would show little about them.
//
// # When the code changes
//
// Change the model first, or say why it stays the same. A new way to publish, to wait or to take
// back becomes a step in a model, and the model without that step becomes a mutation. These parts
// of the code have models (fleet and session are in cmd/rootsfs/internal):
//
//	guard: generation.go                                   gate.pml
//	guard: gate.go, wait.go; vfs/internal/gate             tree.pml: Op, Part
//	guard: revoke.go, change.go                            mount.pml, tree.pml, answers.pml: Owner
//	vfs/watch                                              tree.pml: Watch
//	guard: stamp.go                                        answers.pml: stamp, recheck
//	broker/internal/jsonline: writer.go                    answers.pml: Writer
//	mount: revoke.go                                       mount.pml: invalidate, content
//	mount: request.go                                      mount.pml: ENTER, land, drainFlights
//	mount: mount.go, node.go                               mount.pml: view, node, Forget
//	vfs/internal/apply: place.go, exchange.go, recover.go  stage.pml: Apply
//	vfs/internal/beneath: tracked.go, copyup.go            stage.pml: SWAP
//	vfs/internal/beneath: union*.go, apply.go              stage.pml: NAMES
//	vfs/internal/beneath: frozen.go                        stage.pml: FREEZE
//	guard: pause.go; session: lease.go                     lease.pml
//	fleet: promise.go, restored.go                         orders.pml
package main
