package rules

import (
	"slices"
)

// Via is the front end an operation came through.
type Via uint8

// The front ends.
const (
	ViaFUSE Via = iota + 1
	ViaFiles
	ViaTools
	ViaControl
	// ViaNet is the network gate of a command of `rootsfs run`. It occurs only in audit
	// records.
	ViaNet
)

func (v Via) String() string { return WordOf(v, "none", "fuse", "files", "tools", "control", "net") }

// Caller is the caller of an operation. UID, GID and PID are those of the requesting process,
// if the front end learns them from the kernel. A JSON-RPC peer has none.
type Caller struct {
	Subject Subject
	Via     Via
	UID     uint32
	GID     uint32
	PID     int32
	// Umask is the umask of the requesting process, if the front end leaves it to package vfs to
	// apply the umask. The umask does not apply to a file that is created in a directory with a
	// default ACL.
	Umask uint32
	// Groups returns the caller's supplementary groups, which only some operations need. If Groups
	// is nil, the caller has none.
	Groups func() []uint32
	// FileOwner is the owner of the files that the caller makes; nil: the caller.
	FileOwner *User
}

// User is a user and a group of the operating system.
type User struct{ UID, GID uint32 }

// InGroup reports whether the caller may act for the group: it is root, or a
// member.
func (c Caller) InGroup(gid uint32) bool {
	if c.UID == 0 || c.GID == gid {
		return true
	}
	return c.Groups != nil && slices.Contains(c.Groups(), gid)
}

// WordOf returns words[n], or the first of words if there is no such word.
func WordOf[T ~uint8](n T, words ...string) string {
	if int(n) < len(words) {
		return words[n]
	}
	return words[0]
}
