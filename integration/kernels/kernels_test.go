package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// console is the output of a machine. One of its lines has a kernel message before the mark.
const console = "[    1.0] Linux version 6.12\r\n" +
	"=== step [12 s] doctor as root\r\n" +
	"=== result doctor.root.confinement ok rootsfs run confines by namespaces, with every layer\r\n" +
	"=== result doctor.root.transport ok --transport auto uses io_uring\r\n" +
	"=== result doctor.user.confinement failed user namespaces are restricted\r\n" +
	"[   20.1] clocksource: === result mount.root.auto ok plain\r\n" +
	"=== result revoke.root.auto ok EACCES;SIGBUS\r\n" +
	"=== result mount.user.auto FAILED: cmp src/big mnt/w/big\r\n" +
	"=== result run.root.strongest ok\r\n=== result run.root.namespaces ok\r\n" +
	"=== result run.user.strongest ok\r\n=== result run.user.namespaces none exit code 5: no\r\n" +
	"=== result run.user.bubblewrap none exit code 5: no\r\n=== result run.user.landlock ok\r\n" +
	"=== result suite.mount ok 69 passed, 0 failed, 1 skipped, 300 s, plain\r\n" +
	"=== result end ok"

func consoleRow(t *testing.T, text string) row {
	t.Helper()
	var steps []string
	results, err := readConsole(strings.NewReader(text), func(s string) { steps = append(steps, s) })
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"[12 s] doctor as root", "mount.user.auto FAILED: cmp src/big mnt/w/big"}; !slices.Equal(steps, want) {
		t.Errorf("steps: %q, want %q", steps, want)
	}
	return row{kernel: kernels[0], version: "5.10.0-1", results: results}
}

// The output of a machine's console becomes a row. Failures, and a wrong report of doctor, are
// problems.
func TestConsoleBecomesARow(t *testing.T) {
	r := consoleRow(t, console)
	got := table([]row{r})
	for _, want := range []string{
		"| 5.10.0-1 (debian) | ok / FAILED | ok / - | namespaces / landlock | - / none | - / ok | - | right / wrong |",
		"tests of mount: ok 69 passed, 0 failed",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the table has no %q:\n%s", want, got)
		}
	}
	want := []string{
		"mount.user.auto FAILED: cmp src/big mnt/w/big",
		`doctor as user says "failed user namespaces are restricted", and run reaches landlock`,
		`doctor as root says "ok --transport auto uses io_uring", and a mount reports "ok plain"`,
	}
	if problems := r.problems(); !slices.Equal(problems, want) {
		t.Errorf("problems: %q, want %q", problems, want)
	}
}

// A machine that stops early is a problem, also if nothing failed before.
func TestMachineWithoutEndIsAProblem(t *testing.T) {
	r := row{results: map[string]string{"mount.root.auto": "ok plain"}}
	if problems := r.problems(); len(problems) != 1 || !strings.Contains(problems[0], "did not reach its end") {
		t.Errorf("problems: %q", problems)
	}
}

// A kernel that is not available has its own line with the reason, and fails the run.
func TestMissingKernelIsNamed(t *testing.T) {
	l := &lab{options: &options{mirrors: map[string]string{"Debian": "http://here/debian"}}}
	_, err := l.mirror(ubuntu, "noble-updates")
	if err == nil || !strings.Contains(err.Error(), "-mirror ubuntu=URI") {
		t.Fatalf("a mirror of Ubuntu: %v", err)
	}
	r := row{kernel: kernel{name: "7.0", distribution: ubuntu}, err: err}
	if got := table([]row{r}); !strings.Contains(got, "| 7.0 (ubuntu) | not run: no mirror of Ubuntu among") {
		t.Errorf("the table does not say why:\n%s", got)
	}
	if len(r.problems()) == 0 {
		t.Error("a kernel that was not run is no problem")
	}
	if _, err := l.mirror(debian, "trixie-security"); err == nil {
		t.Error("Debian's own archive was taken for that of its security updates")
	}
}

func TestNewestKernelIsFirst(t *testing.T) {
	want := []string{
		"linux-image-6.12.115+deb13.1-cloud-amd64", "linux-image-6.12.115+deb13-cloud-amd64",
		"linux-image-6.12.90+deb13-cloud-amd64", "linux-image-6.12.9+deb13-cloud-amd64",
	}
	names := slices.Sorted(slices.Values(want))
	slices.SortFunc(names, func(a, b string) int { return compareNumbers(b, a) })
	if !slices.Equal(names, want) {
		t.Errorf("newest first: %q, want %q", names, want)
	}
}

// Debian's images since 6.19 are empty packages that depend on the kernel's parts.
func TestKernelParts(t *testing.T) {
	got := kernelParts("Package: linux-image-7.3.4\nDepends: dracut | initramfs-tools, linux-base-7.3.4 (= 7.3.4-1), linux-binary-7.3.4+deb13 (= 7.3.4-1), linux-modules-7.3.4+deb13 (= 7.3.4-1)\n")
	if want := []string{"linux-binary-7.3.4+deb13", "linux-modules-7.3.4+deb13"}; !slices.Equal(got, want) {
		t.Errorf("parts: %q, want %q", got, want)
	}
}

// Each kernel's pattern matches packages of its own series only.
func TestKernelTable(t *testing.T) {
	names := map[string]string{
		"5.10": "linux-image-5.10.0-46-cloud-amd64", "6.1": "linux-image-6.1.0-56-cloud-amd64", "6.12": "linux-image-6.12.118+deb13-cloud-amd64",
		"6.17": "linux-image-6.17.13+deb13-cloud-amd64", "6.18": "linux-image-6.18.15+deb13-cloud-amd64", "6.19": "linux-image-6.19.14+deb13-cloud-amd64",
		"7.0": "linux-image-7.0.0-44-generic", "7.1": "linux-image-7.1.13+deb13-cloud-amd64", "7.2": "linux-image-7.2.13+deb14-cloud-amd64",
		"7.3": "linux-image-7.3.4+deb13-cloud-amd64", "": "linux-image-6.1.0-0.deb11.52-cloud-amd64",
	}
	for _, k := range kernels {
		for name, pkg := range names {
			if k.image.MatchString(pkg) != (name == k.name) {
				t.Errorf("%s: %s matches: %v", k.name, pkg, k.image.MatchString(pkg))
			}
		}
	}
	if !slices.ContainsFunc(kernels, func(k kernel) bool { return k.name == smokeKernel }) {
		t.Errorf("-smoke runs %s, which is not in the table", smokeKernel)
	}
	if _, err := choose([]string{"6.12", "2.6"}); err == nil || !strings.Contains(err.Error(), "2.6") {
		t.Errorf("an unknown kernel: %v", err)
	}
}

// Every phase is a function of guest.sh, and bash can parse guest.sh.
func TestPhasesAreInTheGuest(t *testing.T) {
	guest, err := guestFiles.ReadFile("guest.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, phase := range append(strings.Split(allPhases, ","), "smoke", "suites") {
		if !strings.Contains(string(guest), "\n"+phase+"() {") {
			t.Errorf("guest.sh has no function %s", phase)
		}
	}
	if out, err := exec.Command("bash", "-n", "guest.sh").CombinedOutput(); err != nil {
		t.Errorf("bash -n guest.sh: %v\n%s", err, out)
	}
}
