package rules_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

func TestSubjectCovers(t *testing.T) {
	one, two := rules.Subject("serve").InSession(1), rules.Subject("serve").InSession(2)
	for _, c := range []struct {
		who, whose rules.Subject
		want       bool
	}{
		{one, "", true}, {one, "serve", true}, {one, one, true}, {one, two, false},
		{one, "serv", false}, {one, "server", false}, {"serve", one, false}, {"serve", "serve", true},
		{"", "", true}, {"", one, false}, {"", "serve", false}, {"#1", "", true}, {"#1", "#", false},
	} {
		if got := c.whose.Covers(c.who); got != c.want {
			t.Errorf("a grant to %q covers %q: %v", c.whose, c.who, got)
		}
	}
	if one.InSession(2) != two || rules.Subject("").InSession(1) != "" || one.WithoutSession() != "serve" {
		t.Errorf("%q %q", one.InSession(2), rules.Subject("").InSession(1))
	}
}

// A subject's name must be fully visible.
func TestSubjectNamed(t *testing.T) {
	long := strings.Repeat("a", 255)
	for _, name := range []string{"a", "serve#1", "auth0|12 3", `CORP\alice`, "o'\"x\"", "ärger", "日本", "a*", long} {
		if !rules.Subject(name).Named() {
			t.Errorf("Named refuses %q", name)
		}
	}
	for _, name := range []string{"", " ", "*", " a", "a ", "a\nb", "a\x00", "\x1b[1m", "al\u202eice", "a\u200bb", "a\u2028b", "a\u00a0b", "\ufeffa", "a\xff", long + "a"} {
		if rules.Subject(name).Named() {
			t.Errorf("Named accepts %q", name)
		}
	}
}

// A server whose name contains terminal escapes cannot send them through fmt or a log. InSession
// appends the session's number and escapes nothing.
func TestSubjectPrintsEscaped(t *testing.T) {
	const evil = rules.Subject("a\x1b[2J\"\u202e\n\xff")
	if got := evil.InSession(12); got != evil+"#12" {
		t.Errorf("InSession returns %+q", string(got))
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "server", evil)
	for _, got := range []string{fmt.Sprint(evil), fmt.Sprintf("%v", []rules.Subject{evil}), fmt.Sprintf("%+v", rules.Caller{Subject: evil}), strings.TrimSpace(log.String())} {
		if !names.Shows(got) {
			t.Errorf("the subject is printed as %+q", got)
		}
	}
}
