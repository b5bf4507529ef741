// Package incoming lets tests look at each request that a mount gets from the kernel.
//
// Each request that a program makes is shown before the mount answers it, with two
// exceptions:
//
//   - FORGET, RELEASE, RELEASEDIR and pages that the kernel writes back from its cache are
//     not shown: no program waits for them.
//   - IOCTL, and operations that the mount does not implement, are not shown: they reach no
//     root.
package incoming

import "github.com/hanwen/go-fuse/v2/fuse"

// Observe is called with each request before the mount answers the request, if Observe is not
// nil. Only tests set it, most of them through integration/childfs. They do so before they mount.
var Observe func(*fuse.InHeader)
