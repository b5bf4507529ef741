package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/distro"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// checkConfinement tries the ways in which `rootsfs run` could confine a command here.
func checkConfinement(ctx context.Context) check {
	c := check{Name: "confinement"}
	rep := sandbox.Probe(ctx, writabledirs.NewJudge().CheckProgram)
	var why []string
	for _, l := range rep.Levels {
		if l.OK {
			break // the lower levels are not used
		}
		why = append(why, fmt.Sprintf("%s: %s", l.Name, names.Escape(strings.TrimSuffix(l.Why, sandbox.SeeDoctor))))
	}
	switch {
	case rep.Level == 0:
		return c.warn(moreConfinement(rep)+"; without it `rootsfs run` refuses, unless --unconfined is given",
			"rootsfs run cannot confine a command: %s", strings.Join(why, "; "))
	case rep.Level != sandbox.Namespaces:
		return c.warn(moreConfinement(rep),
			"rootsfs run confines by %s, which leaves holes; %s", rep.Name, strings.Join(why, "; "))
	}
	remedy := "as that says"
	for _, l := range rep.Layers {
		if l.State == sandbox.NotAvailable {
			why = append(why, fmt.Sprintf("%s is not available (%s)", l.Name, names.Escape(l.Detail)))
			if l.Name != sandbox.LandlockLayer { // its detail is the remedy
				remedy = "use a newer kernel"
			}
		}
	}
	if len(why) > 0 {
		return c.warn(remedy, "rootsfs run confines by namespaces; %s", strings.Join(why, "; "))
	}
	return c.ok("rootsfs run confines by %s, with every layer", rep.Name)
}

// apparmorSetting turns off AppArmor's restriction of user namespaces (Ubuntu).
const apparmorSetting = "kernel.apparmor_restrict_unprivileged_userns=0"

// namespaceSettings are the kernel settings that can forbid users to make namespaces. forbids is
// the value that forbids namespaces, and setting is the sysctl assignment that permits them.
var namespaceSettings = []struct{ file, forbids, setting string }{
	{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", apparmorSetting},
	{"/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"}, // Debian, Arch's linux-hardened
	{"/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces=15000"},
}

// moreConfinement returns advice for a stronger confinement than the level of rep.
func moreConfinement(rep sandbox.Report) string {
	_, err := exec.LookPath("bwrap")
	noBwrap := err != nil
	if errors.Is(rep.Levels[0].Cause, sandbox.ErrOldKernel) {
		remedy := "use Linux " + sandbox.NamespacesKernel + " or newer"
		if noBwrap {
			remedy += ", or " + distro.Install("bubblewrap")
		}
		return remedy
	}
	for _, s := range namespaceSettings {
		value, err := os.ReadFile(s.file)
		switch {
		case err != nil || strings.TrimSpace(string(value)) != s.forbids:
		case s.setting == apparmorSetting:
			self, _ := os.Executable()
			return apparmorAdvice(self, shippedProfile, installedProfile)
		default:
			return "allow user namespaces: " + sysctlAdvice(s.setting)
		}
	}
	if errors.Is(rep.Levels[0].Cause, sandbox.ErrRestricted) {
		return "allow this program user namespaces in the policy of that module"
	}
	if noBwrap {
		return "allow user namespaces, or " + distro.Install("bubblewrap")
	}
	return "allow user namespaces; in a container, start it with --security-opt seccomp=unconfined or in a profile that permits them"
}

// sysctlAdvice returns the command that changes a kernel setting.
func sysctlAdvice(setting string) string {
	return "sysctl -w " + setting + " (as root; to keep it, write it to /etc/sysctl.d/60-rootsfs.conf)"
}

// The packages of rootsfs have an AppArmor profile that permits user namespaces to one program.
// shippedProfile is the file that the packages ship. installedProfile is the place where they
// install the profile if AppArmor supports its rule. profiledProgram is the program.
const (
	shippedProfile   = "/usr/share/rootsfs/apparmor"
	installedProfile = "/etc/apparmor.d/rootsfs"
	profiledProgram  = "/usr/bin/rootsfs"
	profileEffect    = "permits user namespaces to " + profiledProgram + " alone"
)

// apparmorAdvice returns advice for permitting user namespaces to this program where AppArmor
// restricts them: first with the packages' profile, then with the setting for the whole machine.
func apparmorAdvice(program, shipped, installed string) string {
	has := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	remedy := "install the .deb or .rpm package of rootsfs, whose AppArmor profile " + profileEffect
	switch {
	case has(installed) && program != profiledProgram:
		remedy = "start " + profiledProgram + ": the AppArmor profile " + installedProfile + " " + profileEffect
	case has(installed):
		remedy = "load the AppArmor profile of the package: apparmor_parser -r " + installedProfile + " (as root)"
	case has(shipped):
		remedy = "load the AppArmor profile of the package, which " + profileEffect + ": cp " + shippedProfile + " " + installedProfile +
			" && apparmor_parser -r " + installedProfile + " (as root)"
	}
	return remedy + ". Or allow them to every program of this machine: " + sysctlAdvice(apparmorSetting)
}
