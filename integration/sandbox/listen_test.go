package sandbox

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// With --net a command can be any kind of client, at every level. It can listen only on the
// ports that --listen names.
func TestListen(t *testing.T) {
	eachUser(t, func(t *testing.T, o *outside) {
		o.addTargets()
		for _, level := range levels {
			for _, withListen := range []bool{false, true} {
				port := freePort(t)
				flags := []string{"--net"}
				want := "EACCES"
				if withListen {
					flags, want = append(flags, fmt.Sprintf("--listen=%d", port)), ""
				}
				ord := o.command(run{level: level}, flags, "hostile", "-listen", fmt.Sprint(port), o.TCP)
				stdout, log, code := o.run(ord)
				wantUndumpable := ""
				if level != sandbox.Namespaces && o.caller.uid != 0 || level == sandbox.Bubblewrap || level == sandbox.Landlock {
					wantUndumpable = "EPERM" // the init may not inspect a process that is not dumpable
				}
				expect := []string{
					"client with an address: ", "UDP, any port: ", "listen on the port: " + want, "UDP, the port: " + want, "listen on another port: EACCES",
					"UDP, another port: EACCES", "listen on any port: EACCES", "listen without an address: EACCES",
					"UDP, a range: ENOPROTOOPT", "listen on a range: ENOPROTOOPT", "UDP, undumpable process: " + wantUndumpable,
					// --listen never permits these protocols, whether the kernel knows them or
					// not.
					"listen by SCTP: EPROTONOSUPPORT", "listen by DCCP: EPERM", "listen by MPTCP: EPROTONOSUPPORT", "",
				}
				if wantOutput := strings.Join(expect, "\n"); stdout != wantOutput || code != 0 {
					t.Errorf("%s, --listen used: %v; exit code %d, the command said\n%swant\n%s; rootsfs: %s", level, withListen, code, stdout, wantOutput, log)
				}
			}
		}
		_, log, code := o.run(order{Args: o.rootsfs("run", "--listen", "8080", "--", "true")})
		if code != 2 || !strings.Contains(log, "--listen needs --net") {
			t.Errorf("without --net: exit code %d: %s", code, log)
		}
	})
}

// freePort returns a port without a listener.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	testkit.Must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
