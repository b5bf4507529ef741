package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rootsfs/rootsfs/integration/oldkernel"
)

// expectConfinement checks doctor's text on the confinement of commands. The text must have each
// string of says, and no string of not.
func expectConfinement(t *testing.T, status checkVerdict, says, not []string) {
	t.Helper()
	c := checkConfinement(t.Context())
	text := c.Detail + "\ndo: " + c.Remedy
	for _, s := range says {
		if !strings.Contains(text, s) {
			t.Errorf("doctor does not say %q", s)
		}
	}
	for _, s := range not {
		if strings.Contains(text, s) {
			t.Errorf("doctor says %q", s)
		}
	}
	if c.Status != status || t.Failed() {
		t.Errorf("%s: %s", c.Status, text)
	}
}

// Before Linux 5.12 the remedy is a newer kernel or bubblewrap, and not a setting.
func TestDoctorOnLinux510(t *testing.T) {
	if !oldkernel.Enter(t, oldkernel.CloseRangeOnExec, oldkernel.MountSetattr, oldkernel.Landlock) {
		return
	}
	expectConfinement(t, checkWarn, []string{"confines by bubblewrap", "mount_setattr", "do: use Linux 5.12 or newer"},
		[]string{"allow user namespaces", "seccomp=unconfined", "install bubblewrap"})
	t.Setenv("PATH", t.TempDir())
	expectConfinement(t, checkWarn, []string{"cannot confine", "mount_setattr", "do: use Linux 5.12 or newer, or install bubblewrap"},
		[]string{"allow user namespaces", "seccomp=unconfined"})
}

// If Landlock is built in and switched off, the remedy is a word on the kernel's command line,
// and not a newer kernel.
func TestDoctorWithLandlockOff(t *testing.T) {
	if oldkernel.Enter(t, oldkernel.LandlockOff) {
		expectConfinement(t, checkWarn, []string{"confines by namespaces", "switched off", "lsm="}, []string{"newer kernel"})
	}
}

// If a security module denies namespaces to a user, doctor says so, and does not blame the file
// mode of the program.
func TestDoctorWithNamespacesRestricted(t *testing.T) {
	if !oldkernel.Enter(t, oldkernel.NamespacesRestricted) {
		return
	}
	if os.Geteuid() == 0 { // in the child, which ends with the test
		const nobody = 65534
		if err := syscall.Setresuid(nobody, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	namespaceSettings = nil // of this machine
	expectConfinement(t, checkWarn, []string{"namespaces: ", "security module", "AppArmor", "policy of that module"}, []string{"may not execute", "unconfined", "see what"})
}

// If AppArmor restricts user namespaces, doctor proposes the profile of rootsfs's packages
// first, and then the setting for the whole machine.
func TestAppArmorAdvice(t *testing.T) {
	const setting, load = "kernel.apparmor_restrict_unprivileged_userns=0", "apparmor_parser -r"
	for name, c := range map[string]struct {
		program     string
		files       []string
		first, last string
	}{
		"no package":            {"/home/u/go/bin/rootsfs", nil, "install the .deb or .rpm package", setting},
		"profile not installed": {"/usr/bin/rootsfs", []string{"shipped"}, load, setting},
		"another program":       {"/home/u/go/bin/rootsfs", []string{"shipped", "installed"}, "start /usr/bin/rootsfs", setting},
		"profile not loaded":    {"/usr/bin/rootsfs", []string{"shipped", "installed"}, load, setting},
	} {
		dir := t.TempDir()
		for _, f := range c.files {
			if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := apparmorAdvice(c.program, filepath.Join(dir, "shipped"), filepath.Join(dir, "installed"))
		profile, machine := strings.Index(got, c.first), strings.Index(got, c.last)
		if profile < 0 || machine < profile || !strings.Contains(got, "every program of this machine") {
			t.Errorf("%s: %s", name, got)
		}
	}
}
