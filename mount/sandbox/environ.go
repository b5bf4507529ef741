package sandbox

import (
	"slices"
	"strings"
)

// complete adds to env what names the private places and the user, unless it is
// there.
func complete(env, places []string, uid uint32) []string {
	has := func(name string) bool {
		return slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
	}
	all := slices.Clone(env)
	name := userName(uid)
	for _, e := range append(places, "USER="+name, "LOGNAME="+name, "SHELL="+shell(), "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin") {
		if n, _, _ := strings.Cut(e, "="); !has(n) {
			all = append(all, e)
		}
	}
	return all
}

// field is the rest of the line that begins with name.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}
