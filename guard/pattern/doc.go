// Package pattern judges the names of a root by rules written as in .gitignore.
// It is pure: it knows paths and rules, and asks its caller (Facts) for the few
// things about files that some built-in rules depend on.
//
// # Patterns
//
// A pattern is one line of a .gitignore: `*.pem`, `/build/`, `docs/**/*.sql`.
// Without a slash, or with one at its end only, it matches that name at any
// depth; with another slash it is anchored, at the root or at the directory of
// the .gitignore it stands in. `*` and `?` stay within one name, `[a-z]`, `[!a-z]`
// and `[[:digit:]]` stand for one character, `**` between slashes for any number
// of directories, a slash at the end makes the pattern one for directories only.
// A backslash takes the next character as it is. Braces mean themselves.
//
// The names between the slashes are matched by bmatcuk/doublestar, which the
// module uses for globs elsewhere, so that there is one reading of `*` and `[`.
// A library for whole .gitignore files was not taken: those that are kept up
// (sabhiram/go-gitignore, go-git's) match a whole path against every line each
// time, by regular expressions or by splitting it anew, and have no state of a
// directory that could be kept.
//
// # Precedence
//
//  1. Hide beats Deny, Deny beats Protect.
//  2. Each list is judged on its own. In a list the last pattern that matches
//     counts, and `!pattern` takes back what those before it said.
//  3. What a directory's match says holds for everything in it. Below a
//     directory that is hidden or denied nothing can be brought back, because
//     nobody gets there; below a protected one it can.
//  4. Allow takes back what the built-in lists and .gitignore files say, of what
//     it matches and of everything below. What the owner wrote stands; that is
//     taken back by `!pattern` in its own list.
//
// # How it works
//
// A Set holds the compiled rules, a State what is known of one directory: which
// patterns are half matched on the way there, and what holds for all of it.
// State.Enter makes the state of a subdirectory from its name, and State.Judge
// the verdict on a name, each at the cost of one step, whatever the depth. Sets
// and states are immutable and may be used concurrently; Set.At keeps the states
// of the directories that were asked for.
//
// # Promises
//
// A pattern of the owner's that cannot be understood is an error that says why. Such a line
// of a .gitignore has no effect, as with git. A pattern that is understood means what it
// means to git, but for the precedence above. No pattern and
// no name makes the package panic, and rules are bounded (MaxRules, MaxElements,
// MaxLength).
//
// # Not promised
//
// A set for exact names (Options.Fold unset) knows no other spelling of a name: for file
// systems that take `.ENV` for `.env` the caller has to set Fold. A file with two names is
// judged by the name that is used.
package pattern
