package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
)

// options are the suite's flags, and settings that follow from the environment.
type options struct {
	goCommand string
	raced     raced
	timeout   time.Duration // the -timeout of go test, for one package
	limit     time.Duration // how long one job may take
	stuck     time.Duration // how long a FUSE connection may leave a request waiting
	ci        bool
	parts     []string
	declared  bool   // tests find only the programs that setup.sh names
	path      string // a directory of links to the programs that tests may call; "" for any
}

func main() {
	o := options{ci: os.Getenv("CI") != ""}
	flag.StringVar(&o.goCommand, "go", "go", "the go `command`")
	flag.BoolVar(&o.declared, "declared", false, "let tests find only the programs that setup.sh names")
	flag.StringVar((*string)(&o.raced), "race", string(racedNone), "`which` packages are tested with the race detector: none, least, most or auto")
	flag.DurationVar(&o.timeout, "timeout", 30*time.Minute, "how long one package may take")
	flag.DurationVar(&o.limit, "limit", 45*time.Minute, "how long one run of go test may take")
	flag.DurationVar(&o.stuck, "stuck", 90*time.Second, "how long a FUSE connection may leave a request waiting")
	flag.Parse()
	o.parts = flag.Args()
	_ = os.Unsetenv("CGO_ENABLED") // the Makefile sets it to 0 for this program, but the race detector needs C
	if signal.Ignored(syscall.SIGHUP) {
		// Under nohup SIGHUP is ignored, but tests send SIGHUP. Because this process catches
		// SIGHUP, its child processes have the default action, and this process continues.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	if err := lab.StartWithOwnMounts(); err != nil {
		fmt.Fprintf(os.Stderr, "suite: cannot tell the tests' mounts from others': %v\n", err)
		os.Exit(1)
	}
	raced, why, err := o.raced.onThisMachine()
	if err != nil {
		fmt.Fprintf(os.Stderr, "suite: %v\n", err)
		os.Exit(2)
	}
	if o.raced = raced; why != "" {
		fmt.Fprintln(os.Stderr, "suite: "+why)
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

// run runs the tests. It returns the packages that failed and all other problems, such as files
// that tests left.
func run(o options) (problems []string, err error) {
	packages, err := findPackages(o.goCommand, o.parts)
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
	for _, j := range jobs(packages, o.raced) {
		wg.Go(func() { out.problem(j.test(o, temp.dir, out, dog)) })
	}
	wg.Wait()
	rerun(o, temp.dir, out, dog)
	problems = out.problems
	for _, name := range out.failures() {
		problems = append(problems, name+" failed")
	}
	problems = append(problems, procs.reportLeft()...)
	problems = append(problems, dog.stop()...)
	left, err := mountsLeft(mounts, temp.dir)
	if err != nil {
		return problems, err
	}
	problems = append(problems, left...)
	problems = append(problems, temp.reportLeft()...)
	problems = append(problems, dirs.changed(before, o.ci)...)
	problems = append(problems, out.judgeSkips(machine{ci: o.ci, root: os.Geteuid() == 0})...)
	out.summary(time.Since(began))
	return problems, nil
}

// declaredPath creates a directory, lets linkPrograms fill it, and returns the directory's path. It
// returns "" on a machine without dpkg.
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
