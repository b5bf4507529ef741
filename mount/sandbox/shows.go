package sandbox

import (
	"slices"
	"strings"
	"sync"

	"github.com/rootsfs/rootsfs/guard/names"
)

// shownFiles and shownDirs are what of the host every confined command sees, at its
// own path and read-only, and what of /etc and /dev it finds of its own.
var shownFiles = sync.OnceValue(func() map[string]bool {
	files := map[string]bool{}
	for _, n := range slices.Concat(etcFiles, etcNetFiles, []string{"passwd", "group", "hostname"}) {
		files["/etc/"+n] = true
	}
	for _, n := range devices {
		files["/dev/"+n] = true
	}
	return files
})

var shownDirs = sync.OnceValue(func() []string { return slices.Concat(systemDirs, etcDirsHere()) })

// Shows reports whether a command at the level sees a path, absolute and clean, by
// itself: one in a system directory, for instance. Roots, interpreters and private
// directories are not among them.
func (l Level) Shows(path string) bool {
	if l == 0 || l >= None || !strings.HasPrefix(path, "/") {
		return false
	}
	return shownFiles()[path] || slices.ContainsFunc(shownDirs(), func(dir string) bool { return names.Under(path, dir) })
}
