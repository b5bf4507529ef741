package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/files"
	"github.com/rootsfs/rootsfs/vfs"
)

// The rows of files/* compare the same work through a server that asks a broker, and through
// server-filesystem, which opens files itself. The bench asks both in turns, over stdio, with
// the MCP Go SDK.
const (
	filesName     = "files"             // the name for -only; the rows' names begin with it
	filesTheirs   = "server-filesystem" // the peer
	filesRequests = 100_000             // of the memory row
)

// filesCases are the rows. With a limit of 4, a row has to be four times as fast as
// server-filesystem; 0 is no limit.
var filesCases = []struct {
	name  string
	load  load
	limit float64
}{
	{"files read 1 KB, 1 at a time", load{Path: "1k", Bytes: 1 << 10, AtOnce: 1}, 0},
	{"files read 1 KB, 32 at a time", load{Path: "1k", Bytes: 1 << 10, AtOnce: 32}, 4},
	{"files read 1 MB, 1 at a time", load{Path: "1m", Bytes: 1 << 20, AtOnce: 1}, 4},
	{"files read 1 MB, 32 at a time", load{Path: "1m", Bytes: 1 << 20, AtOnce: 32}, 4},
	{"files list 100, 1 at a time", load{Path: "list", Entries: 100, AtOnce: 1}, 0},
	{"files list 100, 32 at a time", load{Path: "list", Entries: 100, AtOnce: 32}, 3},
	// list_directory returns names and types, and so does files/list without
	// metadata; with sizes, both look at each file.
	{"files list 100 with sizes, 32 at a time", load{Path: "list", Entries: 100, AtOnce: 32, Sizes: true}, 0},
	// files/list with its default answer, which has sizes, against list_directory, which has none.
	{"files list 100 by default, 32 at a time", load{Path: "list", Entries: 100, AtOnce: 32, Sizes: true, TheirNames: true}, 0},
}

const (
	filesTailRow  = "files read 1 KB, 32 at a time"
	filesTailGoal = 10 * time.Millisecond // for 99 of 100 calls of filesTailRow
	// filesGrowth bounds the host's memory after all requests of the memory row, as a multiple of
	// the memory after a tenth of them. Growth up to this factor counts as flat.
	filesGrowth = 1.1
)

// filesRow is one case on both peers. There is one sample a repetition.
type filesRow struct {
	Name   string          `json:"name"`
	Limit  float64         `json:"-"`
	Ours   []float64       `json:"perSecond"`
	Theirs []float64       `json:"theirsPerSecond,omitempty"`
	P99    []time.Duration `json:"p99"` // of calls to the broker
	Broken string          `json:"broken,omitempty"`
}

func (r *filesRow) ratio() float64 {
	if r.Broken != "" || len(r.Theirs) == 0 || len(r.Ours) == 0 {
		return 0
	}
	return median(r.Ours) / median(r.Theirs)
}

func (r *filesRow) p99() time.Duration {
	all := make([]float64, len(r.P99))
	for i, d := range r.P99 {
		all[i] = float64(d)
	}
	return time.Duration(median(all))
}

// filesMemory is the memory of this process, which is the host.
type filesMemory struct {
	Requests int    `json:"requests"`
	Before   int64  `json:"rssAtATenth"`
	After    int64  `json:"rssAfterAll"`
	Broken   string `json:"broken,omitempty"`
}

func chooseFiles(wanted *regexp.Regexp) (rows []*filesRow, memory bool) {
	for _, c := range filesCases {
		if wanted.MatchString(c.name) {
			rows = append(rows, &filesRow{Name: c.name, Limit: c.limit})
		}
	}
	return rows, wanted.MatchString(filesName + " memory")
}

// filesRows measures the chosen rows. A peer's failed call is reported in its row, and a
// missing server-filesystem among the skipped rows.
func (l *lab) filesRows(ctx context.Context, r *report, wanted *regexp.Regexp, span time.Duration, requests int) (err error) {
	rows, memory := chooseFiles(wanted)
	if len(rows) == 0 && !memory {
		return nil
	}
	dir := l.path("files")
	if err := makeFiles(dir); err != nil {
		return err
	}
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	if _, err := reg.Grant(ctx, guard.Grant{Root: rootName, Dir: names.Foreign(dir), Origin: "bench", Policy: guard.Policy{Rights: guard.ReadOnly}}); err != nil {
		return err
	}
	b := broker.New(broker.Config{Registry: reg, Tree: vfs.New(reg)})
	defer b.Close()
	ours, err := l.startBrokered(ctx, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.close()) }()
	peers := []filesPeer{ours}
	if len(rows) > 0 {
		if theirs, skip := l.startReference(ctx, dir); skip != nil {
			r.Skipped = append(r.Skipped, filesTheirs+": "+skip.Error())
		} else {
			defer func() { err = errors.Join(err, theirs.close()) }()
			peers = append(peers, theirs)
		}
	}
	for _, row := range rows {
		if err := l.filesRow(ctx, row, r, peers, span); err != nil {
			return err
		}
	}
	r.Files = rows
	if memory {
		r.FilesMemory, err = l.filesMemory(ctx, ours, requests)
	}
	return err
}

