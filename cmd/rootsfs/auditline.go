package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// auditLine shows a record as one line; nil for the headers of files, which are
// of interest only to who asks for them with --op session.
func (a *app) auditLine(e *audit.Entry, withSession bool, op string) []byte {
	if e.Op == "session" && op != "session" {
		return nil
	}
	if a.json {
		return append(names.JSON(e.Line), '\n')
	}
	var b strings.Builder
	b.WriteString(e.Time.Local().Format("2006-01-02 15:04:05.000"))
	if withSession {
		fmt.Fprintf(&b, "  %-12s", names.Escape(e.Session))
	}
	fmt.Fprintf(&b, "  %-7s  %-11s  %s", orDash(names.Escape(e.Verdict)), names.Escape(e.Op), auditPath(e))
	if d := auditDetails(e); len(d) > 0 {
		b.WriteString("  (" + strings.Join(d, ", ") + ")")
	}
	return []byte(names.Fold(b.String(), "", columns(a.stdout)) + "\n")
}

// tally lists what was counted, by name.
func tally(n map[string]int64) string {
	var list []string
	for _, word := range slices.Sorted(maps.Keys(n)) {
		list = append(list, fmt.Sprintf("%s %d", names.Escape(word), n[word]))
	}
	return strings.Join(list, " ")
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// auditPath shows where it happened.
func auditPath(e *audit.Entry) string {
	where := func(root, path, hash string) string {
		switch {
		case hash != "":
			return shown(root) + "/#" + names.Escape(hash)
		case path == "":
			return shown(root)
		}
		return shown(root + "/" + path)
	}
	if e.Root == "" && e.Name() == "" {
		return "-"
	}
	s := where(e.Root, e.Name(), e.PathHash)
	if e.Name2() != "" || e.Path2Hash != "" {
		root := e.Root2
		if root == "" {
			root = e.Root
		}
		s += " -> " + where(root, e.Name2(), e.Path2Hash)
	}
	return s
}

func auditDetails(e *audit.Entry) []string {
	var d []string
	add := func(show bool, format string, args ...any) {
		if show {
			d = append(d, fmt.Sprintf(format, args...))
		}
	}
	add(e.Kind != "", "%s", names.Escape(e.Kind))
	add(e.Errno != "", "%s", names.Escape(e.Errno))
	add(e.Count > 1, "%d times until %s", e.Count, e.Last.Local().Format("15:04:05"))
	add(len(e.Kinds) > 0, "kinds: %s", tally(e.Kinds))
	add(len(e.Ops) > 0, "operations: %s", tally(e.Ops))
	add(e.Verdict == "refused" && e.Rights != "", "needs %s", names.Escape(e.Rights))
	add(e.Read > 0, "read %s", size(e.Read))
	add(e.Written > 0, "wrote %s", size(e.Written))
	add(e.Closed > 0, "closed")
	add(e.DurationUS >= 1000, "%v", (time.Duration(e.DurationUS) * time.Microsecond).Round(time.Millisecond))
	add(e.Lost > 0, "%d records lost", e.Lost)
	add(e.Subject != "", "subject %s", shown(e.Subject))
	add(e.Via != "" && e.Via != "none", "%s", names.Escape(e.Via))
	add(e.UID != nil && e.PID != 0, "pid %d", e.PID)
	add(e.Detail != "", "%s", names.EscapeQuoted(e.Detail))
	return d
}
