package builtin

import (
	"regexp"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/guard/pattern"
)

// This file recognises repositories by the names of their files. It also recognises the directories
// in a repository that a tool creates and removes as a whole. It opens no files: package guard does.

const gitDir = ".git"

// IsPart reports whether a file or directory that is created at a path is one of these:
//   - the .git or .hg of a repository, or the corresponding name of another tool (Tops, *.fossil)
//   - in a directory of git's, the directory of a worktree, any directory below modules (where the
//     repositories of submodules lie), or the directory of unfinished work such as a rebase
//
// isDir says that a directory is created, and not a file. isBare reports whether a directory with
// another name than .git is a directory of git.
func IsPart(rel string, isDir bool, isBare func(rel string) bool) bool {
	elems := strings.Split(rel, "/")
	last := elems[len(elems)-1]
	if slices.Contains(Tops, last) || !isDir && strings.HasSuffix(last, ".fossil") {
		return true
	}
	for i := len(elems) - 1; isDir && i >= 0; i-- {
		if elems[i] == gitDir {
			return isGitPart(elems[i+1:])
		}
		if isGitPart(elems[i:]) && isBare(strings.Join(elems[:i], "/")) {
			return true
		}
	}
	return false
}

// isGitPart is IsPart for a directory that is created in a directory of git's. below has the elements
// of the new directory's path, relative to the directory of git's.
func isGitPart(below []string) bool {
	switch {
	case len(below) == 0:
		return false
	case below[0] == "worktrees":
		return len(below) == 2 || len(below) == 3 && isGitWork(below[2])
	}
	return len(below) == 1 && isGitWork(below[0]) || len(below) > 1 && below[0] == "modules"
}

// MayBePart is a cheap test for a name in a directory: if it returns false, so does IsPart.
func MayBePart(dirRel, name string) bool {
	if slices.Contains(Tops, name) || isGitWork(name) || strings.HasSuffix(name, ".fossil") {
		return true
	}
	return strings.Contains(dirRel, "modules") || strings.HasSuffix(dirRel, "worktrees")
}

// isGitWork reports whether git keeps, in a directory of this name, commands that it runs
// when an interrupted rebase, am or cherry-pick continues.
func isGitWork(name string) bool {
	return name == "rebase-merge" || name == "rebase-apply" || name == "sequencer"
}

// MayMakeBare reports whether a directory can become a bare repository when this name is
// made in it. The case of letters makes no difference, as on some file systems.
func MayMakeBare(name string) bool {
	return slices.ContainsFunc(bareNames, func(part string) bool { return strings.EqualFold(part, name) })
}

// IsBare reports whether a tool would take a directory itself for a repository. has reports
// whether the directory contains a name. If a directory of git refers to another one, it has HEAD
// and commondir, and need not have the other names.
func IsBare(has func(name string) bool) bool {
	all := func(parts []string) bool {
		return !slices.ContainsFunc(parts, func(name string) bool { return !has(name) })
	}
	return all(gitParts) || has(gitParts[0]) && has(commonDir) || all(svnParts)
}

const commonDir = "commondir"

var (
	gitParts  = Parts(pattern.GitDir)
	svnParts  = Parts(pattern.SvnDir)
	bareNames = slices.Concat(gitParts, svnParts, []string{commonDir})
)

// variable matches a value that npm takes completely from its environment.
var variable = regexp.MustCompile(`^\$\{[^{}]*\}$`)

// HasTokens reports whether an .npmrc contains credentials, and not only names of environment
// variables. It reads lines, quotes and lists (KEY[]) as npm does.
func HasTokens(text string) bool {
	lines := strings.FieldsFunc(text, func(c rune) bool { return c == '\n' || c == '\r' })
	for _, line := range lines {
		key, value, ok := strings.Cut(line, "=")
		key = strings.TrimSuffix(strings.ToLower(strings.Trim(key, " \t\"'")), "[]")
		value = strings.Trim(value, " \t\"'")
		if !ok || value == "" || variable.MatchString(value) {
			continue
		}
		if strings.Contains(value, "PRIVATE KEY") {
			return true
		}
		for _, secret := range []string{"_authtoken", "_auth", "_password"} {
			if strings.HasSuffix(key, secret) {
				return true
			}
		}
	}
	return false
}