func (l *lab) filesRow(ctx context.Context, row *filesRow, r *report, peers []filesPeer, span time.Duration) error {
	for _, c := range filesCases {
		if c.name != row.Name {
			continue
		}
		c.load.Span = span
		for rep := range r.Repetitions {
			fmt.Fprintf(l.log, "bench: %4.0f s  %s %d/%d\n", time.Since(r.When).Seconds(), row.Name, rep+1, r.Repetitions)
			for i := range peers {
				which := (i + rep) % len(peers)
				out, err := peers[which].do(ctx, c.load)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					row.Broken = err.Error()
					return nil
				}
				if which == 0 {
					row.Ours, row.P99 = append(row.Ours, out.PerSecond), append(row.P99, out.P99)
				} else {
					row.Theirs = append(row.Theirs, out.PerSecond)
				}
			}
		}
	}
	return nil
}

// filesMemory reads a file many times. It takes the resident size of this process after a tenth of
// the reads, and after all of them.
func (l *lab) filesMemory(ctx context.Context, p filesPeer, requests int) (*filesMemory, error) {
	m := &filesMemory{Requests: requests}
	fmt.Fprintf(l.log, "bench: %s memory, %d requests\n", filesName, requests)
	part := load{Path: "1k", Bytes: 1 << 10, AtOnce: 32}
	for _, step := range []struct {
		count int
		to    *int64
	}{{requests / 10, &m.Before}, {requests - requests/10, &m.After}} {
		part.Count = step.count
		if _, err := p.do(ctx, part); err != nil {
			m.Broken = err.Error()
			return m, ctx.Err()
		}
		debug.FreeOSMemory() // live memory counts, not garbage
		var err error
		if *step.to, err = rss(os.Getpid()); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// startReference starts server-filesystem on dir.
func (l *lab) startReference(ctx context.Context, dir string) (*reference, error) {
	peers, err := files.InstallPeers(ctx)
	if err != nil {
		return nil, err
	}
	return newReference(ctx, peers.Server(ctx, "filesystem", io.Discard, dir), dir)
}

// makeFiles makes the files that the rows read and list.
func makeFiles(dir string) error {
	line := strings.Repeat("0123456789abcdef", 63) + "0123456789abcde\n" // 1 KiB of text
	contents := map[string]string{"1k": line, "1m": strings.Repeat(line, 1<<10)}
	for i := range 100 {
		contents[fmt.Sprintf("list/entry-%03d.txt", i)] = "x"
	}
	for name, text := range contents {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func judgeFiles(r *report) []outcome {
	var all []outcome
	for _, row := range r.Files {
		if row.Limit > 0 {
			all = append(all, judge(row.Name+", against "+filesTheirs, fmt.Sprintf("at least %.1f", row.Limit), row.ratio() > 0,
				fmt.Sprintf("%.2f", row.ratio()), row.ratio() >= row.Limit))
		}
		if row.Name == filesTailRow {
			all = append(all, judge(row.Name+", 99 of 100 within", fmt.Sprint(filesTailGoal), row.Broken == "" && len(row.P99) > 0,
				fmt.Sprint(row.p99().Round(10*time.Microsecond)), row.p99() <= filesTailGoal))
		}
	}
	if m := r.FilesMemory; m != nil {
		growth := 0.0
		if m.Before > 0 {
			growth = float64(m.After) / float64(m.Before)
		}
		all = append(all, judge(fmt.Sprintf("files memory, %d requests against a tenth of them", m.Requests), fmt.Sprintf("%.1f", filesGrowth),
			m.Broken == "" && growth > 0, fmt.Sprintf("%.2f", growth), growth <= filesGrowth))
	}
	return all
}

func (r *report) filesTable() string {
	if len(r.Files) == 0 && r.FilesMemory == nil {
		return ""
	}
	table := [][]string{{"files/* over stdio", "calls/s", filesTheirs, "times as fast", "99 of 100 within"}}
	for _, row := range r.Files {
		line := []string{row.Name, "BROKEN", "-", "-", "-"}
		if row.Broken == "" {
			line = []string{row.Name, fmt.Sprintf("%.0f", median(row.Ours)), "-", "-", fmt.Sprint(row.p99().Round(10 * time.Microsecond))}
			if row.ratio() > 0 {
				line[2], line[3] = fmt.Sprintf("%.0f", median(row.Theirs)), fmt.Sprintf("%.1f", row.ratio())
			}
		}
		table = append(table, line)
	}
	if m := r.FilesMemory; m != nil && m.Broken == "" {
		table = append(table, []string{fmt.Sprintf("files memory, %d requests", m.Requests),
			fmt.Sprintf("%.1f MiB", float64(m.After)/(1<<20)), "-", "-", fmt.Sprintf("%.1f MiB at a tenth", float64(m.Before)/(1<<20))})
	}
	return format(table)
}
