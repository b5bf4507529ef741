package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const usage = `Boots Linux kernels of distributions in virtual machines and runs rootsfs there.

Usage: go run ./integration/kernels [FLAG]... [KERNEL]...

Without a KERNEL all are run that -list names. Needs root, and the programs that
integration/setup.sh lists for the purpose "kernels".

Examples:
  make kernel-test KERNELFLAGS=-smoke
  make kernel-test KERNELS='6.12 7.3'
  make kernel-test KERNELFLAGS='-mirror ubuntu=http://archive.ubuntu.com/ubuntu'
  go run ./integration/kernels -suites mount/transport,integration/revoke 6.18 7.3

Flags:
`

const (
	allPhases   = "doctor,demo,mounts,runs,uring"
	smokeKernel = "6.12"
)

// options are the options of the command line.
type options struct {
	phases, suites, skip, out, cache, accel string
	limit, phaseLimit, suiteLimit           time.Duration
	mirrors                                 map[string]string // by the label of the archive
}

func main() {
	o := options{mirrors: map[string]string{}}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = "/root/.cache"
	}
	list := flag.Bool("list", false, "print the kernels that are known, and stop")
	flag.StringVar(&o.phases, "phases", allPhases, "what to run in each machine")
	smoke := flag.Bool("smoke", false, "run the least: doctor, a mount, a revocation and a run, on "+smokeKernel+" if no kernel is named")
	flag.StringVar(&o.suites, "suites", "", "run the tests of these `packages`, too, such as mount,integration/revoke")
	flag.StringVar(&o.skip, "skip", "", "leave out the tests of -suites that match this `regexp`")
	flag.StringVar(&o.out, "out", "bin/kernels", "`directory` for the results")
	flag.StringVar(&o.cache, "cache", filepath.Join(cache, "rootsfs-test", "kernels"), "`directory` for packages and the disk image, kept between runs")
	flag.StringVar(&o.accel, "accel", "", "accelerator of QEMU (default: kvm if it boots the kernel, else tcg)")
	flag.DurationVar(&o.limit, "limit", 2*time.Hour, "how long one machine may run")
	flag.DurationVar(&o.phaseLimit, "phase-limit", 15*time.Minute, "how long one phase in a machine may take")
	flag.DurationVar(&o.suiteLimit, "suite-limit", 30*time.Minute, "how long the tests of one package may take")
	flag.Func("mirror", "`DISTRIBUTION=URI` of a mirror that this machine's apt sources do not name; repeatable", o.addMirror)
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	if *list {
		for _, k := range kernels {
			fmt.Printf("%-5s %s, %s %s\n", k.name, k.image, k.distribution.name, strings.Join(k.suites, ", "))
		}
		return
	}
	if strings.ContainsAny(o.phases+o.suites+o.skip, " \t\"") {
		fmt.Fprintln(os.Stderr, "kernels: -phases, -suites and -skip become parameters of the kernel: write them without spaces and quotes")
		os.Exit(2)
	}
	names := flag.Args()
	if *smoke {
		o.phases = "smoke"
		if len(names) == 0 {
			names = []string{smokeKernel}
		}
	}
	chosen, err := choose(names)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := runAll(ctx, &o, chosen)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
	}
	os.Exit(code)
}

// addMirror records a mirror under the label of its distribution's archive.
func (o *options) addMirror(s string) error {
	name, uri, ok := strings.Cut(s, "=")
	for _, d := range []*distribution{debian, ubuntu} {
		if ok && d.name == name {
			o.mirrors[d.label] = uri
			return nil
		}
	}
	return errors.New("write debian=URI or ubuntu=URI")
}

// choose returns the kernels with these names, or all kernels if there are no names.
func choose(names []string) ([]kernel, error) {
	if len(names) == 0 {
		return kernels, nil
	}
	var chosen []kernel
	for _, name := range names {
		i := slices.IndexFunc(kernels, func(k kernel) bool { return k.name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown kernel %s: -list names the known ones", name)
		}
		chosen = append(chosen, kernels[i])
	}
	return chosen, nil
}

// runAll runs the machines one after the other, and returns the exit code. It writes the table to
// OUT/table.md after each machine, and prints the table at the end.
func runAll(ctx context.Context, o *options, chosen []kernel) (int, error) {
	if os.Geteuid() != 0 {
		return 5, errors.New("root is needed, to build the disk image")
	}
	work, err := os.MkdirTemp("", "kernels-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(work)
	l := &lab{options: o, work: work}
	if err := l.prepare(ctx); err != nil {
		return 1, err
	}
	var rows []row
	code := 0
	for _, k := range chosen {
		began := time.Now()
		r := row{kernel: k}
		if r.version, r.results, err = l.test(ctx, k); err != nil {
			r.err = err
			progress("%s: FAILED: %v", k.name, err)
		}
		progress("%s: done after %v", k.name, time.Since(began).Round(time.Second))
		for _, problem := range r.problems() {
			progress("%s: PROBLEM: %s", k.name, problem)
			code = 1
		}
		rows = append(rows, r)
		if err := os.WriteFile(filepath.Join(o.out, "table.md"), []byte(table(rows)), 0o644); err != nil {
			return 1, err
		}
		if ctx.Err() != nil {
			break
		}
	}
	fmt.Print(table(rows))
	return code, ctx.Err()
}

// progress prints a line for the waiting user.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "kernels: %s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// call has the time limit, the directory and the environment of a program to run.
type call struct {
	limit time.Duration
	dir   string
	env   []string // added to this process's environment
}

// run runs a program and returns its standard output. If the program fails, the error has the last
// lines of its standard error.
func (c call) run(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.limit, fmt.Errorf("stopped after %v", c.limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), c.env...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s: %w", name, context.Cause(ctx))
	case err != nil:
		return "", fmt.Errorf("%s: %w: %s", name, err, lastLines(stderr.String()))
	}
	return stdout.String(), nil
}

// lastLines returns the last three lines of a program's output, as one line.
func lastLines(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}
