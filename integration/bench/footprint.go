package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// The names for -only.
const (
	rootMemoryName = "memory per root"
	runMemoryName  = "memory per run"
	auditBytesName = "audit bytes"
)

// The goals are in bytes. The goals of runs are half of the first measurements (8,853 kB and
// 7,476 kB). The goal of the audit log is a quarter of its first measurement, 352 bytes a record.
const (
	rootMemoryGoal = 4 << 10
	runPSSGoal     = 8853 << 10 / 2
	runAnonGoal    = 7476 << 10 / 2
	auditBytesGoal = 352 / 4
)

const (
	footprintRoots = 10_000
	footprintRuns  = 16
	// runSettle is longer than a run takes to give back the memory that only its start needs.
	runSettle  = 5 * time.Second
	auditOps   = 10_000
	auditFiles = 1000 // in the repository of the audit rows
)

// footprint is one row: bytes for each of Count roots, runs or operations.
type footprint struct {
	Name   string  `json:"name"`
	Count  int     `json:"count"`
	Each   float64 `json:"bytesEach"`
	Goal   float64 `json:"goal"`
	Broken string  `json:"broken,omitempty"`
}

// footprintRows measures the rows that are wanted.
func (l *lab) footprintRows(ctx context.Context, r *report, wanted *regexp.Regexp) error {
	type measurement struct {
		name    string
		program bool // the measurement starts rootsfs itself
		measure func(context.Context) ([]*footprint, error)
	}
	for _, m := range []measurement{
		{rootMemoryName, false, l.rootMemory},
		{runMemoryName, true, l.runMemory},
		{auditBytesName, true, l.auditBytes},
	} {
		if !wanted.MatchString(m.name) {
			continue
		}
		if missing := l.fuseMissing + l.rootsfsMissing; m.program && missing != "" {
			r.Skipped = append(r.Skipped, m.name+": "+missing)
			continue
		}
		fmt.Fprintf(l.log, "bench: %4.0f s  %s\n", time.Since(r.When).Seconds(), m.name)
		rows, err := m.measure(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			rows = append(rows, &footprint{Name: m.name, Broken: err.Error()})
		}
		r.Footprints = append(r.Footprints, rows...)
	}
	return nil
}

// rootMemory measures the heap of this process for each of many roots: after the roots were
// granted, and after a name was looked up in each root.
func (l *lab) rootMemory(ctx context.Context) (rows []*footprint, err error) {
	base, err := os.MkdirTemp(l.path("home"), "roots-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(base)) }()
	policy := guard.Policy{Rights: guard.ReadWrite, Patterns: guard.Patterns{Hide: guard.Texts("*.secret")}}
	grants := make([]guard.Grant, footprintRoots)
	for i := range grants {
		name := fmt.Sprintf("root%05d", i)
		dir := filepath.Join(base, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
		grants[i] = guard.Grant{Root: guard.RootName(name), Dir: names.Foreign(dir), Policy: policy, Origin: "bench"}
	}
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	tree := vfs.New(reg)
	before := heapInUse()
	if _, err := reg.GrantAll(ctx, grants); err != nil {
		return nil, err
	}
	granted := heapInUse()
	for i := range grants {
		p, err := guard.NewPath(grants[i].Root, "src/.git")
		if err != nil {
			return nil, err
		}
		_, _ = tree.Lstat(ctx, guard.Caller{Via: guard.ViaFiles}, vfs.At{Path: p}) // there is no such name
	}
	used := heapInUse()
	runtime.KeepAlive(tree)
	_, err = reg.RevokeAll(ctx)
	return []*footprint{
		{Name: rootMemoryName + ", granted", Count: footprintRoots, Each: float64(granted-before) / footprintRoots, Goal: rootMemoryGoal},
		{Name: rootMemoryName + ", used", Count: footprintRoots, Each: float64(used-before) / footprintRoots, Goal: rootMemoryGoal},
	}, err
}

// heapInUse returns the bytes in use on the heap of this process.
func heapInUse() int64 {
	debug.FreeOSMemory()
	runtime.GC() // frees what the first collection only finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// runMemory adds up the memory of the processes of many runs at once.
func (l *lab) runMemory(ctx context.Context) (rows []*footprint, err error) {
	root := l.path("start")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	env, err := l.privateHome("runs")
	if err != nil {
		return nil, err
	}
	var runs []*process
	defer func() {
		for _, p := range runs {
			_ = p.stdin.Close()
			_ = p.cmd.Process.Signal(unix.SIGTERM)
			<-p.done // the run ends like its command, by the signal
		}
	}()
	for i := range footprintRuns {
		p, err := l.spawn.launch("run", []string{l.rootsfs, "run", "--name", fmt.Sprintf("bench-memory-%d", i), "--root", root, "--", "sh", "-c", "echo ready; exec sleep 600"}, env)
		if err != nil {
			return nil, err
		}
		runs = append(runs, p)
	}
	for _, p := range runs {
		if _, err := p.line(ctx); err != nil {
			return nil, err
		}
	}
	select {
	case <-time.After(runSettle):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	pss, anon, err := memoryOfProgram(l.rootsfs)
	each := func(bytes int64) float64 { return float64(bytes) / footprintRuns }
	return []*footprint{
		{Name: runMemoryName + ", PSS", Count: footprintRuns, Each: each(pss), Goal: runPSSGoal},
		{Name: runMemoryName + ", anonymous", Count: footprintRuns, Each: each(anon), Goal: runAnonGoal},
	}, err
}

// memoryOfProgram adds up the proportional and the anonymous memory of every process
// that executes program.
func memoryOfProgram(program string) (pss, anon int64, err error) {
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return 0, 0, err
	}
	for _, link := range links {
		if exe, err := os.Readlink(link); err != nil || exe != program {
			continue // another program, a process of another user, or a process that has ended
		}
		text, err := os.ReadFile(filepath.Join(filepath.Dir(link), "smaps_rollup"))
		if err != nil {
			return 0, 0, err
		}
		pss += rollup(string(text), "Pss:")
		anon += rollup(string(text), "Pss_Anon:")
	}
	if pss == 0 || anon == 0 {
		err = errors.New("no process of " + program + " has memory")
	}
	return pss, anon, err
}

// rollup returns the bytes of the line of /proc/PID/smaps_rollup that begins with key; 0 if there
// is no such line.
func rollup(text, key string) int64 {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, key); ok {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kb << 10
		}
	}
	return 0
}

// auditBytes measures the bytes that some operations leave in the files of the audit log.
func (l *lab) auditBytes(ctx context.Context) ([]*footprint, error) {
	source, err := os.MkdirTemp(l.path("home"), "audited-")
	if err != nil {
		return nil, err
	}
	if err := auditFixture(ctx, source); err != nil {
		return nil, err
	}
	file := func(dir string, i int) string { return filepath.Join(dir, fmt.Sprintf("file-%04d.txt", i%auditFiles)) }
	var rows []*footprint
	for _, c := range []struct {
		name string
		ops  int
		run  func(dir string) error
	}{
		{"git status of 1,000 files, for each file", auditFiles, func(dir string) error {
			cmd := exec.CommandContext(ctx, "git", "-c", "safe.directory=*", "status", "--porcelain")
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				return fmt.Errorf("git status: %w: %s", err, out)
			}
			return nil
		}},
		{"stat", auditOps, func(dir string) error {
			return doAuditOps(func(i int) error { return unix.Lstat(file(dir, i), &unix.Stat_t{}) })
		}},
		{"read", auditOps, func(dir string) error {
			return doAuditOps(func(i int) error { _, err := os.ReadFile(file(dir, i)); return err })
		}},
		{"refused open of a new long name", auditOps, func(dir string) error {
			return doAuditOps(func(i int) error {
				name := fmt.Sprintf("%s%04d", strings.Repeat("x", 200), i)
				f, err := os.Create(filepath.Join(dir, ".git", "hooks", name))
				if err == nil {
					return errors.Join(errors.New("a hook was created"), f.Close())
				}
				return nil
			})
		}},
	} {
		row := &footprint{Name: auditBytesName + ", " + c.name, Count: c.ops, Goal: auditBytesGoal}
		rows = append(rows, row)
		bytes, err := l.auditedBytes(ctx, source, c.run)
		if err != nil {
			row.Broken = err.Error()
		}
		row.Each = float64(bytes) / float64(c.ops)
	}
	return rows, nil
}

