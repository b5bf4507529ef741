package cli

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// -v can be repeated, and takes a value like a switch.
func TestVerbosity(t *testing.T) {
	for args, want := range map[string]slog.Level{
		"": slog.LevelWarn, "-v": slog.LevelInfo, "--verbose": slog.LevelInfo, "--verbose=true": slog.LevelInfo, "-v=1": slog.LevelInfo,
		"--verbose=false": slog.LevelWarn, "-v --verbose=false": slog.LevelWarn, "-vv": slog.LevelDebug, "--verbose=2": slog.LevelDebug, "-v -v": slog.LevelDebug,
		"--debug": slog.LevelDebug, "--debug=true": slog.LevelDebug, "--debug=false": slog.LevelWarn,
	} {
		var f sessionFlags
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.verbosity(fs, "more")
		if err := fs.Parse(strings.Fields(args)); err != nil || f.Level(slog.LevelWarn) != want {
			t.Errorf("%q: %v, %v, want %v", args, f.Level(slog.LevelWarn), err, want)
		}
	}
	for _, args := range []string{"--verbose=much", "--verbose=-1", "--debug=2"} {
		var f sessionFlags
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.verbosity(fs, "more")
		if err := fs.Parse([]string{args}); err == nil {
			t.Errorf("%s was accepted", args)
		}
	}
}
