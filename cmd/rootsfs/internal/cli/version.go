package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// version, commit and date are set by the linker (integration/dist/version.sh names them).
// In a program that was built otherwise the go command's own record takes their place.
var version, commit, date string

// versionInfo is what `rootsfs version --json` prints.
type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Date     string `json:"date,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// readVersion returns the version of this program. Modified reports whether tracked files
// differed from the commit, Date is the commit's.
func readVersion() versionInfo {
	v := versionInfo{Version: version, Revision: commit, Date: date, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.Version = cmp.Or(v.Version, info.Main.Version)
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Revision = cmp.Or(v.Revision, s.Value)
			case "vcs.time":
				v.Date = cmp.Or(v.Date, s.Value)
			}
		}
	}
	v.Version = cmp.Or(v.Version, "(devel)")
	v.Modified = strings.HasSuffix(v.Version, "+dirty")
	return v
}

// Version is the version of this program.
func Version() string { return readVersion().Version }

// line is what version and --version print.
func (v versionInfo) line() string {
	built := v.Go + ", " + v.Platform
	if v.Revision != "" {
		built = "commit " + v.Revision[:min(12, len(v.Revision))] + " of " + v.Date + ", " + built
	}
	return fmt.Sprintf("rootsfs %s (%s)", v.Version, built)
}

func (a *App) newVersionCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show which rootsfs this is",
		RunE: func(*cobra.Command, []string) error {
			v := readVersion()
			return a.Report(v, func() { a.Say("%s", v.line()) })
		},
	}
	a.JSONFlag(cmd)
	return cmd
}