// auditFixture makes a repository of auditFiles files.
func auditFixture(ctx context.Context, source string) error {
	for i := range auditFiles {
		if err := os.WriteFile(filepath.Join(source, fmt.Sprintf("file-%04d.txt", i)), []byte("content\n"), 0o644); err != nil {
			return err
		}
	}
	git := exec.CommandContext(ctx, "sh", "-c", "git init -q . && git add . && git -c user.name=b -c user.email=b@localhost commit -qm all")
	git.Dir = source
	if out, err := git.CombinedOutput(); err != nil {
		return fmt.Errorf("git: %w: %s", err, out)
	}
	return nil
}

// doAuditOps does auditOps operations.
func doAuditOps(do func(i int) error) error {
	for i := range auditOps {
		if err := do(i); err != nil {
			return err
		}
	}
	return nil
}

// auditedBytes returns the size of the audit files of a session with the operations of run, less
// the size of the audit files of a session without operations. The result is never negative.
func (l *lab) auditedBytes(ctx context.Context, source string, run func(dir string) error) (int64, error) {
	var sizes []int64
	for _, do := range []func(string) error{func(string) error { return nil }, run} {
		size, err := l.auditBytesOf(ctx, source, do)
		if err != nil {
			return 0, err
		}
		sizes = append(sizes, size)
	}
	return max(0, sizes[1]-sizes[0]), nil
}

// auditBytesOf returns the size of all files in the state directory of a session in which run is
// called. The audit files are in that directory.
func (l *lab) auditBytesOf(ctx context.Context, source string, run func(dir string) error) (size int64, err error) {
	var p peer
	for _, p = range l.peers() {
		if p.name == audit {
			break
		}
	}
	m, err := l.start(ctx, p, source)
	if err != nil {
		return 0, err
	}
	state := l.path("home", filepath.Base(m.mnt), "state_home")
	err = guarded(ctx, runLimit, m.abort, func(context.Context) error { return run(m.dir) })
	if err := errors.Join(err, m.stop()); err != nil {
		return 0, err
	}
	err = filepath.WalkDir(state, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	if size == 0 && err == nil {
		err = errors.New("there is no audit file below " + state)
	}
	return size, err
}

func (r *report) footprintTable() string {
	if len(r.Footprints) == 0 {
		return ""
	}
	table := [][]string{{"footprint", "of", "bytes each", "goal"}}
	for _, f := range r.Footprints {
		table = append(table, []string{f.Name, strconv.Itoa(f.Count), f.text(), fmt.Sprintf("%.0f", f.Goal)})
	}
	return format(table)
}

func (f *footprint) text() string {
	if f.Broken != "" {
		return "BROKEN"
	}
	return fmt.Sprintf("%.0f", f.Each)
}

func judgeFootprints(r *report) []outcome {
	var all []outcome
	for _, f := range r.Footprints {
		all = append(all, judge(f.Name, fmt.Sprintf("%.0f", f.Goal), f.Broken == "", fmt.Sprintf("%.0f", f.Each), f.Each <= f.Goal))
	}
	return all
}
