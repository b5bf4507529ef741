package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// test fetches a kernel, boots it, and returns its version and results.
func (l *lab) test(ctx context.Context, k kernel) (version string, results map[string]string, err error) {
	progress("%s: look for %s in %s", k.name, k.image, strings.Join(k.suites, ", "))
	a, err := l.open(ctx, k.distribution, k.suites)
	if err != nil {
		return "", nil, err
	}
	packages, err := a.newest(ctx, k.image)
	if err != nil {
		return "", nil, err
	}
	version = strings.TrimPrefix(packages[0], "linux-image-")
	progress("%s: fetch %s", k.name, strings.Join(packages, ", "))
	debs, err := a.download(ctx, packages)
	if err != nil {
		return version, nil, err
	}
	dir := filepath.Join(l.work, k.name)
	defer os.RemoveAll(dir)
	if err := unpack(ctx, debs, dir); err != nil {
		return version, nil, err
	}
	vmlinuz, err := findKernel(dir)
	if err != nil {
		return version, nil, err
	}
	initrd := filepath.Join(l.work, "initrd")
	if err := buildInitrd(ctx, dir, version, initrd); err != nil {
		return version, nil, err
	}
	if l.accel == "" {
		l.accel = chooseAccelerator(ctx, vmlinuz)
	}
	results, err = l.boot(ctx, k, vmlinuz, initrd)
	return version, results, err
}

// findKernel returns the kernel's image among the unpacked files.
func findKernel(dir string) (string, error) {
	found := ""
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.HasPrefix(d.Name(), "vmlinuz") {
			found = path
		}
		return err
	})
	if err == nil && found == "" {
		err = errors.New("the packages hold no vmlinuz")
	}
	return found, err
}

// chooseAccelerator returns the accelerator of QEMU to use: KVM if the kernel vmlinuz prints its
// first line under KVM within half a minute, else emulation. In some virtual machines /dev/kvm
// boots special kernels only.
func chooseAccelerator(ctx context.Context, vmlinuz string) string {
	const emulation = "tcg,thread=multi"
	if f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err != nil {
		return emulation
	} else if err := f.Close(); err != nil {
		return emulation
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "-accel", "kvm", "-cpu", "host", "-m", "512", "-nic", "none", "-display", "none",
		"-monitor", "none", "-no-reboot", "-serial", "stdio", "-kernel", vmlinuz, "-append", "console=ttyS0 panic=-1")
	cmd.WaitDelay = 5 * time.Second
	if out, _ := cmd.CombinedOutput(); strings.Contains(string(out), "Linux version") {
		return "kvm"
	}
	progress("KVM does not boot this kernel here: emulation is used")
	return emulation
}

// boot runs a machine until it switches itself off, or until l.limit has passed. It returns the
// results that the machine reported.
func (l *lab) boot(ctx context.Context, k kernel, vmlinuz, initrd string) (map[string]string, error) {
	out := filepath.Join(l.out, k.name)
	if err := os.RemoveAll(out); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	logs := filepath.Join(l.work, "logs")
	if err := os.WriteFile(logs, nil, 0o644); err != nil {
		return nil, err
	}
	if err := os.Truncate(logs, 256<<20); err != nil {
		return nil, err
	}
	phases := l.phases
	if l.suites != "" {
		phases += ",suites"
	}
	// The kernel passes parameters that it does not know to its first program, as environment
	// variables.
	parameters := fmt.Sprintf("console=ttyS0 panic=-1 quiet mitigations=off phases=%s phaselimit=%d suites=%s suitelimit=%d skip=%s %s",
		phases, int(l.phaseLimit.Seconds()), l.suites, int(l.suiteLimit.Seconds()), l.skip, k.parameters)
	cpu := "max,la57=off" // emulation is slower with five levels of page tables
	if l.accel == "kvm" {
		cpu = "host"
	}
	disk := "format=raw,if=virtio,cache=unsafe,file="
	ctx, cancel := context.WithTimeoutCause(ctx, l.limit, fmt.Errorf("the machine was stopped after %v (-limit)", l.limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "-accel", l.accel, "-cpu", cpu, "-smp", "2", "-m", "3072", "-nic", "none",
		"-display", "none", "-monitor", "none", "-no-reboot", "-serial", "stdio", "-kernel", vmlinuz, "-initrd", initrd, "-append", parameters,
		"-drive", "snapshot=on,"+disk+l.base, "-drive", "snapshot=on,"+disk+l.files, "-drive", disk+logs)
	cmd.Env = append(os.Environ(), "TMPDIR="+l.work)
	cmd.WaitDelay = 10 * time.Second
	progress("%s: boot, by %s", k.name, l.accel)
	results, err := l.runMachine(cmd, k, filepath.Join(out, "console"))
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	// A machine that was stopped may have logs, too.
	if _, tarErr := (call{limit: time.Minute}).run(context.WithoutCancel(ctx), "tar", "-x", "-f", logs, "-C", out); tarErr != nil {
		progress("%s: no logs: %v", k.name, tarErr)
	}
	return results, err
}

// runMachine starts a machine, writes its console to a file, prints its steps, and returns its
// results when it has ended.
func (l *lab) runMachine(cmd *exec.Cmd, k kernel, path string) (map[string]string, error) {
	console, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer console.Close()
	cmd.Stderr = console
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	results, readErr := readConsole(io.TeeReader(stdout, console), func(step string) { progress("%s: %s", k.name, step) })
	return results, errors.Join(cmd.Wait(), readErr)
}

// readConsole reads the output of guest.sh, calls step for each line about a step or a
// failure, and returns the results by their names.
func readConsole(r io.Reader, step func(string)) (map[string]string, error) {
	results := map[string]string{}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if text, ok := afterMark(line, "=== step "); ok {
			step(text)
		} else if text, ok := afterMark(line, "=== result "); ok {
			name, verdict, _ := strings.Cut(text, " ")
			results[name] = verdict
			if strings.HasPrefix(verdict, failed) {
				step(text)
			}
		}
		if err == io.EOF {
			return results, nil
		}
		if err != nil {
			return results, err
		}
	}
}

// afterMark returns the text after a mark in a line, and whether the line has the mark. The
// kernel may have printed text before the mark.
func afterMark(line, mark string) (string, bool) {
	_, text, ok := strings.Cut(line, mark)
	return strings.TrimSpace(strings.ToValidUTF8(text, "?")), ok
}
