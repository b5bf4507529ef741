package main

import (
	"context"
	"path/filepath"
	"strings"
)

// phase is the state of the caches in which a pass is timed, or a step of the work rows.
type phase string

const (
	cold  phase = "cold" // timed once, after the caches were dropped
	warm  phase = "warm" // after work through the same mount has filled the caches
	plain phase = ""     // caches as they are: for workloads that write
)

// workload is a piece of work in one or more phases. Each phase is a row of the table.
type workload struct {
	name   string
	phases []phase // in the order they are run
	names  bool    // the work is about names rather than bytes
	// bytes returns how many bytes a pass moves. The native column then shows a speed. If bytes is
	// nil, the column shows a time.
	bytes func(sizes, phase) int64
	// programs that a pass runs. They are read back into memory before the clock of a cold
	// phase starts.
	programs []string
	// prepare runs through the mount first, before the clock starts; nil: nothing to prepare.
	prepare func(*job) error
	// warmUp fills the caches before the warm phase. If warmUp is nil, a pass does so. No pass is
	// needed if the cold phase has just run one.
	warmUp func(*job) error
	// confinable is true if the work is done by programs, which can run in a sandbox.
	confinable bool
	// once is true if a phase cannot be repeated in the same run.
	once bool
	// pass does the work once. It stops the clock during checks that are not part of the work, and
	// fails if the peer answered wrongly.
	pass func(*job) error
}

// row returns the name of the table's row for a phase.
func (w workload) row(p phase) string { return strings.TrimSpace(w.name + " " + string(p)) }

// job is one run of a workload on one peer.
type job struct {
	ctx     context.Context
	lab     *lab
	size    sizes
	dir     string // the source seen through the peer
	source  string // the source itself, for checks
	written string // the directory with the changes made through the peer: the source or an upper directory
	phase   phase
	pass    int      // counts the passes of this run
	worked  int      // how many of workSteps have been taken
	inside  *process // the peer that programs run in; nil: outside
	clock
}

// via returns a path seen through the peer, direct the same path in the source.
func (j *job) via(elem ...string) string {
	return filepath.Join(append([]string{j.dir}, elem...)...)
}

func (j *job) direct(elem ...string) string {
	return filepath.Join(append([]string{j.source}, elem...)...)
}

// result returns the path of a file that was written through the peer.
func (j *job) result(elem ...string) string {
	return filepath.Join(append([]string{j.written}, elem...)...)
}

// workloads returns the table of workloads, in the order of printing.
func workloads() []workload {
	both := []phase{cold, warm}
	return []workload{
		{name: "seq read 1M", phases: both, pass: seqRead, bytes: func(s sizes, _ phase) int64 { return s.SeqBytes }},
		{name: "rand read 4k", phases: both, pass: randRead, warmUp: readWholeRandFile,
			bytes: func(s sizes, p phase) int64 { return int64(randReads(s, p)) * block }},
		{name: "seq write 1M", phases: []phase{plain}, pass: seqWrite, bytes: func(s sizes, _ phase) int64 { return s.SeqBytes }},
		{name: "write 4k", phases: []phase{plain}, prepare: smallWrites, pass: smallWrites,
			bytes: func(s sizes, _ phase) int64 { return s.SmallBytes }},
		{name: "find+stat", names: true, phases: both, pass: findStat},
		{name: "du -s", names: true, phases: []phase{warm}, pass: du},
		{name: "creates", names: true, phases: []phase{plain}, pass: creates},
		{name: "git status", names: true, phases: both, programs: []string{"git"}, prepare: gitStatus, pass: gitStatus},
		{name: "tar", names: true, phases: both, programs: []string{"tar"}, pass: tar},
		{name: "cp -r", names: true, phases: []phase{plain}, pass: cpR},
		{name: "work", phases: workSteps, once: true, confinable: true, pass: work},
		{name: "work", phases: programPhases(), once: true, confinable: true, pass: programs},
	}
}
