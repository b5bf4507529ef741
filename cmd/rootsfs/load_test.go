package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScriptsAtLoad runs the scripts in testdata/load, which make the machine busy. They do not run
// together with the scripts of TestScripts.
func TestScriptsAtLoad(t *testing.T) {
	p := scripts(t)
	p.Dir = "testdata/load"
	testscript.Run(t, p)
}
