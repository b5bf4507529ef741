package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"time"

	"github.com/rootsfs/rootsfs/integration/files"
	"github.com/rootsfs/rootsfs/integration/proxy"
)

// childProxy is the mode in which this program runs a server behind the proxy. The first argument
// is the directory of the server's root; the others are the server's command line.
const childProxy = "child-proxy"

// proxyCases are the rows. In rows with many calls at a time or many bytes, the proxy
// must leave proxyShare of the throughput. In proxyDelayRow it may add proxyDelay to
// the median call. That row has no goal for throughput: with one call at a time,
// throughput is the reciprocal of the time of a call, and proxyDelay alone would be a
// third of that time. The table shows the throughput of all rows.
var proxyCases = []struct {
	name string
	load load
}{
	{"proxy read 1 KB, 1 at a time", load{Path: "1k", Bytes: 1 << 10, AtOnce: 1}},
	{"proxy read 1 KB, 32 at a time", load{Path: "1k", Bytes: 1 << 10, AtOnce: 32}},
	{"proxy read 1 MB, 1 at a time", load{Path: "1m", Bytes: 1 << 20, AtOnce: 1}},
	{"proxy list 100, 32 at a time", load{Path: "list", Entries: 100, AtOnce: 32}},
}

const (
	proxyShare    = 0.9
	proxyDelay    = 200 * time.Microsecond
	proxyDelayRow = "proxy read 1 KB, 1 at a time"
)

// proxyTurns is the number of turns in a repetition. In each turn the server is measured with the
// proxy and without, each for a tenth of the repetition's time. The speed of a machine that others
// use changes fourfold from one second to the next (measured), so only neighbours in time can be
// compared.
const proxyTurns = 10

// proxyRow is one case. The samples are one per turn: those with the same index are neighbours in
// time.
type proxyRow struct {
	Name    string          `json:"name"`
	With    []float64       `json:"perSecond"`
	Without []float64       `json:"withoutPerSecond"`
	Medians []time.Duration `json:"median"`
	Plain   []time.Duration `json:"withoutMedian"`
	Broken  string          `json:"broken,omitempty"`
}

func (r *proxyRow) measured() bool { return r.Broken == "" && len(r.With) > 0 && len(r.Without) > 0 }

// share returns how much of the throughput is left: the median of the turns.
func (r *proxyRow) share() float64 { return medianRatio(r.With, r.Without) }

// delay returns the time that the proxy adds to a call: the median of the turns.
func (r *proxyRow) delay() time.Duration {
	all := make([]float64, len(r.Medians))
	for i := range all {
		all[i] = float64(r.Medians[i] - r.Plain[i])
	}
	return time.Duration(median(all))
}

// serveProxy is the process of childProxy.
func serveProxy(dir string, command []string) error {
	return proxy.Serve(context.Background(), proxy.Config{Roots: []proxy.Root{{Name: rootName, Mode: "ro", Dir: dir}}, Command: command})
}

// proxyRows measures the wanted rows. If server-filesystem cannot be installed, proxyRows measures
// nothing, and the report says why.
func (l *lab) proxyRows(ctx context.Context, r *report, wanted *regexp.Regexp, span time.Duration) (err error) {
	for _, c := range proxyCases {
		if wanted.MatchString(c.name) {
			r.Proxy = append(r.Proxy, &proxyRow{Name: c.name})
		}
	}
	if len(r.Proxy) == 0 {
		return nil
	}
	dir := l.path("files")
	if err := makeFiles(dir); err != nil {
		return err
	}
	peers, err := files.InstallPeers(ctx)
	if err != nil {
		r.Skipped, r.Proxy = append(r.Skipped, "proxy: "+err.Error()), nil
		return nil //nolint:nilerr // it is in the report
	}
	server := peers.Server(ctx, "filesystem", io.Discard, dir)
	plain, err := newReference(ctx, server, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plain.close()) }()
	with, err := newReference(ctx, exec.CommandContext(ctx, l.self, append([]string{childProxy, dir}, server.Args...)...), dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, with.close()) }()
	for _, row := range r.Proxy {
		if err := l.proxyRow(ctx, row, r, with, plain, span); err != nil {
			return err
		}
	}
	return nil
}

// proxyRow repeats one case, in turns with the proxy and without. A failure in a turn breaks the
// row.
func (l *lab) proxyRow(ctx context.Context, row *proxyRow, r *report, with, plain filesPeer, span time.Duration) error {
	for _, c := range proxyCases {
		if c.name != row.Name {
			continue
		}
		c.load.Span = span / proxyTurns
		for turn := range r.Repetitions * proxyTurns {
			if turn%proxyTurns == 0 {
				fmt.Fprintf(l.log, "bench: %4.0f s  %s %d/%d\n", time.Since(r.When).Seconds(), row.Name, turn/proxyTurns+1, r.Repetitions)
			}
			if err := row.turn(ctx, c.load, turn, with, plain); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				row.Broken = err.Error()
				return nil
			}
		}
	}
	return nil
}

// turn measures both peers, one after the other. The peer that is first in one turn is second in
// the next.
func (r *proxyRow) turn(ctx context.Context, work load, n int, with, plain filesPeer) error {
	for i := range 2 {
		peer, perSecond, medians := with, &r.With, &r.Medians
		if (i+n)%2 == 1 {
			peer, perSecond, medians = plain, &r.Without, &r.Plain
		}
		out, err := peer.do(ctx, work)
		if err != nil {
			return err
		}
		*perSecond, *medians = append(*perSecond, out.PerSecond), append(*medians, out.Median)
	}
	return nil
}

func judgeProxy(r *report) []outcome {
	var all []outcome
	for _, row := range r.Proxy {
		ok := row.measured()
		share, delay := 0.0, time.Duration(0)
		if ok {
			share, delay = row.share(), row.delay()
		}
		if row.Name == proxyDelayRow {
			all = append(all, judge(row.Name+", added to the median", fmt.Sprint(proxyDelay), ok,
				fmt.Sprint(delay.Round(time.Microsecond)), delay <= proxyDelay))
			continue
		}
		all = append(all, judge(row.Name+", throughput against none", fmt.Sprintf("at least %.2f", proxyShare), ok,
			fmt.Sprintf("%.2f", share), share >= proxyShare))
	}
	return all
}

func (r *report) proxyTable() string {
	if len(r.Proxy) == 0 {
		return ""
	}
	table := [][]string{{"server-filesystem over stdio", "calls/s", "without the proxy", "share", "added to the median"}}
	for _, row := range r.Proxy {
		line := []string{row.Name, "BROKEN", "-", "-", "-"}
		if row.measured() {
			line = []string{row.Name, fmt.Sprintf("%.0f", median(row.With)), fmt.Sprintf("%.0f", median(row.Without)),
				fmt.Sprintf("%.2f", row.share()), fmt.Sprint(row.delay().Round(time.Microsecond))}
		}
		table = append(table, line)
	}
	return format(table)
}
