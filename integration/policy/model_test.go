package policy

import "strings"

// This is the slow model. It has no state and compiles nothing: it judges each path by the
// patterns' text, with its own matchers.

type effect int

const (
	none effect = iota
	protect
	deny
	hide
)

// rules are the lists of a policy, as they are written.
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

// listed reports whether a list of patterns selects path. The last pattern that matches path or
// a directory above it decides. If inherits is set, a selected directory selects everything
// below it, whatever later patterns say.
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
// denied, every name has the verdict on the directory.
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

// within returns the verdict on names in a directory that comes from the directory itself: none
// unless it is hidden or denied. "" is the root.
func (r *rules) within(dir string) effect {
	if dir == "" {
		return none
	}
	if v := r.verdict(dir, true); v >= deny {
		return v
	}
	return none
}
