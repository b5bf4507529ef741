package fleet

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// freePort returns a port of localhost that nothing listens at.
func freePort(f *realFleet) string {
	l, err := net.Listen("tcp", "localhost:0")
	f.must(err)
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// stubSystemctl replaces systemctl. It starts the program of the unit that its fourth argument
// names, in the background.
const stubSystemctl = `#!/bin/sh
case "$4" in
rootsfs-fleet-serve) rootsfs fleet serve >serve.out 2>serve.err & ;;
rootsfs-fleet) rootsfs fleet agent >agent.out 2>agent.err & ;;
*) exit 1 ;;
esac
echo $! >>"$PIDS"
`

// The README's commands for three machines work literally, with two changes: the token is the one
// that an earlier command has printed, and fleet init gets the option --server with a free port.
// Each machine is a HOME.
func TestRecipe(t *testing.T) {
	data, err := os.ReadFile("../../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```console\n(nas\\$ .*?)```").FindSubmatch(data)
	if block == nil {
		t.Fatal("the README has no commands for a fleet")
	}
	f := &realFleet{T: t, home: t.TempDir()}
	bin, pids := t.TempDir(), filepath.Join(t.TempDir(), "pids") // PATH also has rootsfs and rootsfs-fleet, in one directory: see TestMain
	f.must(os.WriteFile(bin+"/systemctl", []byte(stubSystemctl), 0o700))
	dir, err := ReleasedDir()
	f.must(err)
	t.Setenv("PATH", bin+":"+WithPrograms(dir, os.Getenv("PATH")))
	t.Setenv("PIDS", pids)
	t.Cleanup(func() { _ = exec.Command("sh", "-c", "kill $(cat "+pids+")").Run() })
	port, token, outputs := freePort(f), "", map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(string(block[1]))); lines.Scan(); {
		machine, command, ok := strings.Cut(lines.Text(), "$ ")
		if !ok {
			t.Fatalf("%q is no command of a machine", lines.Text())
		}
		home := filepath.Join(f.home, machine)
		f.must(os.MkdirAll(home+"/run", 0o700))
		run := strings.Replace(command, "rfl1:eyJzIjoi...", token, 1)
		run = strings.Replace(run, "fleet init acme", "fleet init acme --server localhost:"+port, 1)
		cmd := f.commandIn("", home, "sh", "-c", "cd; "+run)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", lines.Text(), err, out)
		}
		if found := regexp.MustCompile(`rfl1:\S+`).Find(out); found != nil {
			token = string(found)
		}
		outputs[command] = string(out)
		// The next command may need the program that the unit starts.
		unit := command[strings.LastIndexByte(command, ' ')+1:]
		if file := map[string]string{"rootsfs-fleet-serve": "serve.out", "rootsfs-fleet": "run/rootsfs/.fleet/lease"}[unit]; file != "" {
			f.until(file, patience, func() bool { text, _ := os.ReadFile(filepath.Join(home, file)); return len(text) > 0 })
		}
	}
	for command, want := range map[string]string{
		"rootsfs fleet machines":                             `(?s)build +now .* live .*laptop +now .* live `,
		`rootsfs fleet revoke --all --lock "strange pushes"`: `(?s)build: dead in .*laptop: dead in `,
		"rootsfs fleet unlock":                               `(?s)build: unlocked in .*laptop: unlocked in `,
	} {
		if !regexp.MustCompile(want).MatchString(outputs[command]) {
			t.Errorf("%s prints\n%s", command, outputs[command])
		}
	}
}
