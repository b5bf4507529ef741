package race

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// goal is the number of swaps, rounds and leaks that a race must reach before it may end.
type goal struct {
	swaps  int64 // exchanges that succeeded
	rounds int64 // tries of every operation
	leaks  int64 // canaries that bare opens have seen
}

// raceLimit returns the time after which a race is given up, so that a hang is reported.
func raceLimit() time.Duration {
	if lab.Soak() {
		return time.Hour
	}
	return 4 * time.Minute
}

// Bare opens get out of the root in the race, and operations through the mount do not: they see
// no content, name, attribute or link target of the outside, and nothing outside has changed.
// R063, R064, R165, R192.
func TestNothingEscapes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: the tree outside belongs to another user, and the test recognises it by its owner")
	}
	want := goal{swaps: 8_000, rounds: 20, leaks: 10}
	if lab.Soak() {
		want = goal{swaps: 1_000_000, rounds: 500, leaks: 1000}
	}
	for _, level := range []string{"strict", "audit", "max", staged} {
		t.Run(level, func(t *testing.T) { raceAt(t, level, want) })
	}
}

// staged is used like the name of a cache level. It means the default level with a staged root.
const staged = "staged"

func raceAt(t *testing.T, level string, want goal) {
	base := lab.Dir(t)
	src, out := buildTrees(t, base)
	roots := []lab.Root{{Name: "code", Dir: src}}
	m := (*lab.Mount)(nil)
	if level == staged {
		m = lab.Start(t, "audit", roots, lab.Staged(filepath.Join(base, "stages")))
	} else {
		m = lab.Start(t, level, roots)
	}
	board := filepath.Join(base, "board")
	b, err := openBoard(board)
	testkit.Must(t, err)
	before := picture(t, out)

	var all []*exec.Cmd
	for i, do := range []string{"work", "work", "bare", "swap"} {
		j := job{Do: do, Src: src, Out: out, Root: m.Path("code"), Board: board, ID: i}
		if do == "bare" {
			j.Root = src
		}
		all = append(all, startJob(t, j))
	}
	if !waitFor(b, want) {
		t.Errorf("gave up after %v", raceLimit())
	}
	b.Stop.Store(1)
	for _, c := range all {
		waitJob(t, c)
	}

	if after := picture(t, out); after != before {
		t.Errorf("outside write: the outside tree was\n%s\nand is\n%s", before, after)
	}
	if n := b.Leaks.Load(); n != 0 {
		t.Errorf("%d leaks", n)
	}
	if b.BareLeaks.Load() == 0 {
		t.Error("bare opens never leaked: the race was not live")
	}
	var tried, done int64
	for i, op := range ops {
		tried, done = tried+b.Ops[i].Load(), done+b.Done[i].Load()
		if b.Done[i].Load() == 0 && !neverSucceeds(i) {
			t.Errorf("%s never succeeded in %d tries", op.name, b.Ops[i].Load())
		}
	}
	if testing.Verbose() {
		for i, op := range ops {
			t.Logf("%-30s %6d of %6d", op.name, b.Done[i].Load(), b.Ops[i].Load())
		}
	}
	t.Logf("%s: %d swaps, %d operations of %d kinds (%d succeeded), %d leaks; bare opens: %d leaks in %d tries",
		level, b.Swaps.Load(), tried, len(ops), done, b.Leaks.Load(), b.BareLeaks.Load(), b.BareTries.Load())
}

// neverSucceeds reports whether an operation cannot succeed: there is no directory "empty"
// inside, and no attribute user.canary. Every other operation has to succeed at times, or it
// takes no part in the race.
func neverSucceeds(i int) bool { return ops[i].name == "rmdir empty" || ops[i].name == "removexattr" }

// waitFor waits until the race has reached want and every operation that can succeed has succeeded,
// but at most for raceLimit. It reports whether both are the case.
func waitFor(b *board, want goal) bool {
	enough := func() bool {
		for i := range ops {
			if b.Ops[i].Load() < want.rounds || b.Done[i].Load() == 0 && !neverSucceeds(i) {
				return false
			}
		}
		return b.Swaps.Load() >= want.swaps && b.BareLeaks.Load() >= want.leaks
	}
	for end := time.Now().Add(raceLimit()); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if enough() {
			return true
		}
	}
	return enough()
}

func startJob(t *testing.T, j job) *exec.Cmd {
	t.Helper()
	raw, err := json.Marshal(j)
	testkit.Must(t, err)
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), jobVar+"="+string(raw))
	cmd.Stderr = os.Stderr
	// The processes are killed with the test.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// waitJob waits for a process that was told to stop. A process that does not stop hangs in the
// mount, which is a failure.
func waitJob(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("%s: %v", cmd.Env[len(cmd.Env)-1], err)
		}
	case <-time.After(30 * time.Second):
		t.Errorf("%s is stuck", cmd.Env[len(cmd.Env)-1])
		_ = cmd.Process.Kill()
	}
}
