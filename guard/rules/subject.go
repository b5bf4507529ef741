package rules

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Subject is the server that a grant is for; "" stands for every caller of the session. A
// server with several sessions at a time has a subject for each of them (see InSession).
type Subject string

// Format implements fmt.Formatter as names.Foreign does: a server may have chosen the name.
func (s Subject) Format(state fmt.State, verb rune) { names.Foreign(s).Format(state, verb) }

// LogValue implements slog.LogValuer: see names.Foreign.
func (s Subject) LogValue() slog.Value { return names.Foreign(s).LogValue() }

// MaxSubject bounds a subject's name (Named), in bytes.
const MaxSubject = 255

// Named reports whether the name identifies the subject to a person. The name must have 1 to 255
// bytes of UTF-8 with only visible characters (names.Shows), no space at either end, and not be
// "*", which stands for all. A registry takes any text; a front end that lets strangers choose
// a name checks it with Named.
func (s Subject) Named() bool {
	text := string(s)
	return text != "" && len(text) <= MaxSubject && text != "*" && names.Shows(text) && text == strings.TrimSpace(text)
}

// sessionSeparator separates the name of a subject from the number of its session.
const sessionSeparator = "#"

// InSession returns the subject's n-th session, which is a subject, too. A grant to the subject
// is a grant to all its sessions; a grant to one session is for that session only. Quotas, the
// counting of refusals and suspension belong to the subject and not to its sessions, so that a new
// session does not reset them. A subject without a name has no sessions.
func (s Subject) InSession(n uint64) Subject {
	if s == "" {
		return s
	}
	return s.WithoutSession() + sessionSeparator + Subject(strconv.FormatUint(n, 10))
}

// WithoutSession returns the subject that s is a session of, or s itself if s is no session.
func (s Subject) WithoutSession() Subject {
	if i := strings.LastIndex(string(s), sessionSeparator); i > 0 {
		return s[:i]
	}
	return s
}

// Covers reports whether a grant to s is also a grant to who.
func (s Subject) Covers(who Subject) bool {
	return s == "" || s == who || len(who) > len(s) && who.WithoutSession() == s
}

// IsNarrowerThan reports whether s is one of several subjects that other stands for.
func (s Subject) IsNarrowerThan(other Subject) bool { return s != other && other.Covers(s) }
