package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBrokenPeer checks that workloads notice wrong answers of a peer. The peer is a copy of the
// source, in which spoil damages one thing.
func TestBrokenPeer(t *testing.T) {
	l := newLab(t)
	ctx := context.Background()
	if err := l.prepareSource(ctx); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		workload string
		how      string
		spoil    func(dir string) error
	}{
		{"seq read 1M", "short", func(d string) error { return os.Truncate(filepath.Join(d, l.seqFile()), 1<<20) }},
		{"seq read 1M", "zeros", func(d string) error { return zero(filepath.Join(d, l.seqFile()), 1<<20+block) }},
		{"rand read 4k", "zeros", func(d string) error { return zero(filepath.Join(d, l.randFile()), tiny.RandBytes) }},
		{"find+stat", "missing", func(d string) error { return os.Remove(filepath.Join(d, l.tree(), "d001", "f007")) }},
		{"find+stat", "short", func(d string) error { return os.Truncate(filepath.Join(d, l.tree(), "d001", "f007"), 1) }},
		{"du -s", "missing", func(d string) error { return os.RemoveAll(filepath.Join(d, l.tree(), "d001")) }},
		{"git status", "missing", func(d string) error { return os.Remove(filepath.Join(d, l.repo(), "d000", "f007")) }},
		{"tar", "missing", func(d string) error { return os.Remove(filepath.Join(d, l.tree(), "d001", "f007")) }},
		{"cp -r", "missing", func(d string) error { return os.Remove(filepath.Join(d, l.treeToCopy(), "d000", "f007")) }},
		// The peer is an intact copy: writes to it never reach the source.
		{"seq write 1M", "lost", nil},
		{"write 4k", "lost", nil},
		{"creates", "lost", nil},
		{"cp -r", "lost", nil},
		{"work", "lost", nil},
	} {
		t.Run(tt.workload+" "+tt.how, func(t *testing.T) {
			if err := l.emptyScratch(); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.TempDir(), "peer")
			if out, err := exec.Command("cp", "-a", l.path("src"), dir).CombinedOutput(); err != nil {
				t.Fatalf("cp: %v: %s", err, out)
			}
			w := workloadNamed(t, tt.workload)
			source := l.path("src")
			if tt.spoil != nil {
				if err := tt.spoil(dir); err != nil {
					t.Fatal(err)
				}
				if tt.workload == "cp -r" {
					source = dir // cp writes into dir: this case is about the missing file, not about lost writes
				}
			}
			j := &job{ctx: context.Background(), lab: l, size: tiny, dir: dir, source: source, phase: w.phases[0]}
			if err := w.pass(j); err == nil {
				t.Error("not noticed")
			}
		})
	}
}

// workloadNamed returns the first workload of that name.
func workloadNamed(t *testing.T, name string) workload {
	t.Helper()
	for _, w := range workloads() {
		if w.name == name {
			return w
		}
	}
	t.Fatalf("no workload is called %q", name)
	return workload{}
}

// zero overwrites the first n bytes of a file with zeros, except the first block.
func zero(path string, n int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(make([]byte, n-block), block)
	return err
}

func TestStamps(t *testing.T) {
	b := make([]byte, 3*block)
	stamp(b, 7, 2)
	if err := checkStamps(b, 7, 2); err != nil {
		t.Error(err)
	}
	if checkStamps(b, 8, 2) == nil || checkStamps(b, 7, 1) == nil {
		t.Error("stamps of another block or generation were accepted")
	}
	b[2*block]++
	if err := checkStamps(b, 7, 2); err == nil || !strings.Contains(err.Error(), "block 9 ") {
		t.Errorf("third block spoilt: %v", err)
	}
}

// TestSizes checks that files have whole mebibytes, that names fill whole directories, and that a
// cold pass, a quarter of a warm pass, has a whole number of reads. Names suffice for all inodes of
// the revocation rows.
func TestSizes(t *testing.T) {
	for _, name := range []string{"small", "full"} {
		s, err := sizesOf(name)
		if err != nil {
			t.Fatal(err)
		}
		if s.Name != name || s.RandBytes%mib != 0 || s.SeqBytes%mib != 0 || s.SmallBytes%mib != 0 || s.RandReads%4 != 0 ||
			s.MemFiles%namesPerDir != 0 || s.Inodes[0] >= s.Inodes[1] || s.Handles >= s.Inodes[0] || s.Inodes[1] > s.MemFiles {
			t.Errorf("%+v", s)
		}
	}
	if _, err := sizesOf("huge"); err == nil {
		t.Error("an unknown size was accepted")
	}
}

func TestTarSize(t *testing.T) {
	for _, tt := range []struct{ dirs, perDir, size, want int64 }{
		{0, 0, 0, 10240},
		{1, 1, 1, 10240},
		{1, 10, 4096, 51200},
	} {
		if got := tarSize(tt.dirs, tt.perDir, tt.size); got != tt.want {
			t.Errorf("tarSize(%d, %d, %d) = %d, want %d", tt.dirs, tt.perDir, tt.size, got, tt.want)
		}
	}
}

// In twice as many repetitions as there are peers, every peer runs twice at every position, and
// twice directly after every other peer.
func TestTurns(t *testing.T) {
	const n = 3
	positions, before := map[[2]int]int{}, map[[2]int]int{}
	for rep := range 2 * n {
		order := make([]int, n)
		for i := range order {
			order[i] = turn(i, rep, n)
			positions[[2]int{i, order[i]}]++
			if i > 0 {
				before[[2]int{order[i-1], order[i]}]++
			}
		}
	}
	for a := range n {
		for b := range n {
			if positions[[2]int{a, b}] != 2 {
				t.Errorf("%d is %d times at position %d", b, positions[[2]int{a, b}], a)
			}
			if a != b && before[[2]int{a, b}] != 2 {
				t.Errorf("%d runs %d times directly after %d", b, before[[2]int{a, b}], a)
			}
		}
	}
}
