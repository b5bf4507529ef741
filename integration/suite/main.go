package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
)

// options are the suite's flags.
type options struct {
	goCommand string
	race      bool
	timeout   time.Duration // of one package, go test's own
	limit     time.Duration // of one part
	stuck     time.Duration // see watchdog
	ci        bool
	parts     []string
	declared  bool   // tests find only the programs that setup.sh names
	path      string // a directory of links to the programs that tests may call; "" for any
}

func main() {
	o := options{ci: os.Getenv("CI") != ""}
	flag.StringVar(&o.goCommand, "go", "go", "the go `command`")
	flag.BoolVar(&o.declared, "declared", false, "let tests find only the programs that setup.sh names")
	flag.BoolVar(&o.race, "race", false, "run with the race detector")
	flag.DurationVar(&o.timeout, "timeout", 20*time.Minute, "how long one package may take")
	flag.DurationVar(&o.limit, "limit", 30*time.Minute, "how long one part may take")
	flag.DurationVar(&o.stuck, "stuck", 90*time.Second, "how long a FUSE connection may leave a request waiting")
	flag.Parse()
	o.parts = flag.Args()
	_ = os.Unsetenv("CGO_ENABLED") // the Makefile compiles this program without C, which the race detector needs
	if signal.Ignored(syscall.SIGHUP) {
		// Under nohup SIGHUP is ignored, but tests send it. Because this process catches it,
		// the processes that it starts have the default action, and this process continues.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	if err := lab.StartWithOwnMounts(); err != nil {
		fmt.Fprintf(os.Stderr, "suite: cannot tell the tests' mounts from others': %v\n", err)
		os.Exit(1)
	}
	problems, err := run(o)
	if err != nil {
		problems = append(problems, err.Error())
	}
	for _, p := range problems {
		fmt.Fprintln(os.Stderr, "suite: "+p)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

// run runs the tests and returns their failures, and the problems with what they left.
func run(o options) (problems []string, err error) {
	parts, err := findParts(o.goCommand, o.parts)
	if err != nil {
		return nil, err
	}
	unix.Umask(0o022) // so that the tests' files get the modes that the tests name
	temp, why, err := newScratch()
	if err != nil {
		return nil, err
	}
	defer temp.end()
	if why != nil {
		fmt.Fprintf(os.Stderr, "suite: the tests' files are on the machine's own file system, which may be slower: %v\n", why)
	}
	if o.declared {
		if o.path, err = declaredPath(o.goCommand); err != nil {
			return nil, err
		}
		defer os.RemoveAll(o.path)
	}
	procs, err := adoptOrphans()
	if err != nil {
		return nil, err
	}
	mounts, err := mountPoints()
	if err != nil {
		return nil, err
	}
	dirs := userDirs(os.Getenv)
	before := dirs.list()
	dog := newWatchdog(procs, o.stuck, os.Stderr)
	out := &report{w: os.Stdout}
	began := time.Now()
	var wg sync.WaitGroup
	for _, p := range parts {
		wg.Go(func() {
			for _, half := range p.byRace(o.race) {
				out.problem(half.test(o, temp.dir, out, dog))
			}
		})
	}
	wg.Wait()
	rerun(o, temp.dir, out, dog)
	problems = out.problems
	for _, name := range out.failures() {
		problems = append(problems, name+" failed")
	}
	problems = append(problems, procs.left()...)
	problems = append(problems, dog.stop()...)
	left, err := mountsLeft(mounts, temp.dir)
	if err != nil {
		return problems, err
	}
	problems = append(problems, left...)
	problems = append(problems, temp.left()...)
	problems = append(problems, dirs.changed(before, o.ci)...)
	problems = append(problems, out.judgeSkips(machine{ci: o.ci, root: os.Geteuid() == 0})...)
	out.summary(time.Since(began))
	return problems, nil
}

// declaredPath makes the directory of linkPrograms, and returns "" on a machine without dpkg.
func declaredPath(goCommand string) (dir string, err error) {
	if dir, err = os.MkdirTemp(plainTemp(os.TempDir()), "rst-path-"); err != nil {
		return "", err
	}
	if err = errors.Join(os.Chmod(dir, 0o755), linkPrograms(dir, goCommand)); err == nil {
		return dir, nil
	}
	_ = os.RemoveAll(dir)
	if errors.Is(err, exec.ErrNotFound) {
		fmt.Fprintf(os.Stderr, "suite: tests may call any program here, also one that setup.sh does not name: %v\n", err)
		return "", nil
	}
	return "", fmt.Errorf("link the programs that tests may call: %w", err)
}

// part is a list of packages that are tested one after the other: suites that mount,
// watch and kill share one machine.
type part struct {
	name     string
	packages []string
	race     bool
}

// unraced are directories whose tests start programs and read files, and share no memory between
// goroutines: the race detector would find nothing there, and makes them take several times as long.
var unraced = []string{"integration/deps", "integration/dist"}

// byRace divides a part into the packages that are tested with the race detector, and the others.
func (p *part) byRace(race bool) (halves []part) {
	raced, plain := part{name: p.name, race: race}, part{name: p.name}
	for _, pkg := range p.packages {
		half := &raced
		if slices.Contains(unraced, inModule(pkg)) {
			half = &plain
		}
		half.packages = append(half.packages, pkg)
	}
	return slices.DeleteFunc([]part{raced, plain}, func(h part) bool { return len(h.packages) == 0 })
}

// inModule returns a package's path within the module. The module's path has three elements.
func inModule(pkg string) string {
	return strings.Join(strings.Split(pkg, "/")[min(3, strings.Count(pkg, "/")+1):], "/")
}

// listed are the parts but the last, which has every package that is listed nowhere, so that
// none can be forgotten. The parts take about as long as each other. Their tests wait for
// processes and deadlines, so that four parts keep two processors busy, and three do not.
var listed = []struct {
	name string
	dirs []string
}{
	{"core", []string{"guard", "vfs", "broker", "integration/model", "integration/suite", "mount/sandbox"}},
	{"peers", []string{"integration/programs", "integration/proxy", "integration/files", "integration/race", "integration/revoke",
		"integration/dist"}},
	{"confined", []string{"integration/sandbox", "integration/serve", "integration/console", "integration/policy", "integration/reports",
		"integration/deps"}},
}

// findParts returns the parts with the given names, or all parts if names is empty.
func findParts(goCommand string, names []string) ([]part, error) {
	cmd := exec.Command(goCommand, "list", "./...")
	cmd.Stderr = os.Stderr
	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	parts := divide(strings.Fields(string(list)))
	if len(names) == 0 {
		return parts, nil
	}
	var chosen []part
	for _, n := range names {
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == n })
		if i < 0 {
			return nil, fmt.Errorf("there is no part %q: write core, peers, confined or rest", n)
		}
		chosen = append(chosen, parts[i])
	}
	return chosen, nil
}

