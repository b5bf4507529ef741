// Package control is the owner's plane: how the commands of rootsfs reach a
// live session. A session has a directory of its own in the user's runtime
// directory, with session.json (what it is) and control.sock (HTTP with JSON
// bodies over a unix socket).
//
// # Promises
//
//   - Whoever answers on a session's socket runs as the user who asks, and whoever
//     asks runs as the user of the session or as root: the runtime directory is
//     0700, the user's, and reached without following links below the directory
//     it lies in; the socket is 0600; and both ends check the uid the kernel
//     recorded for the other (SO_PEERCRED).
//   - A session that lives holds a lock on its directory. The kernel drops it when
//     the process ends, however that happens, so a directory that can be locked
//     belongs to nobody and is removed by whoever meets it.
//   - Requests are bounded: size of header and body, time to send them; a field
//     that is not known is an error, so that a newer client cannot believe that
//     an older daemon did what it asked.
//
// # Not promised
//
// Every process of the same user outside a sandbox may use the socket: it is as
// powerful as the user's own shell. The wire format is between a rootsfs and
// its own daemon; both are expected to be of the same version.
//
// The exported functions may be called concurrently.
package control
