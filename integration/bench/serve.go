package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/files"
)

// The rows of `rootsfs serve` are calls of tools that server-filesystem has, too. Both servers
// have the same files and run over stdio. This process calls them in turns and in the same way
// (see lineHost).

// serveCase is one call, repeated.
type serveCase struct {
	name   string
	tool   string
	dir    string // below the work directory
	file   string // in it; "": the directory itself
	args   map[string]any
	least  int     // least bytes of the text in the answer
	atOnce int     // calls at a time
	limit  float64 // goal: at least this many times as fast as server-filesystem
}

// serveCases returns the rows. In other sizes than full the trees are a tenth as large.
func serveCases(full bool) []serveCase {
	tree, search := 20_000, 50_000
	if !full {
		tree, search = tree/10, search/10
	}
	return []serveCase{
		{"serve read_text_file 1 KB, 1 at a time", "read_text_file", "files", "1k", nil, 1 << 10, 1, 2},
		{"serve read_text_file 1 KB, 32 at a time", "read_text_file", "files", "1k", nil, 1 << 10, 32, 2},
		{"serve read_text_file 1 MB, 1 at a time", "read_text_file", "files", "1m", nil, 1 << 20, 1, 3},
		{"serve read_text_file 1 MB, 32 at a time", "read_text_file", "files", "1m", nil, 1 << 20, 32, 3},
		{fmt.Sprintf("serve directory_tree of %d files", tree), "directory_tree", fmt.Sprintf("serve-%d", tree), "", nil, tree * 40, 1, 5},
		{fmt.Sprintf("serve search_files over %d", search), "search_files", fmt.Sprintf("serve-%d", search), "", map[string]any{"pattern": "**/*-7.txt"}, search / 100 * 10, 1, 5},
	}
}

// chooseServe returns the rows that are wanted.
func chooseServe(wanted *regexp.Regexp, full bool) (cases []serveCase) {
	for _, c := range serveCases(full) {
		if wanted.MatchString(c.name) {
			cases = append(cases, c)
		}
	}
	return cases
}

// serveRows measures the chosen rows. If server-filesystem cannot be installed, it measures
// nothing, and the report lists the rows as skipped.
func (l *lab) serveRows(ctx context.Context, r *report, wanted *regexp.Regexp, span time.Duration) error {
	cases := chooseServe(wanted, r.Size.Name == "full")
	if len(cases) == 0 {
		return nil
	}
	peers, err := files.InstallPeers(ctx)
	if err != nil {
		r.Skipped = append(r.Skipped, "serve: "+err.Error())
		return nil //nolint:nilerr // it is in the report
	}
	if err := makeFiles(l.path("files")); err != nil {
		return err
	}
	for _, c := range cases {
		if err := makeMany(l.path(c.dir), c.dir); err != nil {
			return err
		}
		row := &filesRow{Name: c.name, Limit: c.limit}
		r.Serve = append(r.Serve, row)
		if err := l.serveRow(ctx, row, r, &c, peers, span); err != nil {
			return err
		}
	}
	return nil
}

// serveRow starts both servers on one directory and measures one row.
func (l *lab) serveRow(ctx context.Context, row *filesRow, r *report, c *serveCase, peers *files.Peers, span time.Duration) (err error) {
	dir := l.path(c.dir)
	serve := exec.CommandContext(ctx, l.rootsfs, "serve", "--root", rootName+"="+dir)
	env, err := l.privateHome("serve")
	if err != nil {
		return err
	}
	serve.Env = append(os.Environ(), env...)
	var both []*lineHost
	for _, cmd := range []*exec.Cmd{serve, peers.Server(ctx, "filesystem", io.Discard, dir)} {
		p, err := newLineHost(ctx, cmd)
		if err != nil {
			row.Broken = err.Error()
			break
		}
		both = append(both, p)
	}
	defer func() {
		for _, p := range both {
			err = errors.Join(err, p.close())
		}
	}()
	for rep := 0; rep < r.Repetitions && row.Broken == ""; rep++ {
		fmt.Fprintf(l.log, "bench: %4.0f s  %s %d/%d\n", time.Since(r.When).Seconds(), row.Name, rep+1, r.Repetitions)
		for i := range both {
			which := (i + rep) % len(both)
			out, err := both[which].callTool(ctx, dir, c, load{AtOnce: c.atOnce, Span: span})
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				row.Broken = err.Error()
				break
			}
			if which == 0 {
				row.Ours, row.P99 = append(row.Ours, out.PerSecond), append(row.P99, out.P99)
			} else {
				row.Theirs = append(row.Theirs, out.PerSecond)
			}
		}
	}
	return nil
}

