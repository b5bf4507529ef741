// Package race tries to get out of a root while another process rearranges it.
//
// It holds nothing but tests. One process exchanges names of the source all the time:
// directories and files with links that lead outside, files with FIFOs, parents of files
// in use, a directory that leaves the root and comes back. Meanwhile other processes do
// many kinds of operations on these names, through the mount. Outside lie canaries: files
// with content, owner, times, attributes and names that exist nowhere else. Any sign of
// them seen through the mount is a leak; any difference in them afterwards is an outside
// write. There must be neither.
//
// One more process does bare opens: it opens the same names without rootsfs, and must see
// canaries. A race in which even bare opens see none proves nothing.
//
// By default the loops are short; ROOTSFS_SOAK=1 makes 1,000,000 swaps at each
// cache level. Requirements shown here: R063, R064, R165, R188, R189, R192.
//
// Two things are no leak. A process that follows a link whose target is inside arrives
// inside. And an owner may move a directory out of the root between the resolution of a
// name in it and the call on that name. No file system can take this back: the call acts
// in the moved directory, which was inside when it was named, and on nothing else
// outside.
package race
