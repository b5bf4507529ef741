package vfs_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
)

// killedVar is the environment variable that tells a re-run of the test binary which job to do
// until it is killed.
const killedVar = "ROOTSFS_TEST_KILLED"

// jobFiles is the number of files that the job "checkpoint" writes to in turn.
const jobFiles = 24

// TestProcessIsKilled kills a process with SIGKILL at random times, while it goes
// back and forth between two checkpoints, makes checkpoints, or applies. Afterwards the stage is
// as before or after the operation, the latest checkpoints have their files, and each file of the
// source is the old or the new one.
func TestProcessIsKilled(t *testing.T) {
	if job := os.Getenv(killedVar); job != "" {
		workUntilKilled(t, job)
		return
	}
	kills := shortOrSoak(10, 70)
	t.Run("undo", func(t *testing.T) { killUndo(t, kills) })
	t.Run("checkpoint", func(t *testing.T) { killCheckpoint(t, kills) })
	t.Run("apply", func(t *testing.T) { killApply(t, kills) })
}

// workUntilKilled runs in the process that is killed. job has the name of the job, the directories
// of the scene, and the number of the latest write. workUntilKilled prints "ready" when the job
// begins.
func workUntilKilled(t *testing.T, job string) {
	part := strings.Split(job, "\n")
	s := &stageScene{T: t, source: part[1], stages: part[2], store: part[3], who: guard.Caller{Via: guard.ViaFUSE, UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}}
	s.start()
	fmt.Println("ready")
	n, err := strconv.Atoi(part[4])
	s.must(err)
	for {
		switch part[0] {
		case "undo":
			for _, to := range []string{"first", "second"} {
				_, err := s.tree.StageUndo(t.Context(), "r", to, false)
				s.must(err)
			}
		case "checkpoint":
			n++
			s.must(s.write(jobFileName(n), jobFileText(n), unix.O_WRONLY))
			_, _, err := s.tree.StageCheckpoint(t.Context(), "r", fmt.Sprint("c", n), vfs.CheckpointAsked)
			s.must(err)
		case "apply":
			s.applyAll(vfs.StageApply{})
			select {}
		}
	}
}

func jobFileName(n int) string { return fmt.Sprintf("f%02d", n%jobFiles) }
func jobFileText(n int) string { return fmt.Sprintf("%06d", n) }

// runAndKill starts a process that does a job. It kills the process at a random time after the job
// has begun. The parameter within is the longest delay.
func (s *stageScene) runAndKill(job string, n int, within time.Duration) {
	s.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestProcessIsKilled$")
	cmd.Env = append(os.Environ(), killedVar+"="+strings.Join([]string{job, s.source, s.stages, s.store, fmt.Sprint(n)}, "\n"))
	out, err := cmd.StdoutPipe()
	s.must(err)
	s.must(cmd.Start())
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err == nil && line == "ready\n" {
		time.Sleep(rand.N(within))
	}
	s.must(cmd.Process.Kill())
	rest, _ := io.ReadAll(lines)
	_ = cmd.Wait()
	if line != "ready\n" || len(rest) > 0 {
		s.Fatalf("the process said %q", line+string(rest))
	}
}

// isUndoing reports whether the process was killed in the middle of an undo.
func (s *stageScene) isUndoing() bool {
	log, err := os.ReadFile(s.store + "/log")
	s.must(err)
	return strings.LastIndex(string(log), `"undo":`) > strings.LastIndex(string(log), `"undone":`)
}

func killUndo(t *testing.T, kills int) {
	s := newStageScene(t, 1)
	state := map[string]map[string]string{}
	for _, name := range []string{"first", "second"} {
		for range 60 {
			s.programStep()
		}
		_, _, err := s.tree.StageCheckpoint(t.Context(), "r", name, vfs.CheckpointAsked)
		s.must(err)
		state[name] = s.seen()
	}
	source := stateOf(t, s.source)
	s.end()
	inside := 0
	for range kills {
		s.runAndKill("undo", 0, 25*time.Millisecond)
		if s.isUndoing() {
			inside++
		}
		s.start()
		if now := s.seen(); !maps.Equal(now, state["first"]) && !maps.Equal(now, state["second"]) {
			t.Fatalf("not as at the first checkpoint:\n%s\nnor as at the second:\n%s", difference(now, state["first"]), difference(now, state["second"]))
		}
		if now := stateOf(t, s.source); !maps.Equal(now, source) {
			t.Fatalf("the source:\n%s", difference(now, source))
		}
		s.end()
	}
	t.Logf("%d of %d kills came during an undo", inside, kills)
}

