package sandbox

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Processes that ignore every signal and fork as fast as possible end with their command, and
// so do the processes they leave behind. This holds when the init ends them and when the init is
// killed, although they continue processes that were stopped. At level Landlock no pid namespace
// ends them, so rootsfs must be faster than they fork.
func TestBombEnds(t *testing.T) {
	if _, err := exec.LookPath("perl"); err != nil {
		t.Skip("the bomb is in perl: ", err)
	}
	const bomb = `$SIG{$_} = "IGNORE" for keys %SIG; $| = 1; print "ready\n"; fork for 1 .. 4; for (;;) { my $p = fork; if (!defined $p) { kill "CONT", -getpgrp } elsif (rand() < 0.1) { exit } }`
	atLevels(t, confining, func(t *testing.T, level Level) {
		for what, end := range map[string]func(p *Process){
			"its init is killed":   func(p *Process) { _ = p.Kill() },
			"its caller goes away": func(p *Process) { _ = unix.Shutdown(p.sock, unix.SHUT_WR) },
		} {
			o := Options{Level: level, Tree: tree(t), Private: private(t), PidsMax: 64, Args: []string{"perl", "-e", bomb}}
			p, err := Start(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(p.Stdout()).ReadString('\n'); line != "ready\n" {
				t.Fatalf("the bomb said %q, %v", line, err)
			}
			time.Sleep(100 * time.Millisecond) // let it grow
			start := time.Now()
			end(p)
			_, _ = p.Wait() // how it ended does not matter here
			for _, f := range []*os.File{p.Stdin(), p.Stdout(), p.Stderr()} {
				f.Close()
			}
			if took := time.Since(start); took > time.Minute {
				t.Errorf("%s: it took %v", what, took)
			}
			if left := living(); len(left) > 0 && level != Bubblewrap { // the init of bwrap ends a moment later
				t.Errorf("%s: processes %v are left", what, left)
			}
		}
	})
}
