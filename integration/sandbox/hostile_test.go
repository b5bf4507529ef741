package sandbox

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// bare is a run without rootsfs.
const bare sandbox.Level = 0

// run is one way to start the hostile program.
type run struct {
	name  string
	level sandbox.Level
	net   string // the flag that gives a network, "" for none
	// works lists the attempts that may and must work: the holes of the level (sandbox.Report
	// names them), and what the flag net permits.
	works []string
}

// worksEverywhere lists the attempts that work at every level, because they use a link to a file
// that is visible anyway.
var worksEverywhere = []string{"follow a link to a system program"}

var runs = []run{
	{name: "without rootsfs", level: bare},
	{name: "landlock", level: sandbox.Landlock, works: []string{
		"stat a file", "chmod a file", "set a file's times", "set an extended attribute", "change into a directory", "watch a directory",
		"read the kernel's memory, keys or log", // entries of /proc that every user may read
		"learn the host's name", "see other processes", "list the host's sockets (/proc/net/unix)", "take the user's inotify instances",
	}},
	{name: "bubblewrap", level: sandbox.Bubblewrap, works: []string{"take the user's inotify instances"}},
	{name: "namespaces", level: sandbox.Namespaces},
	{name: "namespaces, with --net", level: sandbox.Namespaces, net: "--net", works: []string{
		"connect by TCP", "send by UDP", "list the host's sockets (/proc/net/unix)",
	}},
	{name: "namespaces, with --net=HOSTS", level: sandbox.Namespaces, net: "--net=example.org,127.0.0.9:1"},
}

// unproven lists attempts that fail on some test machines even without rootsfs, because the
// machines' kernels lack the attacked feature. A guest of the hypervisor PVM has no 32-bit system
// calls (int 0x80).
var unproven = []string{"write sysrq-trigger", "paste into the terminal (TIOCLINUX)", "call by another architecture's numbers"}

// runHostile runs the hostile program on a terminal, and then as a server that forges
// consent.
func (o *outside) runHostile(r run) map[string]result {
	t := o.t
	t.Helper()
	at := o.rootInside(r)
	o.Root, o.Link, o.SetUID, o.Parent = at, at+"/link", at+"/setuid", os.Getpid()
	raw, err := json.Marshal(o.targets)
	testkit.Must(t, err)
	var more []string
	if r.level == sandbox.Namespaces { // with --home, which command sets, only --socket permits Unix sockets at all
		more = []string{"--socket", o.granted}
	}
	ord := o.command(r, more, "hostile", string(raw))
	ord.Terminal = true
	stdout, log, code := o.run(ord)
	if code != 0 {
		t.Fatalf("%s: the hostile program ended with %d:\n%s\n%s", r.name, code, log, stdout)
	}
	results := map[string]result{}
	add := func(res result) {
		if results[res.Name].Name == "" {
			o.order = append(o.order, res.Name)
		}
		results[res.Name] = res
	}
	for lines := bufio.NewScanner(strings.NewReader(stdout)); lines.Scan(); {
		var res result
		if err := json.Unmarshal(lines.Bytes(), &res); err != nil {
			t.Fatalf("%s: %v: %q\n%s", r.name, err, lines.Bytes(), log)
		}
		add(res)
	}
	add(o.forge(r))
	return results
}

// With rootsfs every attempt fails in every run, except for the attempts in run.works and
// worksEverywhere. Without rootsfs every attempt works, as root, as an ordinary user, or both,
// except for the attempts in unproven. R001, R063, R113, R131, R165.
func TestTable(t *testing.T) {
	proven := map[string]bool{}
	for _, w := range callers {
		t.Run(w.name, func(t *testing.T) {
			o := newOutside(t, w)
			o.addTargets()
			o.granted = o.newEchoSocket("granted").path
			table := map[string]map[string]result{}
			for _, r := range runs {
				table[r.name] = o.runHostile(r)
				if r.level == bare {
					for name, res := range table[r.name] {
						proven[name] = proven[name] || res.Worked
					}
					continue
				}
				judge(t, r, table[r.name], len(table["without rootsfs"]))
			}
			if signals := strings.Count(o.victimSays(), "signal"); signals != 1 {
				t.Errorf("the victim heard %d signals, want one: from the run without rootsfs", signals)
			}
			text := markdown(o.order[:len(table["without rootsfs"])], table)
			t.Log("\n" + text)
			if w.uid == 0 {
				compareTopic(t, text)
			}
		})
	}
	for name, ok := range proven {
		if !ok && !slices.Contains(unproven, name) {
			t.Errorf("%q does not work without rootsfs either: it shows nothing", name)
		}
	}
}

