package rules

import "strings"

// Identity identifies a file or directory, so that two openings of a path can be compared.
// Birth is zero if the file system does not record it.
type Identity struct {
	Dev, Ino uint64
	Birth    int64 // nanoseconds since 1970
}

// Naming says which spellings a source takes for one name.
type Naming uint8

// The namings. With FoldedNames and ShortNames, rules compare names by pattern.Fold. With
// MixedNames, they do so only in the directories that fold names.
const (
	ExactNames  Naming = iota
	MixedNames         // some directories take several spellings for one name
	FoldedNames        // every directory may
	ShortNames         // as FoldedNames; besides, a name may have a short form such as LONGNA~1
)

// LookResult describes the file at a path.
type LookResult struct {
	ID  Identity
	Dir bool
}

// Ignore is one .gitignore.
type Ignore struct {
	Dir  string // below the root
	Text string
}

// Tree answers the questions of rules about the files of a root. Paths are below the root and
// without links. Unless across is true, a path into another file system is refused (Escaped),
// and that file system is not accessed.
type Tree interface {
	// File returns the one name of a single-file root, "" for a directory.
	File() string
	// Look describes the file at a path.
	Look(rel string, across bool) (LookResult, error)
	// Head returns the first n bytes of a regular file, fewer if it has fewer.
	Head(rel string, n int, across bool) ([]byte, error)
	// Ignores reads the .gitignore files of the root, each before those in directories below.
	// It calls found with each file, and enters a directory only if enter returns true. Too
	// many files or directories are an error.
	Ignores(found func(Ignore), enter func(dir string) bool) error
	// Naming says which spellings the source takes for one name. If directories differ
	// (MixedNames), FoldsAt reports whether a directory, or one above it, folds names.
	Naming() Naming
	FoldsAt(dir string, across bool) bool
}

// Join returns the path of a name in a directory below the root.
func Join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// Split returns the directory and the last name of a path below the root.
func Split(rel string) (dir, base string) {
	i := strings.LastIndexByte(rel, '/')
	return rel[:max(0, i)], rel[i+1:]
}
