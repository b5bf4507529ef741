package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScriptsAtLoad runs testdata/load: scripts that make the machine busy, apart from the others.
func TestScriptsAtLoad(t *testing.T) {
	p := scripts(t)
	p.Dir = "testdata/load"
	testscript.Run(t, p)
}
