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
	// ViaNet is the gate of the network that a command of `rootsfs run` has: in audit
	// records only.
	ViaNet
)

func (v Via) String() string { return WordOf(v, "none", "fuse", "files", "tools", "control", "net") }

// Caller is the caller of an operation. UID, GID and PID are those of the requesting process,
// if the front end knows them (from the kernel; a JSON-RPC peer has none).
type Caller struct {
	Subject Subject
	Via     Via
	UID     uint32
	GID     uint32
	PID     int32
	// Umask is that of the requesting process, if the front end leaves it to package vfs to
	// apply: a directory with a default ACL ignores it.
	Umask uint32
	// Groups returns the caller's supplementary groups, which only some operations need; nil:
	// it has none.
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

// WordOf returns the word for a number, the first of words if there is none.
func WordOf[T ~uint8](n T, words ...string) string {
	if int(n) < len(words) {
		return words[n]
	}
	return words[0]
}
