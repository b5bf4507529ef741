package pattern

import (
	"strings"
	"testing"
)

func TestGlobForms(t *testing.T) {
	for glob, want := range map[string]int{
		"": 1, "*.go": 1, "{a,b}": 2, "{a,b}{c,d,e}": 6, "{a}": 1, "a,b": 1,
		strings.Repeat("{a,b}", 8): 256,
	} {
		if got := Glob(glob).forms(); got != want {
			t.Errorf("%s: %d, want %d", glob, got, want)
		}
	}
	for _, many := range []string{strings.Repeat("{a,b}", 9), strings.Repeat("{a,b}", 500), "{" + strings.Repeat(",", 500) + "}", "{" + strings.Repeat("{a,b},", 200) + "}"} {
		if got := Glob(many).forms(); got <= maxForms {
			t.Errorf("%.30s: %d", many, got)
		}
	}
	if got := Glob("{{a,b},{c,d}}").forms(); got < 4 {
		t.Errorf("nested: %d is no upper bound", got)
	}
}

// Every path that a kernel accepts can be compared with every realistic glob. A very deep
// path cannot be compared with every glob.
func TestGlobPath(t *testing.T) {
	const pathMax = 4096
	for glob, fits := range map[string]int{
		"": 1 << 20, "**/*.go": 1 << 20, "**/*.{ts,tsx,js,jsx}": 1 << 20, strings.Repeat("{a,b}", 8) + strings.Repeat("*", 88): pathMax,
		strings.Repeat("{a,b}", 5) + strings.Repeat("*/", 499): pathMax,
	} {
		if got := Glob(glob).MaxPath(); got < fits {
			t.Errorf("%.30s: %d bytes, want at least %d", glob, got, fits)
		}
	}
	if got := Glob("**/" + strings.Repeat("{*,a*}/", 8) + strings.Repeat("*/", 200)).MaxPath(); got > 4096 || got < 255 {
		t.Errorf("a glob of 256 forms and 459 bytes is compared with paths of %d bytes", got)
	}
}
