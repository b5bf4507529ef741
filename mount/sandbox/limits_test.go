package sandbox

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Other processes of the command's uid do not count towards its limit. (Two commands of root
// have the same uid, and failed to start at level Bubblewrap.)
func TestLimitBesideOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("another uid's processes need root")
	}
	// The uid is not root's, because other tests on the machine start and end processes of root
	// while this one counts.
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
		p, out, exit := started(t, Options{Level: level, PidsMax: MinPids, Private: private(t), UID: uid, GID: gid}, "echo $(echo a | cat)")
		if out != "a" || exit != (Exit{}) {
			t.Errorf("%q, %+v", out, exit)
		}
		if told := strings.Contains(strings.Join(p.Report().Holes, " "), "counts all of that uid's"); told != (level != Namespaces) {
			t.Errorf("%v told that the limit is shared: %v", level, told)
		}
	})
}