// arguments returns the arguments of the call, with the path of c.file in dir.
func (c *serveCase) arguments(dir string) map[string]any {
	args := map[string]any{"path": filepath.Join(dir, c.file)}
	maps.Copy(args, c.args)
	return args
}

// makeMany makes a tree of N files in dir, a hundred in a directory, if name is serve-N and dir
// does not exist. For any other name it does nothing.
func makeMany(dir, name string) error {
	var n int
	if _, err := fmt.Sscanf(name, "serve-%d", &n); err != nil {
		return nil //nolint:nilerr // another directory
	}
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	temp := dir + ".new"
	if err := os.RemoveAll(temp); err != nil { // of a run that was interrupted
		return err
	}
	for i := range n {
		sub := filepath.Join(temp, fmt.Sprintf("d%02d", i/10_000), fmt.Sprintf("e%02d", i/100%100))
		if i%100 == 0 {
			if err := os.MkdirAll(sub, 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("file-%d.txt", i%100)), []byte("x"), 0o644); err != nil {
			return err
		}
	}
	return os.Rename(temp, dir)
}

func judgeServe(r *report) []outcome {
	var all []outcome
	for _, row := range r.Serve {
		all = append(all, judge(row.Name+", against "+filesTheirs, fmt.Sprintf("at least %.1f", row.Limit), row.ratio() > 0,
			fmt.Sprintf("%.2f", row.ratio()), row.ratio() >= row.Limit))
	}
	return all
}

func (r *report) serveTable() string {
	if len(r.Serve) == 0 {
		return ""
	}
	table := [][]string{{"rootsfs serve over stdio", "calls/s", filesTheirs, "times as fast", "99 of 100 within"}}
	for _, row := range r.Serve {
		line := []string{row.Name, "BROKEN", "-", "-", "-"}
		if row.Broken == "" {
			line = []string{row.Name, fmt.Sprintf("%.1f", median(row.Ours)), fmt.Sprintf("%.1f", median(row.Theirs)),
				fmt.Sprintf("%.1f", row.ratio()), fmt.Sprint(row.p99().Round(10 * time.Microsecond))}
		}
		table = append(table, line)
	}
	return format(table)
}

// overlayUpper is the upper directory of an overlay below XDG_STATE_HOME.
const overlayUpper = "overlay/upper"

// serveOverlay mounts an overlay of source at mnt, with the kernel's overlayfs or with
// fuse-overlayfs. The overlay stores changes in overlayUpper, apart from source. serveOverlay
// unmounts it on SIGTERM or SIGINT.
func serveOverlay(peer, source, mnt string) error {
	upper := filepath.Join(os.Getenv("XDG_STATE_HOME"), overlayUpper)
	work := filepath.Join(filepath.Dir(upper), "work")
	if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755)); err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", source, upper, work)
	if peer == overlay {
		if err := unix.Mount("overlay", mnt, "overlay", 0, options); err != nil {
			return fmt.Errorf("mount an overlay: %w", err)
		}
	} else if out, err := exec.Command(fuseOverlay, "-o", options, mnt).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", fuseOverlay, err, out)
	}
	fmt.Println("mounted")
	<-stop
	return unix.Unmount(mnt, unix.MNT_DETACH)
}
