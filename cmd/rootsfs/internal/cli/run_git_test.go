package cli

import "testing"

// A value of git's configuration is read as git reads it.
func TestGitValue(t *testing.T) {
	for in, want := range map[string]string{
		` Ada Lovelace `:        "Ada Lovelace",
		` "Ada  # L" ; comment`: "Ada  # L",
		`"Ada \"A\" L\\"`:       `Ada "A" L\`,
		`Ada\tL`:                "Ada\tL",
		`"Ada\nL\b"`:            "Ada\nL\b",
	} {
		if got := gitValue(in); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}
