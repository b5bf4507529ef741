package guardtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sourceState describes the source of a staged root, which the root must leave unchanged:
// names, types, modes, sizes, times of change and contents.
func sourceState(e *Env) string {
	e.Helper()
	var out strings.Builder
	err := filepath.WalkDir(e.Src, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return nil // a case has moved it, or its path is too long
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		text := ""
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(b)
		}
		fmt.Fprintf(&out, "%s %v %d %v %q\n", strings.TrimPrefix(path, e.Src), info.Mode(), info.Size(), info.ModTime(), text)
		return nil
	})
	e.Must(err)
	return out.String()
}
