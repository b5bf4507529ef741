// Package early sets what must be set before other packages are initialised; Go
// initialises packages with few imports first (language specification, "Program
// initialization").
//
// # Promises
//
// From then on memory is not profiled: nobody can ask this program for such a
// profile, and its samples cost a hundredth of the start of a process, of which
// `rootsfs run` has three (measured).
//
// For a `rootsfs run` of root's the init of its command is started at once, and
// becomes ready while the rest of the program is initialised (package ahead), and the
// runtime's monitor may be late until Hurry.
//
// # Not promised
//
// Nothing else is changed by importing it.
package early

import "runtime"

func init() { runtime.MemProfileRate = 0 }
