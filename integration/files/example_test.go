package files

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// The help topic named "embedding" shows the two programs in example/, host and server, word for
// word, and no other Go code.
func TestTopicPrograms(t *testing.T) {
	data, err := os.ReadFile("../../cmd/rootsfs/help/embedding.md")
	testkit.Must(t, err)
	var blocks []string
	for _, part := range strings.Split(string(data), "\n```go\n")[1:] {
		text, _, _ := strings.Cut(part, "\n```\n")
		blocks = append(blocks, text+"\n")
	}
	programs := []string{"host", "server"}
	if len(blocks) != len(programs) {
		t.Fatalf("%d blocks of Go code", len(blocks))
	}
	for i, name := range programs {
		source, err := os.ReadFile(filepath.Join("example", name, "main.go"))
		testkit.Must(t, err)
		if blocks[i] != string(source) {
			t.Errorf("block %d of cmd/rootsfs/help/embedding.md is not example/%s/main.go: copy the program into the topic", i, name)
		}
	}
}

// buildExamples builds the two programs in example/ and returns their paths.
func buildExamples(t *testing.T) (host, server string) {
	t.Helper()
	bin := t.TempDir() + "/"
	testkit.Must(t, testkit.Build(bin, "./example/..."))
	return bin + "host", bin + "server"
}

// onTerminal runs a command on a terminal of its own. Each of answers is a prompt and the line to
// type when the terminal shows that prompt. onTerminal returns all text that the terminal showed,
// and the error of the command.
func onTerminal(t *testing.T, cmd *exec.Cmd, answers ...[2]string) (shown string, err error) {
	t.Helper()
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 1000}) // so that no line is broken
	testkit.Must(t, err)
	defer tty.Close()
	kill := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	r := bufio.NewReader(tty)
	for {
		b, err := r.ReadByte()
		if errors.Is(err, syscall.EIO) { // the program has closed the terminal
			return shown, cmd.Wait()
		}
		testkit.Must(t, err)
		shown += string(b)
		if len(answers) > 0 && strings.HasSuffix(shown, answers[0][0]) {
			_, err := tty.WriteString(answers[0][1] + "\n")
			testkit.Must(t, err)
			answers = answers[1:]
		}
	}
}

// R027, R045, R098: the host in example/ starts the server in example/. The person at the terminal
// first denies the directory that the server asks for, and the server writes nothing. Then the
// person approves the directory, which the prompt shows by its path. The server reads, writes, and
// gets an event when the file changes.
func TestTopicProgramsRun(t *testing.T) {
	host, server := buildExamples(t)
	dir, reports := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "text")
	testkit.Must(t, os.WriteFile(file, []byte("one two three\n"), 0o644))
	arguments := func(changes int) string {
		b, err := json.Marshal(map[string]any{"file": file, "reports": reports, "changes": changes})
		testkit.Must(t, err)
		return string(b)
	}
	const prompt = "only: "
	shown, err := onTerminal(t, exec.Command(host, dir, "count", arguments(0), server), [2]string{prompt, "n"})
	if err != nil || !strings.Contains(shown, "not approved: denied") || !strings.Contains(shown, "roots revoked: 1") {
		t.Errorf("denied: %v\n%s", err, shown)
	}
	if _, err := os.Stat(filepath.Join(reports, "words.txt")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the server wrote a report without consent: %v", err)
	}
	stop := make(chan struct{})
	go func() { // somebody edits the file when the first report is there
		for !strings.HasPrefix(read(filepath.Join(reports, "words.txt")), "3") {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
		_ = os.WriteFile(file+".new", []byte("one two three four\n"), 0o644)
		_ = os.Rename(file+".new", file)
	}()
	shown, err = onTerminal(t, exec.Command(host, dir, "count", arguments(1), server), [2]string{prompt, "y"})
	close(stop)
	for _, want := range []string{
		`The server that calls itself "example-server 1" (example-server) asks for access to files.`,
		`Its reason, in its own words: "to write down how many words ` + file + ` has"`,
		`"` + reports + `" (directory, with everything below), read and WRITE`,
		"words: 4, changes: 1", "roots revoked: 2",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is missing in\n%s", want, shown)
		}
	}
	if got := read(filepath.Join(reports, "words.txt")); err != nil || got != "4\n" {
		t.Errorf("%v, the report is %q\n%s", err, got, shown)
	}
}

func read(path string) string {
	b, _ := os.ReadFile(path) // a missing file is empty
	return string(b)
}
