package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker in releases; otherwise what the Go tool recorded
// of the repository stands for it.
var version = ""

type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readVersion() versionInfo {
	v := versionInfo{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		if v.Version == "" {
			v.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Revision = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	if v.Version == "" {
		v.Version = "(devel)"
	}
	return v
}

// line is what version and --version print.
func (v versionInfo) line() string {
	return fmt.Sprintf("rootsfs %s (%s, %s)", v.Version, v.Go, v.Platform)
}

func newVersionCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show which rootsfs this is",
		Long:    "Show the version of rootsfs, of the Go release that built it, and the platform.",
		Example: "  rootsfs version --json",
		Args:    nargs(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			v := readVersion()
			return a.report(v, func() { a.say("%s", v.line()) })
		},
	}
	jsonFlag(a, cmd)
	return cmd
}