// divide puts each package into its part.
func divide(packages []string) []part {
	parts := make([]part, len(listed)+1)
	for i, l := range listed {
		parts[i].name = l.name
	}
	parts[len(listed)].name = "rest"
	for _, pkg := range packages {
		rel := inModule(pkg)
		at := 0
		for at < len(listed) && !slices.ContainsFunc(listed[at].dirs, func(d string) bool { return rel == d || strings.HasPrefix(rel, d+"/") }) {
			at++
		}
		parts[at].packages = append(parts[at].packages, pkg)
	}
	return parts
}

// test runs a part's packages, with further flags of go test, and returns problems other
// than failed tests.
func (p *part) test(o options, temp string, out *report, dog *watchdog, flags ...string) string {
	args := []string{"test", "-json", "-p", "1", "-vet=off", "-timeout", o.timeout.String()} // `make check` vets
	env := os.Environ()
	if p.race {
		args = append(args, "-race")
	} else if o.race {
		// As testkit.Build compiles, so that what both need is compiled once.
		args, env = append(args, "-trimpath"), append(env, "CGO_ENABLED=0")
	}
	cmd := exec.Command(o.goCommand, slices.Concat(args, flags, p.packages)...)
	// A process with the race detector would sleep for a second before it exits, and
	// tests start thousands.
	// npm has Node keep what it compiled, in TMPDIR.
	cmd.Env = append(env, "PATH="+cmp.Or(o.path, os.Getenv("PATH")), "TMPDIR="+temp, "NODE_DISABLE_COMPILE_CACHE=1", "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err.Error()
	}
	if err := dog.procs.start(cmd); err != nil {
		return err.Error()
	}
	overdue := time.AfterFunc(o.limit, func() { dog.kill(p.name, cmd.Process.Pid, o.limit) })
	defer overdue.Stop()
	readErr := out.read(stdout)
	if err := cmd.Wait(); err != nil && !out.failed(p.packages) {
		return fmt.Sprintf("go test of part %s: %v", p.name, err)
	}
	if readErr != nil {
		return fmt.Sprintf("the output of part %s: %v", p.name, readErr)
	}
	return ""
}
