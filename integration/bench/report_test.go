package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestMedianAndSpread(t *testing.T) {
	for _, tt := range []struct {
		values         []float64
		median, spread float64
	}{
		{nil, 0, 0},
		{[]float64{3}, 3, 0},
		{[]float64{4, 1}, 2.5, 0},
		{[]float64{5, 1, 3}, 3, 0},
		{[]float64{100, 2, 1, 3, 2}, 2, 0.5},
		{[]float64{0, 0, 0, 0}, 0, 0},
	} {
		if m, s := median(tt.values), spread(tt.values); m != tt.median || s != tt.spread {
			t.Errorf("%v: median %v, spread %v; want %v, %v", tt.values, m, s, tt.median, tt.spread)
		}
	}
}

func seconds(s ...float64) *cell { return &cell{Seconds: s} }

func sampleReport() *report {
	return &report{
		Repetitions: 5, Size: sizes{Name: "full"}, Peers: []string{native, audit, maxLvl, tuned},
		Rows: []*row{
			{Workload: "tar warm", Cells: map[string]*cell{
				native: seconds(1, 1, 1, 1, 1), audit: seconds(2, 3, 9, 3, 3), maxLvl: seconds(1.6), tuned: seconds(2.9), // markdown names cells with fewer than five samples
			}},
			{Workload: "du -s warm", Bytes: 4e6, Cells: map[string]*cell{
				native: seconds(2), audit: seconds(3), tuned: {Broken: "du: 1 blocks"},
			}},
			{Workload: "creates", Cells: map[string]*cell{native: {Broken: "no space"}, audit: seconds(1)}},
		},
		Revocations: []*revocation{
			{Peer: "rootsfs-strict", Inodes: 10, Handles: 1, Seconds: []float64{9}},
			{Peer: audit, Inodes: 10, Handles: 1, Seconds: []float64{0.05, 0.06, 0.07}},
			{Peer: audit, Inodes: 100, Handles: 1, Broken: "7 names"},
		},
		Memory: []*memory{{Peer: bareNodes, Files: 10, RSS: 100 << 20}, {Peer: audit, Files: 10, RSS: 140 << 20}},
	}
}

// TestGoals has goals that are met, missed and not measured.
func TestGoals(t *testing.T) {
	got := map[string]outcome{}
	for _, o := range judgeGoals(sampleReport()) {
		got[o.Goal] = o
	}
	for goal, want := range map[string]outcome{
		"tar warm, rootsfs-audit":                             {Limit: "2.5", Measured: "3.00", Status: missed},
		"tar warm, rootsfs-max":                               {Limit: "1.5", Measured: "1.60", Status: missed},
		"tar warm, rootsfs-audit ahead of bindfs-tuned":       {Limit: "2.90", Measured: "3.00", Status: missed},
		"du -s warm, rootsfs-audit":                           {Limit: "1.5", Measured: "1.50", Status: met},
		"du -s warm, rootsfs-audit ahead of bindfs-tuned":     {Limit: "-", Measured: "-", Status: notMeasured},
		"creates, rootsfs-audit":                              {Limit: "1.5", Measured: "-", Status: notMeasured},
		"creates, rootsfs-audit ahead of bindfs-tuned":        {Limit: "-", Measured: "-", Status: notMeasured},
		"revoke, 10 inodes, 1 open and mapped, rootsfs-audit": {Limit: "100 ms", Measured: "60 ms", Status: met},
		"memory, 10 files, rootsfs-audit against bare-nodes":  {Limit: "1.3", Measured: "1.40", Status: missed},
	} {
		want.Goal = goal
		if got[goal] != want {
			t.Errorf("got %+v, want %+v", got[goal], want)
		}
		delete(got, goal)
	}
	if len(got) > 0 {
		t.Errorf("not expected: %v", got)
	}
}

