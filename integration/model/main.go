package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"sync"
	"text/tabwriter"
	"time"
)

func main() {
	only := flag.String("only", "", "run only what this regular expression matches")
	limit := flag.Duration("limit", 10*time.Minute, "how long all may take")
	jobs := flag.Int("jobs", 2, "how many run at a time")
	flag.Parse()
	match, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "model: -only:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("all may take %v, see -limit", *limit))
	defer cancel()
	began := time.Now()
	outcomes := make([][]outcome, len(tables))
	searched, failed := 0, 0
	for i := range tables {
		for _, r := range tables[i].runs {
			if match.MatchString(r.name) {
				outcomes[i] = append(outcomes[i], outcome{run: r})
				searched++
			}
		}
	}
	searchAll(ctx, outcomes, *jobs)
	for i := range tables {
		failed += tables[i].print(os.Stdout, outcomes[i])
	}
	fmt.Printf("model: %d searched, %d failed; %v\n", searched, failed, time.Since(began).Round(time.Second))
	if failed > 0 || searched == 0 {
		os.Exit(1)
	}
}

// outcome is a run with its result.
type outcome struct {
	run
	result
	err error
}

// searchAll searches the runs of all tables. It searches up to jobs runs at a time, the small runs
// last. It sets the results in outcomes, which has a list for each table.
func searchAll(ctx context.Context, outcomes [][]outcome, jobs int) {
	type job struct {
		*table
		*outcome
	}
	next := make(chan job)
	var wg sync.WaitGroup
	for range jobs {
		wg.Go(func() {
			for j := range next {
				j.result, j.err = search(ctx, j.run, j.faulty)
				fmt.Fprintf(os.Stderr, "model: %s: %s\n", j.name, j.verdict(j.outcome))
			}
		})
	}
	for _, small := range []bool{false, true} {
		for i := range outcomes {
			for k := range outcomes[i] {
				if outcomes[i][k].small == small {
					next <- job{&tables[i], &outcomes[i][k]}
				}
			}
		}
	}
	close(next)
	wg.Wait()
}

const ok = "ok"

// verdict returns the flaw of an outcome, "ok" if the outcome has no flaw.
func (t *table) verdict(o *outcome) string {
	switch {
	case o.err != nil:
		return "FAILED: " + o.err.Error()
	case t.faulty && o.fault == "":
		return "FAILED: no counterexample"
	case !t.faulty && o.fault != "":
		return fmt.Sprintf("FAILED: %s, after %d steps", o.fault, o.trail)
	case !t.faulty && !o.exhaustive:
		return "FAILED: the search is not exhaustive"
	}
	return ok
}

// print prints a table and returns how many of its outcomes are wrong.
func (t *table) print(w io.Writer, outcomes []outcome) (failed int) {
	if len(outcomes) == 0 {
		return 0
	}
	fmt.Fprintf(w, "\n%s\n\n", t.title)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if t.faulty {
		fmt.Fprintln(tw, "change\tconfiguration\tsteps\tstates\tseconds\tfails\tverdict")
	} else {
		fmt.Fprintln(tw, "configuration\tproperties\tflags\tstates\tdepth\tseconds\tMiB\tsearch\tverdict")
	}
	for i := range outcomes {
		o := &outcomes[i]
		verdict := t.verdict(o)
		if verdict != ok {
			failed++
		}
		if t.faulty {
			fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t%.1f\t%.40s\t%s\n", o.name, o.configuration(), o.trail, o.states, o.took.Seconds(), o.fault, verdict)
			continue
		}
		how := "exhaustive"
		if !o.exhaustive {
			how = "not exhaustive"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%d\t%.1f\t%.0f\t%s\t%s\n", o.name, o.properties, o.configuration(), o.states, o.depth, o.took.Seconds(), o.memory, how, verdict)
	}
	_ = tw.Flush()
	return failed
}
