package control

import (
	"os"
	"os/signal"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// RevokeBySignal recognizes the report of its own signal also if the clock was set back after an
// earlier report.
func TestRevokeBySignalWithClockSetBack(t *testing.T) {
	d, c := serve(t, &fakeSession{})
	c.info.Signal = true
	if err := d.PublishRevoked(SignalRevoked{Time: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGUSR1)
	defer signal.Stop(signals)
	go func() { // the session
		<-signals
		if err := d.PublishRevoked(SignalRevoked{Time: time.Now(), Ended: []Ended{{Root: "a"}}}); err != nil {
			t.Error(err)
		}
	}()
	if ended, err := c.RevokeBySignal(t.Context()); err != nil || len(ended) != 1 || ended[0].Root != "a" {
		t.Errorf("%+v, %v", ended, err)
	}
}
