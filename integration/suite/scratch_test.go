package main

import (
	"strings"
	"testing"
)

// Tests run below a short directory that needs no quoting, wherever TMPDIR leads.
func TestPlainTemp(t *testing.T) {
	for dir, want := range map[string]string{
		"/tmp": "/tmp", "/home/u-1/tmp_2.x": "/home/u-1/tmp_2.x",
		"/tmp/" + strings.Repeat("l", 195): "/tmp",
		"/tmp/a b":                         "/tmp", "/tmp/$x": "/tmp", "/tmp/ü": "/tmp", "/tmp/[a]": "/tmp", "/tmp/a'b": "/tmp",
	} {
		if got := plainTemp(dir); got != want {
			t.Errorf("plainTemp(%q) is %q, want %q", dir, got, want)
		}
	}
}
