package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tracer counts FUSE requests with the kernel's tracepoint fuse:fuse_request_send
// (Linux 6.10 and later), in a trace instance of its own and on a tracefs mount
// of its own, so that no other tracing is touched.
type tracer struct {
	mnt      string
	instance string
}

// traceKB is the size of each CPU's buffer in KiB, enough for about 400,000 requests. Requests that
// overrun the buffer are still counted, but not by kind.
const traceKB = 32 << 10

// newTracer fails for users other than root, and where the tracefs or the tracepoint is
// missing.
func newTracer(mnt string) (*tracer, error) {
	if err := os.MkdirAll(mnt, 0o700); err != nil {
		return nil, err
	}
	if err := unix.Mount("tracefs", mnt, "tracefs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return nil, errors.Join(fmt.Errorf("mount tracefs: %w", err), os.Remove(mnt))
	}
	t := &tracer{mnt: mnt, instance: filepath.Join(mnt, "instances", instancePrefix+strconv.Itoa(os.Getpid()))}
	removeStaleInstances(mnt)
	err := os.Mkdir(t.instance, 0o700)
	if err == nil {
		err = t.set("buffer_size_kb", strconv.Itoa(traceKB))
	}
	if err == nil {
		err = t.set(event+"/enable", "0")
	}
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

const instancePrefix = "rootsfs-bench-" // followed by the id of the process that made it

// removeStaleInstances removes the instances of runs that were killed: they hold buffers
// in the kernel. An instance that cannot be removed does no harm.
func removeStaleInstances(mnt string) {
	all, _ := filepath.Glob(filepath.Join(mnt, "instances", instancePrefix+"*")) // the pattern is well formed
	for _, dir := range all {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), instancePrefix))
		if err == nil && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			_ = os.Remove(dir)
		}
	}
}

const event = "events/fuse/fuse_request_send"

func (t *tracer) set(file, value string) error {
	return os.WriteFile(filepath.Join(t.instance, file), []byte(value), 0)
}

func (t *tracer) close() error {
	_ = os.Remove(t.instance) // absent when newTracer failed early
	return errors.Join(unix.Unmount(t.mnt, unix.MNT_DETACH), os.Remove(t.mnt))
}

// begin starts counting the requests of one FUSE connection.
func (t *tracer) begin(connection uint32) error {
	return errors.Join(
		t.set("trace", ""),
		t.set(event+"/filter", fmt.Sprintf("connection == %d", connection)),
		t.set(event+"/enable", "1"))
}

// requests are counts per pass.
type requests struct {
	Total  float64            `json:"total"`
	ByKind map[string]float64 `json:"byKind"` // by the name of the FUSE opcode, without FUSE_
}

// end stops counting and returns the counts divided by passes.
func (t *tracer) end(passes int) (*requests, error) {
	if err := t.set(event+"/enable", "0"); err != nil {
		return nil, err
	}
	stats, err := filepath.Glob(filepath.Join(t.instance, "per_cpu", "cpu*", "stats"))
	if err != nil {
		return nil, err
	}
	r := &requests{ByKind: map[string]float64{}}
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		r.Total += countEvents(string(text)) / float64(passes)
	}
	f, err := os.Open(filepath.Join(t.instance, "trace"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if m := opcode.FindStringSubmatch(sc.Text()); m != nil {
			r.ByKind[m[1]] += 1 / float64(passes)
		}
	}
	return r, t.set("trace", "")
}

var opcode = regexp.MustCompile(`opcode \d+ \(FUSE_(\w+)\)`)

// countEvents returns the number of events in a CPU's stats file, kept or overrun.
func countEvents(stats string) float64 {
	n := 0
	for line := range strings.Lines(stats) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if key == "entries" || key == "overrun" {
			v, _ := strconv.Atoi(value) // the kernel writes numbers
			n += v
		}
	}
	return float64(n)
}
