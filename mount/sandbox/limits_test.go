package sandbox

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Other processes of the command's uid leave the command PidsMax processes of its own: two commands
// that root starts have the same uid, and both must run. The report says at which levels the kernel
// counts all processes of the uid.
func TestLimitBesideOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start processes of another uid")
	}
	// The uid is not DefaultID's, because other tests on the machine start and end processes of
	// that uid while Start counts.
	uid, gid := DefaultID()
	own := 4096 + uint32(os.Getpid()%4096)
	uid, gid = uid+own, gid+own
	for range MinPids + 4 {
		cmd := &exec.Cmd{Path: "/bin/sleep", Args: []string{"sleep", "1000"}, SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	atLevels(t, confining, func(t *testing.T, level Level) {
		p, out, exit := runScript(t, Options{Level: level, PidsMax: MinPids, Private: private(t), UID: uid, GID: gid}, "echo $(echo a | cat)")
		if out != "a" || exit != (Exit{}) {
			t.Errorf("%q, %+v", out, exit)
		}
		if isReported := strings.Contains(strings.Join(p.Report().Holes, " "), "counts all of that uid's"); isReported != (level != Namespaces) {
			t.Errorf("%v reports that the limit is shared: %v", level, isReported)
		}
	})
}
