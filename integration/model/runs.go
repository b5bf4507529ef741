package main

import "strings"

// run is one configuration of a model.
type run struct {
	name       string
	file       string
	flags      []string // defined for the preprocessor
	properties string   // see the package comment
}

// configuration is the run's file and flags in a word.
func (r *run) configuration() string {
	return strings.TrimSuffix(r.file, ".pml") + " " + strings.Join(r.flags, " ")
}

// table is runs of which the same is expected.
type table struct {
	title string
	// faulty: Spin has to find a counterexample.
	faulty bool
	runs   []run
}

func mount(name, properties, flags string) run {
	return run{name, "mount.pml", strings.Fields(flags), properties}
}

func tree(name, properties, flags string) run {
	return run{name, "tree.pml", strings.Fields(flags), properties}
}

// smallest is the configuration of the mount that `make test` searches.
var smallest = mount("names, one program", "P1 P3 P6", "NAMES")

var tables = []table{{
	title: "The code's order holds",
	runs: []run{
		mount("pages, mappings, writes", "P1 P2 P3", "PAGES NU=2"),
		mount("stores while read-only", "P1 P2 P3 P5", "PAGES DISPLACE NARROW WIDEN"),
		mount("names, attributes", "P1 P3 P6", "NAMES NU=2"),
		mount("directory lists", "P1 P3 P6", "LIST NU=2"),
		mount("read-only, read-write, read-only", "P3 P5", "PAGES NARROW WIDEN"),
		mount("granted again", "P1 P3 P4", "PAGES REGRANT"),
		mount("granted again, look-up without a lock", "P1 P3 P4", "PAGES RO REGRANT REVAL WARM LEAN NU=2"),
		mount("hidden by a pattern", "P3 P5", "LIST PATTERNS"),
		mount("a nested root's name in a listing", "P1 P3", "NESTED"),
		mount("FORGET against a look-up", "P1 P3 P6", "NAMES FORGET"),
		mount("an inode number used again", "P1 P3 P6", "NAMES DISPLACE"),
		smallest,
	},
}, {
	title:  "Mutations: each has a counterexample, the shortest",
	faulty: true,
	runs: []run{
		mount("a view replaces one of a newer epoch (F1)", "", "PAGES RO REGRANT REVAL WARM LEAN NU=2 M_OLDVIEW"),
		mount("a flight belongs to its last view only (F3)", "", "NESTED M_LASTVIEW"),
		mount("all taken back before the drains", "", "NAMES M_PAGESFIRST"),
		mount("gate shut last", "", "PAGES M_SHUTLAST"),
		mount("no drain of flights", "", "NAMES M_NOFLIGHTS"),
		mount("flight enters after the lease is given back", "", "NAMES M_ENTERLATE"),
		mount("node published after the flight's end", "", "NAMES M_PUBLATE"),
		mount("reply and end before publishing", "", "NAMES M_REPLYFIRST M_PUBLATE"),
		mount("no drains", "", "NAMES M_NODRAIN M_NOFLIGHTS"),
		mount("no second round", "", "NAMES M_NOROUND2"),
		mount("second round before the names", "", "NAMES M_ROUND2EARLY"),
		mount("names not taken back", "", "NAMES M_NONAMES"),
		mount("no epoch in the request", "", "NAMES REGRANT M_NOEPOCH"),
		mount("notification from a handler", "", "PAGES M_NOTIFYINHANDLER"),
		mount("FORGET takes out a node that came back", "", "NAMES FORGET M_FORGETBLIND"),
		mount("a displaced node is not taken back", "", "PAGES DISPLACE NARROW WIDEN M_LOSEDISPLACED"),
		mount("writable files keep their node when narrowed", "", "PAGES DISPLACE NARROW WIDEN M_NOORPHAN"),
	},
}}
