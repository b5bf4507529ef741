package sandbox

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// textsInMemory returns the texts that are in the memory of a process. It does not search mappings
// that are larger than 64 MiB or belong to files in /usr.
func textsInMemory(t *testing.T, pid string, texts ...string) (found []string) {
	t.Helper()
	maps, err := os.ReadFile("/proc/" + pid + "/maps")
	testkit.Must(t, err)
	memory, err := os.Open("/proc/" + pid + "/mem")
	testkit.Must(t, err)
	defer memory.Close()
	var all []byte
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		if n, _ := fmt.Sscanf(line, "%x-%x r", &from, &to); n != 2 || to-from > 64<<20 || strings.Contains(line, "/usr/") {
			continue
		}
		part := make([]byte, to-from)
		n, _ := memory.ReadAt(part, from) // the end of a mapping may be unreadable
		all = append(all, part[:n]...)
	}
	for _, text := range texts {
		if bytes.Contains(all, []byte(text)) {
			found = append(found, text)
		}
	}
	return found
}

// The credential is in the memory of no process inside, and these processes leave no core dump in the
// root. The host sends the request's headers back, in a header and in the body, over https and over
// the base URL.
func TestCredentialIsNotInMemory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root reads the memory of these processes")
	}
	a := serveAPI(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-You-Said", r.Header.Get("Authorization"))
		fmt.Fprint(w, "you said: ")
		_ = r.Header.Write(w)
	}))
	const program = `
import os, sys, time, urllib.request
answers = []
for url in ["https://api.example.com:PORT", os.environ["API_TOKEN_BASE_URL"]]:
    for headers in [{}, {"Authorization": "Bearer " + os.environ["API_TOKEN"]}]:
        answers.append(urllib.request.urlopen(urllib.request.Request(url + "/hello", headers=headers)))
        answers.append(answers[-1].read())
print(os.environ["API_TOKEN"], len(answers), flush=True)
sys.stdin.read()
os.abort()`
	if tool := missing([]string{"python3"}); tool != "" {
		t.Skipf("this machine has no %s", tool)
	}
	eachNetLevel(t, func(t *testing.T, o *outside, level sandbox.Level) {
		ord := o.secretOrder(a, "ulimit -c unlimited; exec python3 -c '"+strings.ReplaceAll(program, "PORT", a.port)+"'", "api")
		ord.setLevel(level)
		checkMemory(t, o, ord)
	})
}

// checkMemory runs the program of an order, and fails the test if the credential is in the memory of
// a process in the program's PID namespace. It also fails the test unless the same search finds the
// placeholder and the host's answer there.
func checkMemory(t *testing.T, o *outside, ord order) {
	t.Helper()
	cmd := o.driver(ord)
	var log bytes.Buffer
	cmd.Stderr = &log
	in, err := cmd.StdinPipe()
	testkit.Must(t, err)
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	kill := time.AfterFunc(giveUp, func() { _ = cmd.Process.Kill() })
	line, _ := bufio.NewReader(out).ReadString('\n')
	placeholder, isDone := strings.CutSuffix(line, " 8\n")
	inside := map[string]bool{} // pid namespaces of the program
	procs, err := filepath.Glob("/proc/[0-9]*")
	testkit.Must(t, err)
	for _, dir := range procs {
		if env, _ := os.ReadFile(dir + "/environ"); isDone && bytes.Contains(env, []byte("API_TOKEN="+placeholder)) {
			ns, _ := os.Readlink(dir + "/ns/pid")
			inside[ns] = true
		}
	}
	var found []string
	count := 0
	for _, dir := range procs {
		if ns, _ := os.Readlink(dir + "/ns/pid"); inside[ns] {
			count++
			found = append(found, textsInMemory(t, filepath.Base(dir), credential, placeholder, "you said: ")...)
		}
	}
	in.Close()
	err = cmd.Wait()
	kill.Stop()
	if cores, err := filepath.Glob(filepath.Join(o.root, "*core*")); err != nil || len(cores) > 0 {
		t.Errorf("the program has left %q, %v", cores, err)
	}
	slices.Sort(found)
	if !isDone || exitCode(err) != 128+int(unix.SIGABRT) || len(inside) != 1 || count < 2 || !slices.Equal(slices.Compact(found), []string{placeholder, "you said: "}) {
		t.Errorf("%q, %v, %d processes, in memory is %q; rootsfs: %s", line, err, count, found, log.String())
	}
}
