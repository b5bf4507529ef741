package names

// MaxGlobForms is how many patterns the braces of a glob may stand for. A matcher
// tries one after the other, on each name: twenty groups of two are a million, and
// a match that cannot be stopped.
const MaxGlobForms = 256

// GlobForms is an upper bound of how many patterns the braces of a glob stand for;
// what is more than MaxGlobForms is not counted on.
func GlobForms(glob string) int {
	forms, commas := 1, 0
	for i := 0; i < len(glob) && forms <= MaxGlobForms; i++ {
		switch glob[i] {
		case ',':
			commas++
		case '}':
			forms *= commas + 1
			commas = 0
		}
	}
	return forms
}

// maxGlobWork bounds one comparison of a path with a glob, in forms times bytes of
// the glob times bytes of the path: some tenths of a second. Nothing can stop a
// comparison, and a directory thousands of levels deep has a path of megabytes.
const maxGlobWork = 1 << 27

// GlobPath is how long a path may be, in bytes, to be compared with a glob of at most
// MaxGlobForms forms. What PATH_MAX admits fits every glob of 128 bytes, and every one
// of 1,024 bytes and 32 forms.
func GlobPath(glob string) int {
	return maxGlobWork / max(1, GlobForms(glob)*len(glob))
}
