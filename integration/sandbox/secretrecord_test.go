package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// When the audit log's disk is full, no request with the credential is sent, because the request could
// not be recorded. This holds for many requests at a time. The disk is filled while the command runs.
func TestSecretIsNotUsedUnrecorded(t *testing.T) {
	for _, w := range callers {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			var arrived atomic.Int64
			a := serveAPI(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				arrived.Add(1)
				fmt.Fprint(w, "hello")
			}))
			o := newOutside(t, w)
			o.writeConfig(fmt.Sprintf("[[secret]]\nname = \"API_TOKEN\"\nurl = \"https://api.example.com:%s\"\nallow = [\"GET /n/*\"]\n", a.port))
			state := filepath.Join(o.base, "small")
			testkit.Must(t, os.Mkdir(state, 0o755))
			testkit.Must(t, unix.Mount("tmpfs", state, "tmpfs", 0, fmt.Sprintf("size=400k,mode=700,uid=%d,gid=%d", w.uid, w.uid)))
			t.Cleanup(func() { testkit.Must(t, unix.Unmount(state, unix.MNT_DETACH)) })
			// The records of 2000 requests do not fit on the small file system.
			const script = `b=$API_TOKEN_BASE_URL/n; curl -sS $b/0; echo; while [ ! -e go ]; do sleep 0.05; done
				curl -s -Z --parallel-max 20 "$b/[1-2000]" -o /dev/null -w '%{http_code}\n'`
			ord := o.networkOrder(netLevels[0], "--net=127.0.0.5:"+a.port, script)
			ord.Args = slices.Insert(ord.Args, len(ord.Args)-4, "--secret", "API_TOKEN")                                            // before --
			ord.Env = append(slices.Clone(o.env), "XDG_STATE_HOME="+state, "API_TOKEN="+credential, "SSL_CERT_FILE="+a.certificate) // the last XDG_STATE_HOME counts
			cmd := o.driver(ord)
			var log bytes.Buffer
			cmd.Stderr = &log
			out, err := cmd.StdoutPipe()
			testkit.Must(t, err)
			testkit.Must(t, cmd.Start())
			defer time.AfterFunc(giveUp, func() { _ = cmd.Process.Kill() }).Stop()
			first := make([]byte, len("hello\n"))
			if _, err := io.ReadFull(out, first); err != nil || string(first) != "hello\n" {
				t.Fatalf("%q, %v; rootsfs: %s", first, err, log.String())
			}
			fill := filepath.Join(state, "fill")
			f, err := os.Create(fill)
			testkit.Must(t, err)
			for err == nil {
				_, err = f.Write(make([]byte, 4<<10))
			}
			f.Close()
			testkit.Must(t, os.WriteFile(filepath.Join(o.root, "go"), nil, 0o644))
			rest, _ := io.ReadAll(out)
			_ = cmd.Wait()
			testkit.Must(t, os.Remove(fill))
			records := 0
			files, err := filepath.Glob(filepath.Join(state, "rootsfs/audit", sessionName+"-*.jsonl"))
			testkit.Must(t, err)
			for _, file := range files {
				b, err := os.ReadFile(file)
				testkit.Must(t, err)
				records += len(regexp.MustCompile(`(?m)^.*"op":"request".*"verdict":"allowed".*$`).FindAll(b, -1))
			}
			answers := strings.Fields(string(rest))
			refused := len(slices.DeleteFunc(slices.Clone(answers), func(s string) bool { return s != "503" }))
			if got := int(arrived.Load()); got != records || len(answers) != 2000 || refused != 2000-(got-1) {
				t.Errorf("%d requests have arrived at the host, %d are on record; of 2000 answers %d have status 503; rootsfs: %s", got, records, refused, log.String())
			}
			if refused == 0 {
				t.Error("the disk was not full")
			}
		})
	}
}
