package sandbox

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The tree may come while the confinement is being built, and the command is
// started when it is released, not before, at every level.
func TestMountedAndRelease(t *testing.T) {
	atLevels(t, append(confining, None), func(t *testing.T, level Level) {
		point := tree(t, "home/u/code")
		put(t, point+"/home/u/code/f", "there")
		var steps []string
		umask := 0o027
		o := Options{Level: level, Umask: &umask, Private: private(t)}
		if level == None && os.Geteuid() == 0 {
			o.UID, o.GID = DefaultID()
		}
		o.Mounted = func(o *Options) error {
			steps = append(steps, "mounted")
			o.Tree, o.Roots, o.Dir = point, []string{"/home/u/code"}, "/home/u/code"
			return nil
		}
		o.Release = func() error {
			steps = append(steps, "released")
			return nil
		}
		o.Args = []string{"sh", "-c", "cat f; umask"}
		p, err := Start(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Stderr().Close()
		p.Stdin().Close()
		out, err := io.ReadAll(p.Stdout())
		p.Stdout().Close()
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := p.Wait(); err != nil || exit != (Exit{}) {
			t.Errorf("%+v, %v", exit, err)
		}
		if string(out) != "there0027\n" || len(steps) != 2 || steps[0] != "mounted" || steps[1] != "released" {
			t.Errorf("inside: %q after %v", out, steps)
		}
	})
}

// A tree that does not come, and a command that is not released: nothing was
// started, nothing is left, and the caller's own reason is the error.
func TestNotReleased(t *testing.T) {
	reason := errors.New("the session has failed")
	atLevels(t, confining, func(t *testing.T, level Level) {
		point := tree(t)
		made := filepath.Join(point, "made")
		if err := os.Chmod(point, 0o777); err != nil {
			t.Fatal(err)
		}
		for name, o := range map[string]Options{
			"not mounted": {Mounted: func(*Options) error { return reason }},
			"no tree":     {Mounted: func(o *Options) error { o.Tree = "relative"; return nil }},
			"not released": {
				Mounted: func(o *Options) error { o.Tree = point; return nil },
				Release: func() error { return reason },
			},
		} {
			o.Level, o.Private, o.Map, o.Args = level, private(t), Flat, []string{"touch", DefaultFlatAt + "/made"}
			p, err := Start(context.Background(), o)
			if err == nil {
				p.Kill()
				t.Fatalf("%s: it was started", name)
			}
			if name != "no tree" && !errors.Is(err, reason) || errors.Is(err, ErrCannot) {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := os.Stat(made); err == nil {
				t.Errorf("%s: the command ran", name)
			}
		}
		// A bwrap that was killed leaves its own init to die by itself.
		for range 1000 {
			if len(living()) == 0 {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("processes %v are left", living())
	})
}

// No signal that a command sends to its init ends or stops that. At level None
// nothing keeps the signals away from it.
func TestInitOutlivesSignals(t *testing.T) {
	o := Options{Level: None, Private: private(t)}
	if os.Geteuid() == 0 {
		o.UID, o.GID = DefaultID()
	}
	// 9 and 19 are SIGKILL and SIGSTOP, which no program outlives; 32 to 34 are
	// the C libraries' own, which Go leaves as they are.
	out, exit := output(t, o, `sent=0; for n in $(seq 64); do case $n in 9|19|32|33|34) ;; *) kill -$n $PPID 2>/dev/null && sent=$((sent+1));; esac; sleep 0.01; done
		test $sent -ge 59 && kill -0 $PPID && echo alive`)
	if out != "alive" || exit != (Exit{}) {
		t.Errorf("inside: %q, %+v", out, exit)
	}
}

// living are our children that have not ended.
func living() []int {
	return slices.DeleteFunc(byParent()[os.Getpid()], func(pid int) bool {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
		return err != nil || strings.HasPrefix(field(string(b), "State:"), "Z")
	})
}
