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