// judge checks that want attempts were made, and that exactly the attempts in r.works and
// worksEverywhere worked.
func judge(t *testing.T, r run, results map[string]result, want int) {
	t.Helper()
	if len(results) != want || want < 50 {
		t.Errorf("%s: %d attempts were made, want %d", r.name, len(results), want)
	}
	for name, res := range results {
		switch may := slices.Contains(r.works, name) || slices.Contains(worksEverywhere, name); {
		case res.Worked && !may:
			t.Errorf("%s: %q works", r.name, name)
		case !res.Worked && may:
			t.Errorf("%s: %q does not work (%s), but is named as a hole", r.name, name, res.Detail)
		case strings.HasPrefix(res.Detail, "panic"):
			t.Errorf("%s: %q was not tried: %s", r.name, name, res.Detail)
		}
	}
}

func markdown(names []string, table map[string]map[string]result) string {
	var b strings.Builder
	b.WriteString("| attempt |")
	for _, r := range runs {
		b.WriteString(" " + r.name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(runs)) + "\n")
	for _, n := range names {
		b.WriteString("| " + n + " |")
		for _, r := range runs {
			cell := table[r.name][n].Detail
			if table[r.name][n].Worked {
				cell = "**works**"
			}
			b.WriteString(" " + cell + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// compareTopic fails the test unless the help topic confinement has the rows of the table, and the
// same attempts work in both. It does not compare the reasons of failed attempts, which depend on
// the kernel, nor the results without rootsfs, which depend on the machine.
func compareTopic(t *testing.T, table string) {
	t.Helper()
	topic, err := os.ReadFile("../../cmd/rootsfs/help/confinement.md")
	testkit.Must(t, err)
	_, rest, _ := strings.Cut(string(topic), "| attempt |")
	topicTable, _, _ := strings.Cut("| attempt |"+rest, "\n\n")
	want, got := outcomes(table), outcomes(topicTable)
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			t.Errorf("the table of attempts in cmd/rootsfs/help/confinement.md differs from row %d on; replace it by the table that this test logs with -v", i+1)
			return
		}
	}
}

// outcomes returns the rows of a table. It empties the cells of failed attempts, and of the
// results without rootsfs, which depend on the machine.
func outcomes(table string) (rows []string) {
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
			if i == 2 || i > 2 && len(rows) > 0 && cells[i] != "**works**" {
				cells[i] = ""
			}
		}
		rows = append(rows, strings.Join(cells, "|"))
	}
	return rows
}

// Attempts by a shell script fail at every level, too, except for the holes of level Landlock.
// Without rootsfs at least half of the attempts work.
func TestScript(t *testing.T) {
	holes := []string{"stat a file", "chmod a file", "touch a file", "cd into a directory"}
	for _, w := range callers {
		t.Run(w.name, func(t *testing.T) {
			o := newOutside(t, w)
			o.addTargets()
			proven := 0
			for _, r := range runs[:4] {
				worked := o.script(r)
				var want []string
				switch r.level {
				case bare:
					proven = len(worked)
					continue
				case sandbox.Landlock:
					want = holes
				}
				if !slices.Equal(worked, want) {
					t.Errorf("%s: these work: %q, want %q", r.name, worked, want)
				}
			}
			if proven < 15 {
				t.Errorf("without rootsfs only %d attempts work", proven)
			}
		})
	}
}

// script runs hostile.sh and returns the attempts that worked.
func (o *outside) script(r run) []string {
	t := o.t
	t.Helper()
	mark := fmt.Sprintf("0.%d%d", os.Getpid(), r.level+1) // unique to this level
	stdout, log, code := o.run(o.command(r, nil, "hostile.sh", o.Secret, o.SecretContent, o.rootInside(r), fmt.Sprint(o.Victim), o.TCP, mark))
	if code != 0 || strings.Count(stdout, "\n") != 30 {
		t.Fatalf("%s: the script ended with %d after\n%s%s", r.name, code, stdout, log)
	}
	var worked []string
	for line := range strings.Lines(stdout) {
		if name, ok := strings.CutPrefix(line, "worked\t"); ok {
			worked = append(worked, strings.TrimSpace(name))
		}
	}
	left := pidsWith(t, "sleep\x00300\x00"+mark)
	if r.level == bare {
		left = nil
		t.Cleanup(func() { // the last process may not have become sleep yet
			for _, pid := range pidsWith(t, "sleep\x00300\x00"+mark) {
				kill(t, pid)
			}
		})
	}
	if len(left) > 0 {
		t.Errorf("%s: processes %v are left", r.name, left)
	}
	return worked
}

// pidsWith returns the processes whose command line contains text.
func pidsWith(t *testing.T, text string) []int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	testkit.Must(t, err)
	var pids []int
	for _, l := range lines {
		b, err := os.ReadFile(l)
		if err != nil || !strings.Contains(string(b), text) {
			continue // the process has ended, or has another command line
		}
		pid := 0
		_, err = fmt.Sscanf(l, "/proc/%d/", &pid)
		testkit.Must(t, err)
		pids = append(pids, pid)
	}
	return pids
}

func kill(t *testing.T, pid int) {
	t.Helper()
	p, err := os.FindProcess(pid)
	testkit.Must(t, err)
	testkit.Must(t, p.Kill())
}
