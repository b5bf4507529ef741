// Package race tries to get out of a root while somebody rearranges it.
//
// It holds nothing but tests. One process exchanges names of the source as fast
// as it can: directories and files with links that lead outside, files with
// FIFOs, parents of what is being used, a directory that leaves the root and
// comes back. Others meanwhile do everything a program can do, through the
// mount, on the very names that are exchanged. Outside lie canaries: files with
// content, owner, times, attributes and names that exist nowhere else. Any sign
// of them seen through the mount is a leak; any difference in them afterwards
// is an outside write. Both must be none.
//
// One more process does bare opens of the same names in the same loop, without
// rootsfs, and must see canaries: a race that nobody loses proves nothing.
//
// By default the loops are short; ROOTSFS_SOAK=1 makes 1,000,000 swaps at each
// cache level. Requirements shown here: R063, R064, R188, R189, R192.
//
// What is no leak: a process that follows a link whose target is inside arrives
// inside. And what no file system can take back: a directory that its owner
// moves out of the root between the resolution of a name in it and the call on
// that name; the call then acts in the directory that was moved, which was
// inside when it was named, and on nothing else out there.
package race
