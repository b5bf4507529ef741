package cli

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// StderrLog returns a log on standard error, for what runs before a command.
func StderrLog() *slog.Logger { return NewLog(os.Stderr, slog.LevelInfo, LogAttr) }

// NewLog makes every log of the commands.
func NewLog(w io.Writer, level slog.Level, attr func([]string, slog.Attr) slog.Attr) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: attr}))
}

// LogAttr escapes what a terminal would obey or not show: the handler quotes, and takes
// for seen what is blank or changes the character before it.
func LogAttr(_ []string, at slog.Attr) slog.Attr {
	if text := at.Value.String(); !names.Shows(text) {
		at.Value = slog.StringValue(names.EscapeQuoted(text))
	}
	return at
}

// DropTime is LogAttr for lines without their time: who reads standard error knows it, or
// records it.
func DropTime(groups []string, at slog.Attr) slog.Attr {
	if len(groups) == 0 && at.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return LogAttr(groups, at)
}

// ToJournal reports whether standard error goes to systemd's journal: the manager
// says which stream it made, because the variable alone is inherited by
// everything that is started from a unit.
func ToJournal() bool {
	var dev, ino uint64
	if _, err := fmt.Sscanf(os.Getenv("JOURNAL_STREAM"), "%d:%d", &dev, &ino); err != nil {
		return false
	}
	var st unix.Stat_t
	return unix.Fstat(2, &st) == nil && st.Dev == dev && st.Ino == ino
}
