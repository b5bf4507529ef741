package main

import (
	"context"
	"path/filepath"
)

// workload is one row of the table.
type workload struct {
	name string
	// bytes per pass, where the native column is better read as a speed.
	bytes func(sizes) int64
	cold  bool // timed once after the caches were dropped
	// programs that a cold pass runs, read back into memory before the clock starts.
	programs []string
	// prepare runs through the mount with the clock not started, nil for none. A
	// warm row gets one more pass after it as warm-up.
	prepare func(*job) error
	// pass does the work once. It stops the clock around checks that are not part
	// of it, and fails if the peer answered wrongly.
	pass func(*job) error
}

// job is one run of a workload on one peer.
type job struct {
	ctx    context.Context
	lab    *lab
	size   sizes
	dir    string // the source seen through the peer
	source string // the source itself, for checks
	cold   bool
	pass   int // counts the passes of this run
	clock
}

// via returns a path seen through the peer, direct the same path in the source.
func (j *job) via(elem ...string) string {
	return filepath.Join(append([]string{j.dir}, elem...)...)
}

func (j *job) direct(elem ...string) string {
	return filepath.Join(append([]string{j.source}, elem...)...)
}

// workloads is the table of rows, in the order they are printed.
func workloads() []workload {
	return []workload{
		{name: "seq read 1M cold", cold: true, pass: seqRead, bytes: func(s sizes) int64 { return s.SeqBytes }},
		{name: "seq read 1M warm", pass: seqRead, bytes: func(s sizes) int64 { return s.SeqBytes }},
		{name: "rand read 4k cold", cold: true, pass: randRead, bytes: func(s sizes) int64 { return int64(s.RandReads/4) * block }},
		{name: "rand read 4k warm", pass: randRead, bytes: func(s sizes) int64 { return int64(s.RandReads) * block },
			prepare: readWholeRandFile},
		{name: "seq write 1M", pass: seqWrite, bytes: func(s sizes) int64 { return s.SeqBytes }},
		{name: "write 4k", pass: smallWrites, bytes: func(s sizes) int64 { return s.SmallBytes }},
		{name: "find+stat cold", cold: true, pass: findStat},
		{name: "find+stat warm", pass: findStat},
		{name: "du -s warm", pass: du},
		{name: "creates", pass: creates},
		{name: "git status cold", cold: true, programs: []string{"git"}, prepare: gitStatus, pass: gitStatus},
		{name: "git status warm", prepare: gitStatus, pass: gitStatus},
		{name: "tar cold", cold: true, programs: []string{"tar"}, pass: tar},
		{name: "tar warm", pass: tar},
		{name: "cp -r", pass: cpR},
	}
}
