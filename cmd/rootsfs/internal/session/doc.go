// Package session puts a session of rootsfs together and runs it: the audit
// log, the registry with its rules, the mount, the owner's socket, the watch on
// the roots' directories, and the order in which they begin and end.
//
// # Promises
//
//   - Start leaves nothing behind when it fails, no audit file either.
//   - A session that ends, for whatever reason (a signal, the owner's unmount,
//     somebody else's umount), first revokes every root and only then unmounts.
//     While somebody still holds something in the detached mount the session
//     stays and refuses everything.
//   - A root whose directory vanishes, is replaced or cannot be read any more ends
//     by itself and is shown as unavailable until it is approved again.
//
// # Not promised
//
// A replaced directory is noticed when it is looked at again, every RecheckEvery;
// until then operations go to the directory that was approved, never to the new one.
// kill -9 of the process revokes nothing by itself: the kernel then fails every
// request, but answers from its caches until the mount is detached. The command's
// supervisor detaches the mount of a session that it watches (mount --daemon), at once;
// what programs hold open or have mapped may stay readable to them from cached pages.
package session
