package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// learned is what `run --learn` notes: what the command looked for beside its
// roots, and what it was refused in them. A nil one notes nothing.
type learned struct {
	mu     sync.Mutex // guards the fields below
	begun  bool       // see begin
	sought map[string]int
	lacked map[guard.RootName]*lack
	more   bool // than maxSought
}

// lack is what was refused in one root.
type lack struct {
	rights  guard.Rights
	times   int
	example string
}

// maxSought bounds the paths noted: a command may look for as many as it likes.
const maxSought = 10_000

func newLearned() *learned {
	return &learned{sought: map[string]int{}, lacked: map[guard.RootName]*lack{}}
}

// begin is called when the command is about to be started: what was looked for before
// that is what its init looked for, which is our own program.
func (l *learned) begin() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun = true
}

// missing notes a path that was looked for in a directory of ours, where
// nothing is.
func (l *learned) missing(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begun {
		return
	}
	if _, known := l.sought[path]; !known && len(l.sought) >= maxSought {
		l.more = true
		return
	}
	l.sought[path]++
}

// observe notes refusals.
func (l *learned) observe(e guard.Event) {
	rec := e.Record
	if rec == nil || rec.Verdict != guard.Refused || rec.Path.Root == "" {
		return
	}
	switch rec.Kind {
	case names.ReadOnly, names.Permission:
	default:
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	have := l.lacked[rec.Path.Root]
	if have == nil {
		have = &lack{example: rec.Op.String() + " " + names.Escape(rec.Path.String())}
		l.lacked[rec.Path.Root] = have
	}
	have.rights |= rec.Rights
	have.times++
}

// blind says why what a command looks for beside its roots does not reach us, "" if it
// does.
func blind(box *sandbox.Options, level sandbox.Level) string {
	switch {
	case level == sandbox.None:
		return "a command that is not confined"
	case level == sandbox.Landlock:
		return "confinement by landlock"
	case box.Map == sandbox.Flat:
		return "--map flat"
	}
	return ""
}

// propose prints the roots and rights that would have sufficed, as far as that
// can be told from what was refused. It grants nothing. blind is why that is little.
func (l *learned) propose(a *app, s *session.Session, blind string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(l.lacked)) {
		st, ok := s.Registry().Lookup(name)
		lack := l.lacked[name]
		if !ok || lack.rights&^st.Grant.Policy.Rights == 0 {
			continue // a file's own permissions
		}
		mode := st.Grant.Policy.Rights | lack.rights
		lines = append(lines, fmt.Sprintf("--root %s   # %s, such as %s",
			shellWord(string(name)+"="+st.Grant.Dir+":"+mode.String()), plural(lack.times, "refusal"), lack.example))
	}
	for _, path := range l.existing() {
		lines = append(lines, fmt.Sprintf("--root %s   # looked for %s", shellWord(path+":ro"), plural(l.sought[path], "time")))
	}
	say := func(format string, args ...any) { fmt.Fprintf(a.stderr, "rootsfs: "+format+"\n", args...) }
	unseen := "what it looked for beside its roots is not seen with " + blind
	switch {
	case len(lines) == 0 && blind == "":
		say("learned: nothing was refused that a root or a right would have allowed")
		return
	case len(lines) == 0:
		say("learned: nothing was refused in its roots; %s", unseen)
		return
	}
	say("learned: to allow what was refused in this run, add (nothing has been granted):")
	for _, line := range lines {
		say("  %s", line)
	}
	say("leave out what the command can do without; what it looks for inside a new root shows in another --learn run")
	if blind != "" {
		say("%s", unseen)
	}
	if l.more {
		say("it looked for more than %d paths; the rest is not listed", maxSought)
	}
}

// existing are the sought paths that there are on the host, without those below
// another one.
func (l *learned) existing() []string {
	var out []string
	for _, path := range slices.Sorted(maps.Keys(l.sought)) {
		if _, err := os.Lstat(path); err != nil {
			continue
		}
		if n := len(out); n > 0 && strings.HasPrefix(path, out[n-1]+string(filepath.Separator)) {
			continue
		}
		out = append(out, path)
	}
	return out
}
