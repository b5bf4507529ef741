package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Files is what [files] says about servers that are served over files/*. Zero
// values stand for the defaults of package broker.
type Files struct {
	// Deny: nobody is asked, and only what Allow names is granted.
	Deny           bool
	ConsentTimeout time.Duration // how long a question waits for its answer
	OpsPerSecond   float64       // of each server, like the fields below
	BytesPerSecond int64
	MaxFile        int64
	MaxWritten     int64
	Watches        int
	WatchedDirs    int
	Frame          int     // the longest message taken from a server, in bytes
	Allow          []Allow // the [[files.allow]] blocks
}

// Allow is a path that is granted to a server that asks for it, or for something
// below it, without asking the owner.
type Allow struct {
	Path   string // absolute; ~ undone, links not resolved
	Rights guard.Rights
	Line   int // of the file
}

// Bounds of the values.
const (
	maxWatches  = 1_000_000
	leastFrame  = 64 << 10
	longestAsk  = 24 * time.Hour
	largestSize = 1 << 30
)

func readFiles(t table, home string) Files {
	f := Files{Deny: t.oneOf("consent", "ask", "deny") == "deny"}
	f.ConsentTimeout, _ = t.duration("consent_timeout", time.Second, longestAsk)
	f.OpsPerSecond, _ = t.speed("ops_per_second")
	f.BytesPerSecond, _ = t.size("bytes_per_second")
	f.MaxFile, _ = t.size("max_file")
	f.MaxWritten, _ = t.size("max_written")
	if n, ok := t.count("watches", maxWatches); ok {
		if f.Watches = int(n); n == 0 {
			t.fail("watches", "0 would be none; write a number from 1 on, or deny the right to watch in a root's mode")
		}
	}
	if n, ok := t.count("watched_directories", maxWatches); ok {
		if f.WatchedDirs = int(n); n == 0 {
			t.fail("watched_directories", "0 would be none; write a number from 1 on, or deny the right to watch in a root's mode")
		}
	}
	if n, ok := t.size("frame"); ok {
		if f.Frame = int(min(n, largestSize)); n < leastFrame || n > largestSize {
			t.fail("frame", "%d bytes is not between 64K and the limit of 1G", n)
		}
	}
	for _, block := range t.tables("allow") {
		f.Allow = append(f.Allow, readAllow(block, home))
	}
	t.done()
	return f
}

func readAllow(t table, home string) Allow {
	a := Allow{Rights: guard.ReadOnly, Line: t.r.lines.line(t.path)}
	var err error
	if path := t.text("path"); path == "" {
		t.fail("path", "is missing: write path = \"/…\"")
	} else if a.Path, err = absolute(path, home); err != nil {
		t.fail("path", "%w", err)
	}
	if mode := t.text("mode"); mode != "" {
		if a.Rights, err = guard.ParseMode(mode); err != nil {
			t.fail("mode", "%w", err)
		}
	}
	t.done()
	return a
}

// WidenedFiles lists what the new [files] gives without asking that the old one
// did not, for what is in force at once: consent and the pre-approved paths.
func WidenedFiles(old, new *Files) []Widening {
	var list []Widening
	if old.Deny && !new.Deny {
		list = append(list, Widening{What: "files.consent deny -> ask"})
	}
	for _, a := range new.Allow {
		if !slices.ContainsFunc(old.Allow, func(b Allow) bool { return a.Path == b.Path && a.Rights&^b.Rights == 0 }) {
			list = append(list, Widening{What: fmt.Sprintf("files.allow %s, mode %s", names.Quote(a.Path), a.Rights)})
		}
	}
	return list
}
