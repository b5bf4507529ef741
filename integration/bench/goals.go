package main

import (
	"fmt"
	"slices"
	"strings"
)

// Names of peers. inGoals reports whether any goal depends on a peer.
const (
	audit  = "rootsfs-audit"
	maxLvl = "rootsfs-max"
	// auditPlain is audit with --transport plain: the daemon reads /dev/fuse. The default
	// transport is FUSE over io_uring.
	auditPlain = "audit-plain"
	tuned      = "bindfs-tuned"
	// staged is audit with a staged root. overlay and fuseOverlay are other file systems that
	// keep changes apart from the source.
	staged, overlay, fuseOverlay = "rootsfs-stage", "overlayfs", "fuse-overlayfs"
	// noPatterns is audit without any pattern. manyPatterns is audit with fifty patterns besides
	// the built-in ones.
	noPatterns, manyPatterns = "patterns-0", "patterns-50"
)

// goals has the greatest permitted slowdown of a peer against native. A workload here is the name
// of a row. The limits hold for -size full only.
var goals = []struct {
	workload, peer string
	limit          float64
}{
	{"rand read 4k warm", audit, 1.3},
	{"seq read 1M warm", audit, 1.6},
	{"seq read 1M cold", audit, 1.1},
	{"seq write 1M", audit, 1.3},
	{"find+stat warm", audit, 2.2},
	{"du -s warm", audit, 1.5},
	{"git status cold", audit, 2.5},
	{"git status warm", audit, 2},
	{"creates", audit, 1.5},
	{"work tar x", audit, 1.3},
	{"work git add", audit, 1.4},
	{"work git commit", audit, 1.7},
	{"work git status", audit, 1.5},
	{"work du -s", audit, 1.5},
	{"work rm -rf", audit, 2.5},
	{"tar warm", audit, 2.5},
	{"tar warm", maxLvl, 1.5},
}

// inGoals reports whether any goal depends on a peer.
func inGoals(peer string) bool {
	return slices.Contains([]string{native, audit, staged, maxLvl, tuned, inRun, noPatterns, manyPatterns}, peer)
}

const (
	revocationGoal = 0.100 // seconds, with --cache audit and the smaller number of sizes.Inodes
	memoryGoal     = 1.3   // resident memory of audit, as a multiple of that of bareNodes
	patternsGoal   = 1.1   // time with fifty patterns, as a multiple of the time without any
	runGoal        = 1.1   // time in rootsfs run, as a multiple of the time through rootsfs mount
	// workAhead is the goal for the steps on the unpacked tree: bindfs-tuned has to take more than
	// workAhead times as long as audit.
	workAhead = 1.5
)

// status is the result of a goal.
type status string

const (
	met         status = "met"
	missed      status = "MISSED"
	notMeasured status = "not measured"
)

// outcome is one goal, with what was measured and the result.
type outcome struct {
	Goal     string `json:"goal"`
	Limit    string `json:"limit"`
	Measured string `json:"measured"`
	Status   status `json:"status"`
}

// judge returns the outcome of a goal. measured is the text of the measurement, if isMeasured.
func judge(goal, limit string, isMeasured bool, measured string, isMet bool) outcome {
	switch {
	case !isMeasured:
		return outcome{goal, limit, "-", notMeasured}
	case isMet:
		return outcome{goal, limit, measured, met}
	}
	return outcome{goal, limit, measured, missed}
}

// judgeGoals returns the outcomes of the goals whose rows are in the report. It leaves out a goal
// that compares two rootsfs peers on a row if one of the two has no result.
func judgeGoals(r *report) []outcome {
	var all []outcome
	for _, g := range goals {
		row := r.row(g.workload)
		if row == nil {
			continue
		}
		ratio, ok := row.ratio(g.peer)
		all = append(all, judge(g.workload+", "+g.peer, fmt.Sprintf("%.1f", g.limit), ok,
			fmt.Sprintf("%.2f", ratio), ratio <= g.limit))
	}
	for _, row := range r.Rows {
		ours, ok1 := row.ratio(audit)
		theirs, ok2 := row.ratio(tuned)
		limit := "-"
		if row.isWorkStep() {
			theirs /= workAhead
		}
		if ok2 {
			limit = fmt.Sprintf("%.2f", theirs)
		}
		all = append(all, judge(row.Workload+", "+audit+" ahead of "+tuned, limit, ok1 && ok2, fmt.Sprintf("%.2f", ours), ours < theirs))
		if inside, ok := row.ratio(inRun); ok && ok1 {
			all = append(all, judge(row.Workload+", "+inRun+" against "+audit, fmt.Sprintf("%.1f", runGoal), true,
				fmt.Sprintf("%.2f", inside/ours), inside/ours <= runGoal))
		}
	}
	for _, judgeRows := range []func(*report) []outcome{
		judgePatterns, judgeFootprints, judgeRevocation, judgeMemory, judgeFiles, judgeStart, judgeStage, judgeProxy, judgeServe, judgeNetwork, judgeSecret,
	} {
		all = append(all, judgeRows(r)...)
	}
	return all
}

// isWorkStep reports whether a row is a step on the unpacked tree. (The other work rows are
// programs that use the processor more than files.)
func (r *row) isWorkStep() bool {
	name, ok := strings.CutPrefix(r.Workload, "work ")
	return ok && slices.Contains(workSteps, phase(name))
}

// judgePatterns compares fifty patterns with none, on the rows that have both. For the row that
// was measured in turns, it compares the turns.
func judgePatterns(r *report) []outcome {
	var all []outcome
	for _, row := range r.Rows {
		many, ok1 := row.ratio(manyPatterns)
		none, ok2 := row.ratio(noPatterns)
		if !ok1 || !ok2 {
			continue
		}
		cost := many / none
		if row.Workload == turnsName && r.Turns.measured() {
			cost = r.Turns.ratio()
		}
		all = append(all, judge(row.Workload+", 50 patterns against none", fmt.Sprintf("%.1f", patternsGoal), true,
			fmt.Sprintf("%.2f", cost), cost <= patternsGoal))
	}
	return all
}

func judgeRevocation(r *report) []outcome {
	i := slices.IndexFunc(r.Revocations, func(v *revocation) bool { return v.Peer == audit })
	if i < 0 {
		return nil
	}
	v := r.Revocations[i] // the row with fewer inodes comes first
	seconds := median(v.Seconds)
	goal := fmt.Sprintf("revoke, %d inodes, %d open and mapped, %s", v.Inodes, v.Handles, audit)
	return []outcome{judge(goal, fmt.Sprintf("%.0f ms", revocationGoal*1e3), v.Broken == "" && len(v.Seconds) > 0,
		fmt.Sprintf("%.0f ms", seconds*1e3), seconds <= revocationGoal)}
}

func judgeMemory(r *report) []outcome {
	var bare *memory
	var all []outcome
	for _, m := range r.Memory {
		if m.Peer == bareNodes {
			bare = m
		}
	}
	for _, m := range r.Memory {
		if m.Peer != audit || bare == nil {
			continue
		}
		ok := bare.RSS > 0 && m.RSS > 0
		ratio := 0.0
		if ok {
			ratio = float64(m.RSS) / float64(bare.RSS)
		}
		all = append(all, judge(fmt.Sprintf("memory, %d files, %s against %s", m.Files, audit, bareNodes),
			fmt.Sprintf("%.1f", memoryGoal), ok, fmt.Sprintf("%.2f", ratio), ratio <= memoryGoal))
	}
	return all
}