// A staged root is judged against one of mode rw, not against the native file system.
func TestStageGoal(t *testing.T) {
	r := &report{Rows: []*row{{Workload: "find+stat warm", Cells: map[string]*cell{native: seconds(1), audit: seconds(2), staged: seconds(2.4)}}}}
	if got := judgeStage(r); len(got) != 1 || got[0].Measured != "1.20" || got[0].Status != missed {
		t.Errorf("judged %+v", got)
	}
}

func TestMarkdown(t *testing.T) {
	r := sampleReport()
	r.Goals = judgeGoals(r)
	r.Skipped = []string{"bindfs: not found"}
	text := r.markdown()
	for _, want := range []string{
		"| workload   | native | rootsfs-audit | rootsfs-max | bindfs-tuned |\n|------------|-------:|",
		"| tar warm   | 1.00 s |          3.00 |        1.60 |         2.90 |\n",
		"| du -s warm | 2 MB/s |          1.50 |           - |       BROKEN |\n",
		"| creates    | BROKEN |             - |           - |            - |\n",
		"| rootsfs-audit  |            10 |               1 |          60 ms |",
		"MISSED",
		"tar warm (rootsfs-max, 1); ",
		"- bindfs: not found\n",
		"- du -s warm, bindfs-tuned: du: 1 blocks\n",
		"- revoke, 100 inodes, rootsfs-audit: 7 names\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if !r.missed() {
		t.Error("-strict would not notice the missed goals")
	}
	if strings.Contains(text, "disagree") {
		t.Error("one outlier of five is not noise")
	}
	r.Rows[0].Cells[native] = seconds(1, 1, 1, 2, 2)
	if text := r.markdown(); !strings.Contains(text, "tar warm (native).") {
		t.Errorf("noisy repetitions are not named:\n%s", text)
	}
	if strings.Contains(text, "OTHERS") {
		t.Error("an idle machine is called busy")
	}
	r.Machine.Load, r.Machine.CPUs = 1.5, 2
	if text := r.markdown(); !strings.Contains(text, "load average was 1.5") {
		t.Errorf("a busy machine is not called so:\n%s", text)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

func TestRow_add(t *testing.T) {
	r := &row{Cells: map[string]*cell{}}
	r.add("p", []sample{{seconds: 1}, {seconds: 2, requests: &requests{Total: 3}}}, 1, nil)
	r.add("p", []sample{{seconds: 1}, {seconds: 4}}, 1, nil)
	if c := r.Cells["p"]; len(c.Seconds) != 2 || c.Seconds[1] != 4 || c.Requests.Total != 3 {
		t.Errorf("%+v", c)
	}
}

func TestKernelTexts(t *testing.T) {
	if n := countEvents("entries: 12\noverrun: 30\ncommit overrun: 5\nbytes: 480\n"); n != 42 {
		t.Errorf("countEvents: %v", n)
	}
	m := opcode.FindStringSubmatch("bench-7 [001] ..... 5.1: fuse_request_send: connection 39 req 4 opcode 44 (FUSE_READDIRPLUS) len 80 ")
	if len(m) != 2 || m[1] != "READDIRPLUS" {
		t.Errorf("opcode: %q", m)
	}
	if n, err := vmRSS("Name:\tx\nVmHWM:\t 9 kB\nVmRSS:\t    5120 kB\n"); err != nil || n != 5<<20 {
		t.Errorf("vmRSS: %d, %v", n, err)
	}
	if _, err := vmRSS("Name:\tzombie\n"); err == nil {
		t.Error("a process without memory has a size")
	}
}

func TestTuning(t *testing.T) {
	if s := strings.Join(tuning("bindfs 1.14.7, libfuse interface linked version 2.9"), " "); !strings.Contains(s, ",big_writes") {
		t.Error("libfuse 2 writes 4 KiB at a time without big_writes:", s)
	}
	if s := strings.Join(tuning("bindfs 1.17.7, FUSE library version 3.17.2"), " "); strings.Contains(s, "big_writes") {
		t.Error("libfuse 3 refuses big_writes:", s)
	}
}
