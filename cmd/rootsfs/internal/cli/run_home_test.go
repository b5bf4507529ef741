package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// Repositories with the same name have different HOMEs, with short and plain names.
func TestHomeName(t *testing.T) {
	seen := map[string]string{}
	for _, dir := range []string{"/home/u/a", "/home/u/b/a", "/home/u/a ", "/home/u/A", "/x/..a", "/x/\n\x1b[2J", "/x/" + strings.Repeat("é", 127)} {
		name := homeName(dir)
		if other, ok := seen[name]; ok {
			t.Errorf("%q and %q share %s", dir, other, name)
		}
		seen[name] = dir
		if len(name) > 57 || name == "." || name == ".." || filepath.Base(name) != name || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzAJ0123456789._-") != "" {
			t.Errorf("%q: %q", dir, name)
		}
	}
}
