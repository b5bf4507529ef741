package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// report is everything a run found out, as -json writes it.
type report struct {
	When        time.Time         `json:"when"`
	Machine     machine           `json:"machine"`
	Size        sizes             `json:"size"`
	Repetitions int               `json:"repetitions"`
	Peers       []string          `json:"peers"` // the wanted peers that could run, native first
	Rows        []*row            `json:"rows"`
	Revocations []*revocation     `json:"revocations,omitempty"`
	Memory      []*memory         `json:"memory,omitempty"`
	Files       []*filesRow       `json:"files,omitempty"`
	FilesMemory *filesMemory      `json:"filesMemory,omitempty"`
	Proxy       []*proxyRow       `json:"proxy,omitempty"`
	Serve       []*filesRow       `json:"serve,omitempty"`
	Network     *networkReport    `json:"network,omitempty"`
	Secret      *secretReport     `json:"secret,omitempty"`
	Starts      *starts           `json:"starts,omitempty"`
	Stages      *stages           `json:"stages,omitempty"`
	Footprints  []*footprint      `json:"footprints,omitempty"`
	Turns       *turns            `json:"turns,omitempty"`
	Repository  *repositoryReport `json:"repository,omitempty"`
	Goals       []outcome         `json:"goals"`
	Skipped     []string          `json:"skipped,omitempty"` // peers and rows that were not measured, and why
}

type machine struct {
	// Load is how many processes wanted a CPU, on average over the minute before we began.
	Load   float64 `json:"loadAverage"`
	Kernel string  `json:"kernel"`
	CPUs   int     `json:"cpus"`
	Go     string  `json:"go"`
	GoFuse string  `json:"goFuse"`
	Bindfs string  `json:"bindfs"`
}

// busy reports whether others were using the machine.
func (m machine) busy() bool { return m.Load > float64(m.CPUs)/2 }

// row is one phase of a workload. Cells has a cell for each peer.
type row struct {
	Workload string           `json:"workload"`
	Bytes    int64            `json:"bytes,omitempty"` // per pass
	Cells    map[string]*cell `json:"cells"`
}

// cell is one phase of a workload on one peer.
type cell struct {
	Seconds []float64 `json:"seconds"` // one per repetition
	// Daemon has the CPU time of the peer's process per pass, one value per repetition. It is empty
	// if the peer has no process.
	Daemon   []float64 `json:"daemonSeconds,omitempty"`
	Requests *requests `json:"requests,omitempty"`
	Broken   string    `json:"broken,omitempty"`
}

// ratio returns the slowdown of a peer against native. ok is false if one of them is broken or was
// not measured.
func (r *row) ratio(peer string) (ratio float64, ok bool) {
	base, of := r.Cells[native], r.Cells[peer]
	if !base.usable() || !of.usable() {
		return 0, false
	}
	return median(of.Seconds) / median(base.Seconds), true
}

func (c *cell) usable() bool { return c != nil && c.Broken == "" && len(c.Seconds) > 0 }

// row returns the row of that name, nil if it was not selected.
func (r *report) row(name string) *row {
	for _, row := range r.Rows {
		if row.Workload == name {
			return row
		}
	}
	return nil
}

// broken lists the broken rows.
func (r *report) broken() []string {
	var all []string
	add := func(where, what string) {
		if what != "" {
			all = append(all, where+": "+what)
		}
	}
	for _, row := range r.Rows {
		for _, p := range r.Peers {
			if c := row.Cells[p]; c != nil {
				add(row.Workload+", "+p, c.Broken)
			}
		}
	}
	if r.Stages != nil {
		add(stageName, r.Stages.Broken)
	}
	if r.Starts != nil {
		add(startName, r.Starts.Broken)
	}
	if r.Repository != nil {
		add(repositoryName, r.Repository.Broken)
	}
	if r.Turns != nil {
		add(turnsName+" in turns", r.Turns.Broken)
	}
	for _, v := range r.Revocations {
		add(fmt.Sprintf("%s, %d inodes, %s", revocationName, v.Inodes, v.Peer), v.Broken)
	}
	for _, m := range r.Memory {
		add(memoryName+", "+m.Peer, m.Broken)
	}
	for _, row := range r.Files {
		add(row.Name, row.Broken)
	}
	for _, row := range r.Proxy {
		add(row.Name, row.Broken)
	}
	for _, row := range r.Serve {
		add(row.Name, row.Broken)
	}
	if r.Network != nil {
		add(networkName, r.Network.Broken)
		for _, p := range r.Network.Peers {
			if p.isOwn() {
				add(networkName+", "+p.Name, p.Broken)
			}
		}
	}
	if r.Secret != nil {
		add(secretName, r.Secret.Broken)
	}
	for _, f := range r.Footprints {
		add(f.Name, f.Broken)
	}
	if r.FilesMemory != nil {
		add(filesName+" memory", r.FilesMemory.Broken)
	}
	return all
}

// median returns the middle of values. It returns the mean of the two middle values if their number
// is even, and 0 if there are no values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// medianRatio returns the median of a[i]/b[i]. Samples with the same index are neighbours in time.
func medianRatio(a, b []float64) float64 {
	all := make([]float64, len(a))
	for i := range all {
		all[i] = a[i] / b[i]
	}
	return median(all)
}

// spread returns the distance between the quartiles, as a fraction of the median: how
// much the middle half of the repetitions disagrees. 0 for fewer than four.
func spread(values []float64) float64 {
	n := len(values)
	if n < 4 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	m := median(s)
	if m == 0 {
		return 0
	}
	return (s[n-1-n/4] - s[n/4]) / m
}

func describeMachine(bindfs string) machine {
	m := machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), Bindfs: bindfs}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &m.Load) // stays 0 if the kernel changes the format
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if strings.Contains(d.Path, "/go-fuse/") {
				m.GoFuse = d.Version
			}
		}
	}
	return m
}

// writeFile writes or replaces a file of results.
func writeFile(path string, content []byte) error { return os.WriteFile(path, content, 0o644) }
