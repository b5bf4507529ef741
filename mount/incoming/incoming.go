// Package incoming lets tests look at each request that a mount gets from the kernel.
//
// A test sets Observe, which gets each request that a program makes, before the mount answers the
// request. There are two exceptions:
//
//   - Observe does not get FORGET, RELEASE, RELEASEDIR or pages that the kernel writes back
//     from its cache: no program waits for them.
//   - Observe does not get IOCTL, which the mount refuses, or requests that go-fuse answers without
//     the mount, such as POLL: they reach no root.
package incoming

import "github.com/hanwen/go-fuse/v2/fuse"

// Observe is called with each request before the mount answers the request, if Observe is not
// nil. Only tests set Observe, most of them through integration/childfs, and they set it before
// they mount.
var Observe func(*fuse.InHeader)
