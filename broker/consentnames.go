package broker

import (
	"path/filepath"
	"strings"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// longestBase leaves room for the number that tells roots of one name apart.
const longestBase = names.MaxRootName - 8

// rootName is the name of a root that consent gives. Nobody is there to choose a
// better one, and the name of the path may be a server's: see names.SafeName.
func rootName(host string) guard.RootName {
	base := names.SafeName(filepath.Base(host))
	return guard.RootName(base[:min(len(base), longestBase)])
}

// hostPath reads a path of files/consent: absolute, or a file URI. Relative ones
// have no meaning the two sides agree on before there is a root.
func hostPath(p string) (string, error) {
	if len(p) >= 5 && strings.EqualFold(p[:5], "file:") {
		return names.ParseURI(p)
	}
	switch {
	case strings.IndexByte(p, 0) >= 0:
		return "", invalid("the path has a NUL byte")
	case !filepath.IsAbs(p):
		return "", invalid("the path is not absolute")
	}
	return p, nil
}
