package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

// Exit codes.
const (
	exitOK     = 0
	exitBroken = 1 // something did not work, or a goal was missed under -strict
	exitUsage  = 2
	exitSignal = 130
)

// options are the command line.
type options struct {
	dir, size, rootsfs, bindfs, json, md string
	only, peers                          *regexp.Regexp
	n, memFiles                          int
	strict                               bool
	limit                                time.Duration
}

func main() {
	if ran, err := child(os.Args[1:]); ran {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitBroken)
		}
		return
	}
	opts, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		os.Exit(exitUsage)
	}
	os.Exit(run(opts, os.Stdout, os.Stderr))
}

// parse reads the command line. It prints errors to w.
func parse(args []string, w io.Writer) (options, error) {
	var o options
	o.only, o.peers = regexp.MustCompile(""), regexp.MustCompile("")
	pattern := func(to **regexp.Regexp) func(string) error {
		return func(s string) (err error) {
			*to, err = regexp.Compile(s)
			return err
		}
	}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(w)
	f.StringVar(&o.dir, "dir", "/var/tmp/rootsfs-bench", "work `directory`, kept between runs (about 600 MB, a million inodes)")
	f.StringVar(&o.size, "size", "full", "small or full; the goals are for full")
	f.StringVar(&o.rootsfs, "rootsfs", "", "rootsfs `program` (default: built from ./cmd/rootsfs of this module)")
	f.StringVar(&o.bindfs, "bindfs", "bindfs", "bindfs `program`")
	f.StringVar(&o.json, "json", "", "write every sample to this `file`")
	f.StringVar(&o.md, "md", "", "write the tables to this `file` too")
	f.Func("only", "measure only the rows that match `regexp`; the rows beside the workloads are revoke, memory, 'memory per root', 'memory per run', 'audit bytes', start, stage, repository, files, proxy, serve, network and secret", pattern(&o.only))
	f.Func("peers", "measure only the peers that match `regexp`, and native", pattern(&o.peers))
	f.IntVar(&o.n, "n", 5, "repetitions")
	f.IntVar(&o.memFiles, "memfiles", 0, "names of the memory row (default 100000 for small, 1000000 for full)")
	f.DurationVar(&o.limit, "limit", 6*time.Second,
		"repeat a workload no further on a peer that has used this long for it, unless a goal depends on the peer; 0 for no limit")
	f.BoolVar(&o.strict, "strict", false, "exit with 1 if a goal was missed")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 || o.n < 1 || o.memFiles < 0 || o.memFiles%namesPerDir != 0 {
		err := fmt.Errorf("bench: takes no arguments, -n at least 1, -memfiles a multiple of %d", namesPerDir)
		fmt.Fprintln(w, err)
		return o, err
	}
	return o, nil
}

// run measures and reports; the result is the exit code.
func run(o options, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	r, err := measureAll(ctx, o, stderr)
	if ctx.Err() != nil {
		fmt.Fprintln(stderr, "bench: interrupted")
		return exitSignal
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitBroken
	}
	tables := r.markdown()
	fmt.Fprint(stdout, tables)
	if o.md != "" {
		err = errors.Join(err, writeFile(o.md, []byte(tables)))
	}
	if o.json != "" {
		text, jsonErr := json.MarshalIndent(r, "", "\t")
		err = errors.Join(err, jsonErr, writeFile(o.json, append(text, '\n')))
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitBroken
	}
	if len(r.broken()) > 0 || o.strict && r.missed() {
		return exitBroken
	}
	return exitOK
}

func (r *report) missed() bool {
	for _, g := range r.Goals {
		if g.Status == missed {
			return true
		}
	}
	return false
}

// measureAll does everything between the command line and the tables, and leaves
// nothing running or mounted.
func measureAll(ctx context.Context, o options, stderr io.Writer) (r *report, err error) {
	size, err := sizesOf(o.size)
	if err != nil {
		return nil, err
	}
	if o.memFiles > 0 {
		size.MemFiles = o.memFiles
	}
	l, err := openLab(o.dir, size, stderr)
	if err != nil {
		return nil, err
	}
	l.limit = o.limit
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.findPrograms(ctx, o.rootsfs, o.bindfs); err != nil {
		return nil, err
	}
	r = &report{When: time.Now(), Machine: describeMachine(l.bindfsVersion), Size: size, Repetitions: o.n}
	if l.trace, err = newTracer(l.path("tracing")); err != nil {
		l.trace = nil
		r.Skipped = append(r.Skipped, fmt.Sprintf("FUSE requests: %v", err))
	}
	peers := r.choosePeers(l, o.peers)
	if err := l.rows(ctx, r, r.chooseWorkloads(o.only, l.root), peers); err != nil {
		return nil, err
	}
	if o.only.MatchString(turnsName) {
		if err := l.patternTurns(ctx, r, peers); err != nil {
			return nil, err
		}
	}
	if o.only.MatchString(revocationName) {
		if r.Revocations, err = l.revoke(ctx, peers, o.n); err != nil {
			return nil, err
		}
	}
	if o.only.MatchString(memoryName) {
		if r.Memory, err = l.memory(ctx, peers, size.MemFiles); err != nil {
			return nil, err
		}
	}
	if o.only.MatchString(startName) {
		if err := l.startRows(ctx, r); err != nil {
			return nil, err
		}
	}
	if o.only.MatchString(stageName) {
		if err := l.stageRows(ctx, r); err != nil {
			return nil, err
		}
	}
	if o.only.MatchString(repositoryName) {
		if err := l.repositoryRows(ctx, r); err != nil {
			return nil, err
		}
	}
	span := time.Second
	if size.Name != "full" {
		span = 100 * time.Millisecond
	}
	if err := l.filesRows(ctx, r, o.only, span, filesRequests); err != nil {
		return nil, err
	}
	if err := l.proxyRows(ctx, r, o.only, span); err != nil {
		return nil, err
	}
	if err := l.serveRows(ctx, r, o.only, span); err != nil {
		return nil, err
	}
	if err := l.secretRows(ctx, r, o.only); err != nil {
		return nil, err
	}
	if err := l.networkRows(ctx, r, o.only); err != nil {
		return nil, err
	}
	if err := l.footprintRows(ctx, r, o.only); err != nil {
		return nil, err
	}
	r.Goals = judgeGoals(r)
	fmt.Fprintf(stderr, "bench: %4.0f s in all\n", time.Since(r.When).Seconds())
	return r, nil
}

// choosePeers returns the wanted peers that can run. The report lists the wanted peers that
// cannot.
func (r *report) choosePeers(l *lab, wanted *regexp.Regexp) []peer {
	var peers []peer
	for _, p := range l.peers() {
		switch {
		case p.name != native && !wanted.MatchString(p.name):
		case p.skip != "":
			r.Skipped = append(r.Skipped, p.name+": "+p.skip)
		default:
			peers = append(peers, p)
			r.Peers = append(r.Peers, p.name)
		}
	}
	return peers
}
