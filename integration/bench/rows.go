package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// chooseWorkloads returns the workloads with those wanted phases that can be measured. The
// report lists the wanted phases that cannot.
func (r *report) chooseWorkloads(wanted *regexp.Regexp, mayDropCaches bool) []workload {
	var chosen []workload
	var needRoot []string
	for _, w := range workloads() {
		all := w.phases
		w.phases = nil
		for _, p := range all {
			switch {
			case !wanted.MatchString(w.row(p)):
			case p == cold && !mayDropCaches:
				needRoot = append(needRoot, w.row(p))
			case missingProgram(p) != "":
				r.Skipped = append(r.Skipped, w.row(p)+": "+missingProgram(p))
			default:
				w.phases = append(w.phases, p)
			}
		}
		if len(w.phases) > 0 {
			chosen = append(chosen, w)
		}
	}
	if len(needRoot) > 0 {
		r.Skipped = append(r.Skipped, "dropping caches needs root: "+strings.Join(needRoot, ", "))
	}
	return chosen
}

// rows measures all repetitions of one workload before it measures the next workload. The peers
// take turns inside a repetition.
func (l *lab) rows(ctx context.Context, r *report, chosen []workload, peers []peer) error {
	if len(chosen) == 0 {
		return nil
	}
	if err := l.prepareSource(ctx); err != nil {
		return err
	}
	for _, w := range chosen {
		rows := make([]*row, len(w.phases))
		for i, p := range w.phases {
			rows[i] = &row{Workload: w.row(p), Cells: map[string]*cell{}}
			if w.bytes != nil {
				rows[i].Bytes = w.bytes(l.size, p)
			}
		}
		r.Rows = append(r.Rows, rows...)
		used := map[string]time.Duration{}
		for rep := range r.Repetitions {
			fmt.Fprintf(l.log, "bench: %4.0f s  %s %d/%d\n", time.Since(r.When).Seconds(), w.name, rep+1, r.Repetitions)
			if err := l.round(ctx, w, rows, peers, rep, used); err != nil {
				return err
			}
		}
	}
	return l.emptyScratch()
}

// round runs one repetition of a workload on the peers. It leaves out peers that cannot do the
// workload, peers that broke in an earlier repetition of it, and peers without a goal that have
// used up l.limit for it. used holds the time of each peer. Only an interruption is an error.
func (l *lab) round(ctx context.Context, w workload, rows []*row, peers []peer, rep int, used map[string]time.Duration) error {
	for i := range peers {
		p := peers[turn(i, rep, len(peers))]
		if c := rows[0].Cells[p.name]; c != nil && c.Broken != "" || p.names && !w.names || p.inside && !w.confinable {
			continue
		}
		if l.limit > 0 && used[p.name] > l.limit && !inGoals(p.name) {
			continue
		}
		start := time.Now()
		samples, err := l.measure(ctx, w, p, rep == 0)
		used[p.name] += time.Since(start)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			fmt.Fprintf(l.log, "bench: %s on %s is broken: %v\n", w.name, p.name, err)
		}
		for i, row := range rows {
			row.add(p.name, samples, i, err)
		}
	}
	return nil
}

// turn returns which of n peers runs as the i-th in a repetition. The order rotates, and is
// reversed in every other repetition. If the order only rotated, each peer would always run after
// the same other peer, and be measured together with the disk writes that the other peer has left.
func turn(i, rep, n int) int {
	at := (i + rep/2) % n
	if rep%2 == 1 {
		at = n - 1 - at
	}
	return at
}

// add adds samples[i] of a run to the cell of a peer. If err is not nil, the cell is broken: a peer
// that broke in one phase of a run is broken in all phases.
func (r *row) add(peer string, samples []sample, i int, err error) {
	c := r.Cells[peer]
	if c == nil {
		c = &cell{}
		r.Cells[peer] = c
	}
	if err != nil {
		c.Broken = err.Error()
		return
	}
	c.Seconds = append(c.Seconds, samples[i].seconds)
	if samples[i].daemon > 0 {
		c.Daemon = append(c.Daemon, samples[i].daemon)
	}
	if samples[i].requests != nil {
		c.Requests = samples[i].requests
	}
}
