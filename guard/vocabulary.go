package guard

import (
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// NewPath makes a path from a root and clean elements, see names.NewPath.
func NewPath(root RootName, rel string) (Path, error) { return names.NewPath(root, rel) }

// The types of roots, paths, operations and errors (package names), so that most callers need to
// import only this package.
type (
	// RootName is a root's unique name within a session.
	RootName = names.RootName
	// Path is a location inside a root.
	Path = names.Path
	// Op is an operation.
	Op = names.Op
	// Kind is the kind of an error.
	Kind = names.Kind
	// Error is the error of every guarded operation.
	Error = names.Error
)

// The types of grants and requests (package rules), so that most callers need to import only
// this package.
type (
	Rights   = rules.Rights
	Subject  = rules.Subject
	Via      = rules.Via
	Caller   = rules.Caller
	Policy   = rules.Policy
	Patterns = rules.Patterns
	Limits   = rules.Limits
	Grant    = rules.Grant
)

// The rights, and the modes.
const (
	Read      = rules.Read
	List      = rules.List
	Write     = rules.Write
	Append    = rules.Append
	Create    = rules.Create
	Delete    = rules.Delete
	Rename    = rules.Rename
	Watch     = rules.Watch
	Stage     = rules.Stage
	ReadOnly  = rules.ReadOnly
	ReadWrite = rules.ReadWrite
)

// The front ends.
const (
	ViaFUSE    = rules.ViaFUSE
	ViaFiles   = rules.ViaFiles
	ViaTools   = rules.ViaTools
	ViaControl = rules.ViaControl
	ViaNet     = rules.ViaNet
)

// Texts makes patterns that come from no file.
func Texts(texts ...string) []rules.Pattern { return rules.Texts(texts...) }
