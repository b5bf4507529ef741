package cli

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// `timeout 60 rootsfs mount …` sends SIGTERM twice at the same moment, to the program and to
// its group. The mount is still taken down in order. A later second signal means that the
// sender does not want to wait.
func TestARepeatedSignalIsOneRequest(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, tt := range []struct {
		name  string
		after []time.Duration // of each signal
		want  int             // how many signals are received until one ends the wait
	}{
		{"one", []time.Duration{0}, 1},
		{"twice at once", []time.Duration{0, 0}, 2},
		{"thrice in one request", []time.Duration{0, time.Millisecond, sameRequest - 1}, 3},
		{"later", []time.Duration{0, sameRequest, 2 * sameRequest}, 2},
		{"twice, and once more later", []time.Duration{0, 1, time.Minute, time.Hour}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			signals := make(chan os.Signal, len(tt.after))
			for range tt.after {
				signals <- unix.SIGTERM
			}
			close(signals)
			received, ended := 0, 0
			handleSignals(signals, func() time.Time {
				received++
				return start.Add(tt.after[received-1])
			}, func(os.Signal) { ended++ })
			if received != tt.want || ended != 1 {
				t.Errorf("%d signals received, want %d; asked to end %d times, want once", received, tt.want, ended)
			}
		})
	}
}
