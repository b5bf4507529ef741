// Package incoming lets tests look at each request that a mount gets from the kernel.
//
// # Promises
//
//   - Each request that a program makes is shown before anything answers it.
//
// # Not promised
//
//   - FORGET, RELEASE, RELEASEDIR and what the kernel writes back from its cache: no program
//     waits for them.
package incoming

import "github.com/hanwen/go-fuse/v2/fuse"

// Watch is called with each request before the mount answers it, if it is set. Only
// integration/childfs sets it, which only tests import, before they mount.
var Watch func(*fuse.InHeader)
