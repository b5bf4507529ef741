package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// processes are this process's descendants. A process whose parent ends becomes this
// process's child, so that no descendant escapes.
type processes struct {
	mu      sync.Mutex
	started map[int]bool // the processes that os/exec waits for
}

// reapPause is the pause after a reap, so that one reap takes the processes that end together.
const reapPause = 50 * time.Millisecond

// adoptOrphans makes this process the parent of descendants whose own parent ends.
func adoptOrphans() (*processes, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("adopt orphans: %w", err)
	}
	p := &processes{started: map[int]bool{}}
	// The channel holds one signal, and reap waits for all processes that have ended, so that no
	// end is missed. Reading /proc at intervals would take a fortieth of a run's processor time.
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	go func() {
		for range ended {
			p.reap()
			time.Sleep(reapPause)
		}
	}()
	return p, nil
}

// start starts a command whose end os/exec waits for.
func (p *processes) start(cmd *exec.Cmd) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := cmd.Start()
	if err == nil {
		p.started[cmd.Process.Pid] = true
	}
	return err
}

// reap takes the exit codes of adopted processes that have ended.
func (p *processes) reap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pid, s := range readProcesses() {
		if s.parent == os.Getpid() && s.state == "Z" && !p.started[pid] {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
}

// process holds two fields of /proc/PID/stat.
type process struct {
	parent int
	state  string
}

// readProcesses returns all processes, by their ids.
func readProcesses() map[int]process {
	all := map[int]process{}
	dir, err := os.ReadDir("/proc")
	if err != nil {
		return all
	}
	for _, e := range dir {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // the process has ended
		}
		// The command's name in parentheses may contain any characters.
		rest := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(rest) < 2 {
			continue
		}
		parent, _ := strconv.Atoi(rest[1])
		all[pid] = process{parent, rest[0]}
	}
	return all
}

// descendants returns the living descendants of a process, nearest first.
func descendants(pid int) (pids []int) {
	all := readProcesses()
	queue := []int{pid}
	for len(queue) > 0 {
		next := queue[0]
		queue = queue[1:]
		for child, s := range all {
			if s.parent == next && !slices.Contains(queue, child) && !slices.Contains(pids, child) {
				queue = append(queue, child)
				if s.state != "Z" {
					pids = append(pids, child)
				}
			}
		}
	}
	return pids
}

// grace is how long reportLeft waits until the processes that tests started have ended.
const grace = 20 * time.Second

// reportLeft reports the processes that tests have left running, and kills them.
func (p *processes) reportLeft() (problems []string) {
	var pids []int
	for end := time.Now().Add(grace); ; time.Sleep(100 * time.Millisecond) {
		if pids = descendants(os.Getpid()); len(pids) == 0 || time.Now().After(end) {
			break
		}
	}
	for _, pid := range pids {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		problems = append(problems, fmt.Sprintf("a test left process %d running: %q", pid, strings.ReplaceAll(strings.TrimRight(string(line), "\x00"), "\x00", " ")))
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return problems
}
