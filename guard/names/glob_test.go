package names

import (
	"strings"
	"testing"
)

func TestGlobForms(t *testing.T) {
	for glob, want := range map[string]int{
		"": 1, "*.go": 1, "{a,b}": 2, "{a,b}{c,d,e}": 6, "{a}": 1, "a,b": 1,
		strings.Repeat("{a,b}", 8): 256,
	} {
		if got := GlobForms(glob); got != want {
			t.Errorf("%s: %d, want %d", glob, got, want)
		}
	}
	for _, many := range []string{strings.Repeat("{a,b}", 9), strings.Repeat("{a,b}", 500), "{" + strings.Repeat(",", 500) + "}", "{" + strings.Repeat("{a,b},", 200) + "}"} {
		if got := GlobForms(many); got <= MaxGlobForms {
			t.Errorf("%.30s: %d", many, got)
		}
	}
	if got := GlobForms("{{a,b},{c,d}}"); got < 4 {
		t.Errorf("nested: %d is no upper bound", got)
	}
}
