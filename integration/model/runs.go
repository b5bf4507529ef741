package main

import "strings"

// run is one configuration of a model.
type run struct {
	name       string
	file       string
	flags      []string // defined for the preprocessor
	properties string   // see the package comment
	small      bool     // so few states that optimizing the search takes longer than searching
}

// configuration returns the run's file and flags.
func (r *run) configuration() string {
	return strings.TrimSpace(strings.TrimSuffix(r.file, ".pml") + " " + strings.Join(r.flags, " "))
}

// table is a list of runs with the same expected result.
type table struct {
	title string
	// faulty reports whether the models are wrong, so that Spin has to find a counterexample.
	faulty bool
	runs   []run
}

func mount(properties, name, flags string) run {
	return run{name, "mount.pml", strings.Fields(flags), properties, false}
}

func tree(properties, name, flags string) run {
	return run{name, "tree.pml", strings.Fields(flags), properties, false}
}

func answers(properties, name, flags string) run {
	return run{name, "answers.pml", strings.Fields(flags), properties, true}
}

func lease(properties, name, flags string) run {
	return run{name, "lease.pml", strings.Fields(flags), properties, true}
}

func orders(properties, name, flags string) run {
	return run{name, "orders.pml", strings.Fields(flags), properties, false}
}

func stage(properties, name, flags string) run {
	return run{name, "stage.pml", strings.Fields(flags), properties, true}
}

// small returns r marked as small. It is for a run of fewer than a million states.
func small(r run) run {
	r.small = true
	return r
}

// Flags that several runs share.
const (
	again     = "PAGES RO REGRANT REVAL WARM LEAN NU=2"
	meanwhile = "PAGES RO REGRANT MEANWHILE WARM LEAN NU=2"
	plain     = "LIST PATTERNS PLAIN"
	widened   = "PAGES DISPLACE NARROW WIDEN"
)