func killCheckpoint(t *testing.T, kills int) {
	var files []string
	for n := 1; n <= jobFiles; n++ {
		files = append(files, jobFileName(n)+"=000000")
	}
	s := newStaged(t, files...)
	source := stateOf(t, s.source)
	s.must(s.write(jobFileName(1), jobFileText(1), unix.O_WRONLY))
	made := 1
	for range kills {
		s.end()
		s.runAndKill("checkpoint", made, 25*time.Millisecond)
		s.start()
		s.wantWrites("after the kill", made, made+1<<20)
		list, err := s.tree.StageCheckpoints(t.Context(), "r")
		s.must(err)
		for _, c := range list[max(0, len(list)-2):] {
			n, isMine := strings.CutPrefix(c.Name, "c")
			if !isMine {
				continue
			}
			_, err := s.tree.StageUndo(t.Context(), "r", c.Name, false)
			s.must(err)
			want, err := strconv.Atoi(n)
			s.must(err)
			s.wantWrites("at checkpoint "+c.Name, want, want)
		}
		made = s.latestWrite() // an undo may have gone back over the latest write
		if now := stateOf(t, s.source); !maps.Equal(now, source) {
			t.Fatalf("the source:\n%s", difference(now, source))
		}
	}
}

// latestWrite returns the number of the latest visible write.
func (s *stageScene) latestWrite() (latest int) {
	for n := 1; n <= jobFiles; n++ {
		got, err := strconv.Atoi(s.textOf(jobFileName(n)))
		s.must(err)
		latest = max(latest, got)
	}
	return latest
}

// wantWrites fails unless the files are those of a moment between two writes: each file has the
// last text that was written to it until then.
func (s *stageScene) wantWrites(when string, from, to int) {
	s.Helper()
	now := s.latestWrite()
	if now < from || now > to {
		s.Errorf("%s: the latest write is %d, want %d to %d", when, now, from, to)
	}
	for n := max(1, now-jobFiles+1); n <= now; n++ {
		if got := s.textOf(jobFileName(n)); got != jobFileText(n) {
			s.Errorf("%s, write %d: %s is %q", when, now, jobFileName(n), got)
		}
	}
}

func killApply(t *testing.T, kills int) {
	for seed := uint64(1); kills > 0; seed++ {
		s := newStageScene(t, seed)
		for range 60 {
			s.programStep()
		}
		want, before := withoutLinks(s.seen()), withoutLinks(seenIn(t, s.source))
		s.end()
		for n := range 3 {
			if _, err := os.Stat(s.store); err != nil {
				break // all was applied
			}
			s.runAndKill("apply", 0, time.Duration(5+20*n)*time.Millisecond)
			kills--
			for path, text := range withoutLinks(seenIn(t, s.source)) {
				if text != before[path] && text != want[path] && isFile(text) && !strings.Contains(path, vfs.TempPrefix) {
					s.fail("killed, %s is %s; it was %s and becomes %s", path, text, before[path], want[path])
				}
			}
		}
		s.start()
		now := withoutLinks(s.seen())
		// The owner's next command removes what a kill between two renames has left.
		maps.DeleteFunc(now, func(path, _ string) bool { return strings.Contains(path, vfs.TempPrefix) })
		if !maps.Equal(now, want) {
			s.fail("seen after the kills:\n%s", difference(now, want))
		}
		s.applyAll(vfs.StageApply{})
		if now := withoutLinks(seenIn(t, s.source)); !maps.Equal(now, want) {
			s.fail("in the end:\n%s", difference(now, want))
		}
		s.end()
	}
}
