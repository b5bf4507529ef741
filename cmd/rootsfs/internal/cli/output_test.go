package cli

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// odd has characters that a server may put into names, reasons and paths.
const odd = "e\u009b31m\u202e\u2800\u034f\u3164"

// No log holds a character that a terminal obeys or hides.
func TestLogsShowEverything(t *testing.T) {
	for _, attr := range []func([]string, slog.Attr) slog.Attr{logAttr, dropTime} {
		var out strings.Builder
		newLog(&out, slog.LevelInfo, attr).Info(odd, "path", odd, "error", errors.New(odd), "root", guard.RootName(odd), "foreign", names.Foreign(odd))
		if text := strings.TrimSpace(out.String()); !names.Shows(text) || strings.Count(text, "202e") != 5 {
			t.Errorf("logged: %+q", text)
		}
	}
}
