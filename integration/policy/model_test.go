package policy

import "strings"

// This file is the slow model of patterns, to which TestAgainstModel compares the guard. The model
// has no state and compiles nothing: it judges each path by the patterns' text, with its own
// matchers.

type effect int

const (
	none effect = iota
	protect
	deny
	hide
)

// rules has the lists of patterns of a policy, as the owner writes them.
type rules struct{ hide, deny, protect []string }

func matchName(p, s string) bool {
	switch {
	case p == "":
		return s == ""
	case p[0] == '*':
		return matchName(p[1:], s) || s != "" && matchName(p, s[1:])
	case p[0] == '?':
		return s != "" && matchName(p[1:], s[1:])
	}
	return s != "" && s[0] == p[0] && matchName(p[1:], s[1:])
}

func matchPath(p, s []string) bool {
	switch {
	case len(p) == 0:
		return len(s) == 0
	case p[0] == "**":
		return len(p) > 1 && matchPath(p[1:], s) || len(s) > 0 && (len(p) == 1 || matchPath(p, s[1:]))
	}
	return len(s) > 0 && matchName(p[0], s[0]) && matchPath(p[1:], s[1:])
}

func matches(text, path string, dir bool) bool {
	text = strings.TrimPrefix(text, "!")
	if t := strings.TrimSuffix(text, "/"); t != text {
		if text = t; !dir {
			return false
		}
	}
	if !strings.Contains(text, "/") {
		text = "**/" + text
	}
	return matchPath(strings.Split(strings.TrimPrefix(text, "/"), "/"), strings.Split(path, "/"))
}

// listed reports whether a list of patterns selects path. The last pattern that matches path
// decides. If no pattern matches path, the decision about the directory above path holds. If
// inherits is set, a selected directory selects everything below it, whichever patterns match
// there.
func listed(list []string, path string, dir, inherits bool) bool {
	selected := false
	names := strings.Split(path, "/")
	for i := range names {
		if inherits && selected {
			return true
		}
		for _, text := range list {
			if matches(text, strings.Join(names[:i+1], "/"), dir || i < len(names)-1) {
				selected = !strings.HasPrefix(text, "!")
			}
		}
	}
	return selected
}

// verdict returns the verdict of the rules on a path. In a directory that is hidden or
// denied, every name has the directory's verdict.
func (r *rules) verdict(path string, dir bool) effect {
	names := strings.Split(path, "/")
	for i := range names {
		at, isDir := strings.Join(names[:i+1], "/"), dir || i < len(names)-1
		if listed(r.hide, at, isDir, true) {
			return hide
		}
		if listed(r.deny, at, isDir, true) {
			return deny
		}
	}
	if listed(r.protect, path, dir, false) {
		return protect
	}
	return none
}

// within returns the verdict that dir gives to every name in it: the verdict on dir if dir is
// hidden or denied, and otherwise none. The root's dir is "".
func (r *rules) within(dir string) effect {
	if dir == "" {
		return none
	}
	if v := r.verdict(dir, true); v >= deny {
		return v
	}
	return none
}
