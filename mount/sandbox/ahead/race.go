//go:build race

package ahead

import "os"

// The race detector's runtime waits for a second at the end of a process, unless this
// variable says otherwise.
func init() { raceEnv = []string{"GORACE=" + os.Getenv("GORACE")} }
