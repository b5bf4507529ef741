package sandbox

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/oldkernel"
)

// openInheritable gives this process a descriptor that its children would inherit.
func openInheritable(t *testing.T) {
	t.Helper()
	f, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	const number = 77
	if err := unix.Dup3(int(f.Fd()), number, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(number) })
}

// checkWithoutNamespaces runs a command as on an old kernel. It checks that Start takes level
// Bubblewrap, that the error of level Namespaces names the version of the kernel that the level
// needs, and that the command inherits only its standard streams.
func checkWithoutNamespaces(t *testing.T) {
	openInheritable(t)
	p, out, exit := runScript(t, Options{}, `ls /proc/self/fd | tr '\n' ' '`)
	if p.Report().Level != Bubblewrap || exit != (Exit{}) || out != "0 1 2 3" { // 3 is the directory that ls reads
		t.Errorf("level %s, %+v, with the descriptors %s; want bubblewrap with 0 1 2 3", p.Report().Level, exit, out)
	}
	_, err := Start(t.Context(), Options{Level: Namespaces, Tree: tree(t), Args: []string{"true"}})
	if !errors.Is(err, ErrCannot) || !errors.Is(err, ErrOldKernel) || !strings.Contains(err.Error(), "Linux 5.12") {
		t.Errorf("level namespaces: %v, want that it needs Linux 5.12", err)
	}
}

// Linux 5.10 has no close_range(2) that marks descriptors.
func TestLinux510(t *testing.T) {
	if oldkernel.Enter(t, oldkernel.CloseRangeOnExec, oldkernel.MountSetattr, oldkernel.Landlock) {
		checkWithoutNamespaces(t)
	}
}

// Linux 5.6 has no close_range(2) at all.
func TestLinux56(t *testing.T) {
	if oldkernel.Enter(t, oldkernel.CloseRange, oldkernel.MountSetattr, oldkernel.Landlock) {
		checkWithoutNamespaces(t)
	}
}
