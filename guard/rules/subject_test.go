package rules_test

import (
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard/rules"
)

func TestSubjectOf(t *testing.T) {
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
			t.Errorf("%q of %q: %v", c.who, c.whose, got)
		}
	}
	if one.InSession(2) != two || rules.Subject("").InSession(1) != "" || one.WithoutSession() != "serve" {
		t.Errorf("%q %q", one.InSession(2), rules.Subject("").InSession(1))
	}
}

// A subject's name is seen as it is.
func TestSubjectNamed(t *testing.T) {
	long := strings.Repeat("a", 255)
	for _, name := range []string{"a", "serve#1", "auth0|12 3", `CORP\alice`, "o'\"x\"", "ärger", "日本", "a*", long} {
		if !rules.Subject(name).Named() {
			t.Errorf("%q is none", name)
		}
	}
	for _, name := range []string{"", " ", "*", " a", "a ", "a\nb", "a\x00", "\x1b[1m", "al\u202eice", "a\u200bb", "a\u2028b", "a\u00a0b", "\ufeffa", "a\xff", long + "a"} {
		if rules.Subject(name).Named() {
			t.Errorf("%q is one", name)
		}
	}
}