// tables lists all runs.
var tables = []table{{
	title: "The order of the code: each configuration holds",
	runs: []run{
		mount("P1 P2 P3", "pages, mappings, writes, two programs", "PAGES NU=2"),
		mount("P1 P4", "granted again meanwhile", meanwhile),
		mount("P1 P4", "granted again, looked up without a lock", again),
		mount("P3 P5", "stores while read-only, then read-write", widened),
		mount("P3 P5", "read-only, read-write, read-only", "PAGES NARROW WIDEN"),
		mount("P1 P3 P4", "granted again", "PAGES REGRANT"),
		mount("P1 P3 P6", "names, attributes, two programs", "NAMES NU=2"),
		mount("P1 P3 P6", "directory lists, two programs", "LIST NU=2"),
		tree("P1 P2 P3", "a source that hangs, two operations", "REMOTE"),
		tree("P1 P3 P7", "a watch", "WATCH"),
		tree("P1 P2 P3 P4", "a consent answered while the root ends", "MEANWHILE"),
		tree("P1 P2 P3 P4", "granted again; uploads and open files", "REGRANT"),
		tree("P1 P2 P3 P5", "read-only, read-write, read-only", "NARROW WIDEN TWICE"),
		tree("P1 P2 P3", "a nested root ends", "NESTED"),
		tree("P1 P2 P3", "a local source that hangs", "DEADLINE"),
		tree("P1 P2 P3", "hanging roots in each other end at the same time", "NESTED CROSSWISE REMOTE DEADLINE NW=1"),
		small(tree("P1 P2 P3", "a source that hangs for longer than the deadline", "REMOTE DEADLINE NW=1")),
		small(tree("P1 P2 P3 P5", "the same, read-only, read-write, read-only", "REMOTE DEADLINE NARROW WIDEN TWICE NW=1")),
		small(tree("P1 P2 P3", "the same, a nested root ends", "NESTED REMOTE DEADLINE NW=1")),
		small(tree("P1 P2 P3", "the same, one call ends a root and the root around", "NESTED TOGETHER REMOTE DEADLINE NW=1")),
		small(tree("P1 P2 P3", "roots in each other end at the same time", "NESTED CROSSWISE REMOTE NW=1")),
		answers("P3 P8", "answers that wait for a peer that does not read", ""),
		answers("P3 P8", "the same, granted again", "REGRANT"),
		answers("P3 P5 P8", "the same, less may be read", "NARROW REGRANT"),
		stage("P3 P9", "descriptors that move to a copy", "SWAP"),
		stage("P3 P10", "a file is replaced beside its owner's edits, with two kills", "APPLY"),
		stage("P3 P10", "the same, with a trash", "APPLY TRASH"),
		stage("P3 P10", "a file is removed beside its owner's edits, with two kills", "APPLY REMOVE"),
		stage("P11", "four changes of two names, killed anywhere", "NAMES"),
		stage("P3 P12", "two checkpoints of a file that two programs write", "FREEZE"),
		lease("P13", "a lease, and a revocation on a bus that loses messages", ""),
		lease("P13", "the same, two keepers", "NK=2"),
		orders("P14", "two owners, three keepers, one restored from a copy", ""),
		small(tree("P1 P2 P3", "a copy of several calls", "COPYUP REMOTE NW=1")),
		small(mount("P3 P5", "hidden by a pattern", "LIST PATTERNS")),
		small(mount("P3 P5", "the same, lists without attributes", plain)),
		small(mount("P1 P3", "a nested root's name in a listing", "NESTED")),
		small(mount("P1 P3 P6", "FORGET against a look-up", "NAMES FORGET")),
		small(mount("P1 P3 P6", "an inode number used again", "NAMES DISPLACE")),
		small(mount("P1 P3 P6", "names, attributes", "NAMES")),
	},
}, {
	title:  "Mutations: each has a counterexample",
	faulty: true,
	runs: []run{
		mount("", "a view replaces one of a newer lifetime (F1)", again+" M_OLDVIEW"),
		mount("", "a view replaces one whose lifetime is ending", meanwhile+" M_ONEVIEW"),
		mount("", "open files keep their node when narrowed", widened+" M_NOORPHAN"),
		mount("", "pages of orphans are written", widened+" M_ORPHANWRITES"),
		small(tree("", "the lease is asked once, before all calls (F2)", "REMOTE NW=1 M_NOASK")),
		small(tree("", "calls are not counted (F2)", "REMOTE NW=1 M_NOCOUNT")),
		small(tree("", "the lease is asked, then the call is counted", "REMOTE NW=1 M_ASKFIRST")),
		small(tree("", "calls are not waited for", "REMOTE NW=1 M_NOSETTLE")),
		small(tree("", "operations waited for in vain are not cut", "DEADLINE NW=1 M_NOCUT")),
		small(tree("", "a nested root is not asked", "NESTED DEADLINE NW=1 M_ASKOUTER")),
		small(mount("", "a request belongs to its last view only (F3)", "NESTED M_LASTVIEW")),
		small(mount("", "no directories in the second round", plain+" M_NODIRS")),
		small(mount("", "only directories with known names are waited for", plain+" M_KNOWNNAMES")),
		small(tree("", "an ending waits for the whole of the other", "NESTED CROSSWISE NW=1 M_WAITWHOLE")),
		small(tree("", "an answer counts in the root around only", "NESTED CROSSWISE REMOTE DEADLINE NW=1 M_UNCROSSEARLY")),
		small(tree("", "calls are not waited for, both roots end", "NESTED TOGETHER REMOTE NW=1 M_NOSETTLE")),
		small(tree("", "state tested before counting", "NW=1 M_STATEFIRST")),
		small(tree("", "generation not read again", "NARROW WIDEN TWICE NW=1 M_NOREREAD")),
		small(tree("", "policy read before counting", "NARROW NW=1 M_POLICYFIRST")),
		small(tree("", "no drain of operations", "NW=1 M_NODRAIN")),
		small(tree("", "an upload goes by the root's name", "REGRANT NW=1 M_BYNAME")),
		small(tree("", "the end of a watch is not waited for", "WATCH NW=1 M_NOWATCHWAIT")),
		answers("", "no second look at an answer", "M_NOSECONDLOOK"),
		answers("", "a second look before the first piece only", "M_FIRSTPIECEONLY"),
		answers("", "an answer is stamped when it has been read", "REGRANT M_STAMPLATE"),
		answers("", "a narrowing is counted before it is in force", "NARROW M_COUNTFIRST"),
		stage("", "a descriptor is closed, then untracked", "SWAP M_UNTRACKLATE"),
		stage("", "the copy is looked for without the lock", "SWAP M_LOOKEARLY"),
		stage("", "what came out is not looked at", "APPLY M_NOLOOK"),
		stage("", "the lease is not asked again", "APPLY M_NOLEASE"),
		stage("", "the same, of a removal", "APPLY REMOVE M_NOLEASE"),
		stage("", "the new file is removed though the owner has written to it", "APPLY M_NOUSE"),
		stage("", "the same, after a kill", "APPLY M_OURSAGAIN"),
		stage("", "the old file is removed after a kill though the owner has it open", "APPLY M_NOHOLD"),
		stage("", "the journal cleans what is on its way", "APPLY M_CLEANS"),
		stage("", "a file is found free without the lock, and believed later", "FREEZE M_THAWEDEARLY"),
		stage("", "a file is free before its object is a copy", "FREEZE M_DROPFIRST"),
		stage("", "a program writes without the lock", "FREEZE M_NOLOCK"),
		stage("", "a name is removed, then recorded", "NAMES M_ACTFIRST"),
		stage("", "a name is moved, then recorded", "NAMES M_MOVEFIRST"),
		stage("", "a whiteout at the new name", "NAMES M_WHITENEW"),
		stage("", "what was applied: the name goes before the record", "NAMES M_CLEARLAST"),
		stage("", "what is discarded: the name goes before the whiteout", "NAMES M_NAMEFIRST"),
		lease("", "a lease counts from its receipt", "M_FROMRECEIPT"),
		lease("", "an answer is taken for any request", "M_NONONCE"),
		lease("", "a lease is applied without its orders", "M_LEASEFIRST"),
		lease("", "a keeper confirms what it has not stored", "M_CONFIRMEARLY"),
		lease("", "one keeper's confirmation is taken for all", "NK=2 M_ANYKEEPER"),
		lease("", "a lease brings back what was revoked", "M_REGRANT"),
		lease("", "the gate leaves the end of a lease to a timer", "M_TIMERONLY"),
		orders("", "a keeper takes an order that it has not promised to take", "M_NOPROMISE"),
		orders("", "one keeper confirms an order", "M_ONETAKES"),
		orders("", "one keeper gives a lease", "M_ONEKEEPER"),
		orders("", "an old copy is trusted at once", "M_TRUSTOLD"),
		orders("", "a restored keeper forgets its promises", "M_LOSTPROMISE"),
		small(tree("", "a copy writes without asking", "COPYUP REMOTE NW=1 M_COPYDIRECT")),
		small(mount("", "no epoch in the request", "NAMES REGRANT M_NOEPOCH")),
		small(mount("", "all taken back before the drains", "NAMES M_PAGESFIRST")),
		small(mount("", "gate shut last", "PAGES M_SHUTLAST")),
		small(mount("", "no drain of requests", "NAMES M_NOFLIGHTS")),
		small(mount("", "request joins after the lease is given back", "NAMES M_ENTERLATE")),
		small(mount("", "node published after the request's end", "NAMES M_PUBLATE")),
		small(mount("", "reply and end before publishing", "NAMES M_REPLYFIRST M_PUBLATE")),
		small(mount("", "no second round", "NAMES M_NOROUND2")),
		small(mount("", "second round before the names", "NAMES M_ROUND2EARLY")),
		small(mount("", "names not taken back", "NAMES M_NONAMES")),
		small(mount("", "notification from a handler", "PAGES M_NOTIFYINHANDLER")),
		small(mount("", "a displaced node is not taken back", "NAMES DISPLACE M_LOSEDISPLACED")),
		small(mount("", "a look-up is counted after publishing", "NAMES FORGET M_COUNTLATE")),
	},
}}
