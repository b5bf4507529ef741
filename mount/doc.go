// Package mount shows the guarded tree to the kernel, as a FUSE file system.
//
// # Promises
//
// Every operation on a file of a root passes the gate of package guard once (package vfs
// ensures this). When Invalidate returns nil for an ended root, nothing that the kernel was
// given for the root works any more: descriptors, mappings, working directories, directory
// handles, cached names, attributes and pages. This holds for each lifetime of a root, also when
// the root is granted again meanwhile. The mount passes no descriptor of a source through to the
// kernel (FUSE passthrough), because such a descriptor could not be revoked. What programs stored
// through mappings before a revocation is written to the source. A panic in a handler is EIO for
// its caller and a record for the owner.
//
// If the source of a root hangs, Invalidate waits for the root's requests no longer than its
// context allows. It waits for pages and names no longer than half of guard.EndDeadline without
// progress. A request that waits for a source known to be remote is answered when the root of
// that source ends. The request is also answered when another root ends, if the request has read
// files of that other root before.
//
// # Not promised
//
// If the root of a remote source ends during a system call on the source, the call cannot be
// stopped. The request of the call is answered, so Invalidate neither waits for the call nor
// reports the call. The call may still change the source. Package guard says what a revocation
// reports of such calls.
//
// The kernel cannot drop a page while its read from the source does not return. Invalidate
// then aborts the connection, which ends the mount's other roots too, and returns an
// error. Pages that were cached before stay readable through existing descriptors and
// mappings. If a request on a local source hangs, Invalidate returns an error. That
// request may still return the data that it has read, and may still change the source.
//
// A program holds the kernel's lock of a directory while its readdir of the directory is
// stopped half-way. Until the program releases the lock, names in that directory and the cached
// list of the directory may stay. The names give no access: their attributes are gone, and the
// gate refuses to give the attributes again. Invalidate returns nil then, and the mount logs a
// warning. While the lock is held, programs may also see changes that the host makes in that
// directory late; see SourceStatus.Stuck.
//
// The mount confines no process: a process that can reach the source some other way still
// can. Package mount/sandbox confines processes. The source's watch does not notice stores that
// a process of the host makes through a shared mapping. Level Strict shows them; the other
// levels show them when something else changes.
//
// A daemon that is killed (SIGKILL, the OOM killer) revokes nothing. The kernel goes on
// answering from its caches until the dead mount is detached and its last holder is gone.
// It answers attributes by name until their timeouts end, and contents of files that are
// open or mapped (at level Max, of any file whose pages are cached). No request reaches
// the source any more. The supervisor of `rootsfs mount --daemon` detaches a dead mount
// at once (fusermount3 -u -z for an ordinary user); `rootsfs unmount` detaches it on
// demand. A program that uses this package by itself must detach its own dead mount.
// After the detach, cached pages may stay readable to programs that have the file mapped
// or open.
//
// Open files, open directories and references beyond vfs.MaxOpen are refused with ENFILE, so that
// the owner's commands find descriptors. With Options.AllowOther and no Options.Owner
// each user has a share of these, and gets EMFILE beyond it.
//
// # Model
//
// Every file the kernel knows is a node in the table of its root's view. Each lifetime of a
// root has a view of its own. A request belongs to every view that it has joined, until the
// request ends. A node that is given to the kernel is put into the table, and counted as known,
// before its request ends, so that the table never lacks a node that the kernel knows. A fixed
// directory is an alias: a request for it is a request for the directory of the root that it
// shows. To revoke a root, the mount waits for the requests of the root's view. Then the mount
// tells the kernel to drop, in this order: the root's name; the pages and attributes of every node
// in the view; the names in every directory of the view; once more the pages and attributes that
// the kernel may have cached meanwhile.
package mount
