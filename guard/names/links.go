package names

import (
	"path"
	"strings"
)

// maxLinks is how many links the kernel follows on one path (MAXSYMLINKS).
const maxLinks = 40

// FollowLinks follows those of the links that an absolute path passes. links are given by
// their absolute paths, whose directories are no links, with their targets. Only text is
// looked at. The result is clean.
func FollowLinks(links map[string]string, p string) string {
	if len(links) == 0 {
		return path.Clean(p)
	}
	at, rest := "/", strings.Split(p, "/")
	for followed := 0; len(rest) > 0; {
		next := path.Join(at, rest[0])
		rest = rest[1:]
		target, ok := links[next]
		if !ok || followed == maxLinks {
			at = next
			continue
		}
		followed++
		if strings.HasPrefix(target, "/") {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at
}
