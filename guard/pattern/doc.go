// Package pattern judges the names of a root by rules written as in .gitignore.
// It opens no files. The few facts about files that some rules depend on come from the
// caller (Facts).
//
// # Patterns
//
// A pattern is one line of a .gitignore: `*.pem`, `/build/`, `docs/**/*.sql`.
// Without a slash, or with one at its end only, it matches that name at any
// depth; with another slash it is anchored, at the root or at the directory of
// the .gitignore it stands in. `*` and `?` stay within one name, `[a-z]`, `[!a-z]`
// and `[[:digit:]]` stand for one character, `**` between slashes for any number
// of directories. A pattern with a slash at its end matches directories only.
// A backslash takes the next character literally, and braces are literal.
//
// Names with wildcards, other than a single `*` at one end, are matched by
// bmatcuk/doublestar. It also matches the globs of this module (Glob), so that `*` and `[`
// mean the same in both. The package uses no library for whole .gitignore files: the
// maintained ones (sabhiram/go-gitignore, go-git's) match a whole path against every line
// each time, and cannot cache the state of a directory.
//
// # Precedence
//
//  1. Hide beats Deny, Deny beats Protect.
//  2. Each list is judged on its own. In a list the last pattern that matches
//     counts, and `!pattern` takes back the patterns before it.
//  3. A pattern that matches a directory holds for everything in it. Below a hidden or
//     denied directory `!pattern` has no effect, because the directory cannot be entered.
//     Below a protected directory it does have an effect.
//  4. Allow lifts rules of the built-in lists and of .gitignore files, for the names that it
//     matches and for everything below. It does not lift the owner's own rules: for that, write
//     `!pattern` in the same list.
//
// # How it works
//
// A Set holds the compiled rules. A State is the result for one directory: the patterns
// that its path has matched in part, and the verdicts that hold for everything in it.
// State.Enter returns the state of a subdirectory, and State.Judge the verdict on a name.
// Their cost does not depend on the depth. Sets and states may be used concurrently.
// Set.At caches the states of directories.
//
// # Promises
//
// A malformed pattern of the owner's is an error that says why. A malformed line of a
// .gitignore has no effect, as in git. Any other pattern means what it means to git, except
// for the precedence above. No pattern and no name makes the package panic, and rules are
// bounded (MaxRules, MaxElements, MaxLength).
//
// # Not promised
//
// Without Options.Fold, names are compared exactly: for file systems that take `.ENV` for
// `.env` the caller has to set Fold. A file with two names is judged by the name by which
// it is reached.
package pattern
