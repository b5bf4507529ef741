package sandbox

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// credential is the credential that the commands of these tests use and must not have. To look
// for it, they join its halves.
const credential = "v3ryS3cret" + "-tok3n-of-the-owner"

// api is an HTTPS server at 127.0.0.5 that the tests use as the host of a secret.
type api struct {
	port        string
	certificate string        // the path of a file with the server's certificate
	began       chan struct{} // gets a value when the first bytes of /upload have come
	ended       chan struct{} // gets a value when a request for /held or /upload has ended
}

func newAPI(t *testing.T) *api {
	t.Helper()
	began, ended := make(chan struct{}, 10), make(chan struct{}, 10)
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s\n", r.Method, r.RequestURI, b)
	})
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
		}
	})
	mux.HandleFunc("/held", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "held\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		ended <- struct{}{}
	})
	mux.HandleFunc("/upload", func(w http.ResponseWriter, r *http.Request) {
		_, _ = r.Body.Read(make([]byte, 1))
		began <- struct{}{}
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			t.Error("the aborted upload looks complete")
		}
		ended <- struct{}{}
	})
	mux.HandleFunc("/websocket", greetWebSocket)
	mux.HandleFunc("/registry/", serveRegistry)
	mux.HandleFunc("/simple/", serveIndex)
	mux.HandleFunc("/goproxy/", serveModules)
	mux.HandleFunc("/crates/", serveCrates)
	if missing([]string{"git"}) == "" {
		path, err := exec.Command("git", "--exec-path").Output()
		testkit.Must(t, err)
		repos := repository(t)
		for _, at := range []string{"/git", "/private"} {
			mux.Handle(at+"/", &cgi.Handler{
				Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"), Root: at,
				Env: []string{"GIT_PROJECT_ROOT=" + repos, "GIT_HTTP_EXPORT_ALL=1"},
			})
		}
	}
	a := serveAPI(t, mux)
	a.began, a.ended = began, ended
	return a
}

// wantedHeader returns the Authorization header that the host accepts for a path. The first
// element of the path decides: the header is HTTP Basic for private, goproxy and simple, the bare
// credential for crates, and a bearer token for all others.
func wantedHeader(path string) string {
	switch at, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/"); at {
	case "private", "goproxy", "simple":
		return "Basic " + base64.StdEncoding.EncodeToString([]byte("x-access-token:"+credential))
	case "crates":
		return credential
	}
	return "Bearer " + credential
}

// serveAPI serves h over HTTPS, and refuses requests without the credential.
func serveAPI(t *testing.T, h http.Handler) *api {
	t.Helper()
	return serveHTTPS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header["Authorization"]; len(got) != 1 && r.URL.Query().Get("key") != credential || len(got) == 1 && got[0] != wantedHeader(r.URL.Path) {
			w.Header().Set("WWW-Authenticate", `Basic realm="the test"`)
			http.Error(w, "you are nobody", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	}))
}

// serveHTTPS serves h over HTTPS.
func serveHTTPS(t *testing.T, h http.Handler) *api {
	t.Helper()
	a := &api{}
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	s.Listener = listenAt(t)
	cert := certificate(t)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	a.port = portOf(s.Listener)
	a.certificate = filepath.Join(t.TempDir(), "ca.crt")
	testkit.Must(t, os.WriteFile(a.certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), 0o644))
	makeReachable(t, filepath.Dir(a.certificate))
	return a
}

// makeReachable lets every user pass through dir and through the directories above it.
func makeReachable(t *testing.T, dir string) {
	t.Helper()
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o001 == 0 {
			testkit.Must(t, os.Chmod(dir, info.Mode().Perm()|0o111))
		}
	}
}

// secretRules are the rules of the secret.
var secretRules = []string{
	"GET /{hello,events,held,websocket}", "PUT /{hello,upload}", "GET /{git,private}/**", "POST /git/*/git-upload-pack", "POST /private/**", "GET /{registry,simple,goproxy,crates}/**",
}

// secretOrder returns an order that runs a shell script with the secret API_TOKEN. The secret's host
// is name with ".example.com" appended. api.example.com resolves to 127.0.0.5, an address that needs
// its own rule.
func (o *outside) secretOrder(a *api, script string, name string) order {
	t := o.t
	t.Helper()
	dir := filepath.Join(o.base, "xdg_config_home", "rootsfs")
	testkit.Must(t, os.MkdirAll(dir, 0o700))
	conf := filepath.Join(dir, "config.toml")
	testkit.Must(t, os.WriteFile(conf, fmt.Appendf(nil, `
[[secret]]
name = "API_TOKEN"
url = "https://%s.example.com:%s"
allow = [%s]
in = ["query"]
`, name, a.port, `"`+strings.Join(secretRules, `", "`)+`"`), 0o600))
	o.own(dir)
	o.own(conf)
	ord := o.networkOrder(netLevels[0], "--net=127.0.0.5:"+a.port, script)
	at := len(ord.Args) - 4 // before --
	ord.Args = append(append(append([]string{}, ord.Args[:at]...), "--secret", "API_TOKEN"), ord.Args[at:]...)
	ord.Env = append(append([]string{}, o.env...), "API_TOKEN="+credential, "SSL_CERT_FILE="+a.certificate)
	return ord
}

// setLevel changes the level of an order that secretOrder has returned.
func (o *order) setLevel(level sandbox.Level) {
	for i, arg := range o.Args {
		if arg == netLevels[0].String() {
			o.Args[i] = level.String()
		}
	}
}

// secretProgram is a program that uses the secret.
type secretProgram struct {
	name   string
	needs  []string // in /usr/bin
	script string
	want   string
}

// searchProgram is the name of the program that runs when all others have ended.
const searchProgram = "where the credential could be"

// secretPrograms are programs that know nothing of rootsfs. They know only where the API is.
var secretPrograms = []secretProgram{
	{"curl", []string{"curl"}, `curl -sS "$API_TOKEN_BASE_URL/hello?q=1"`, "GET /hello?q=1 \n"},
	{"curl with a body", []string{"curl"}, `curl -sS -X PUT -d body -H "Authorization: Bearer $API_TOKEN" $API_TOKEN_BASE_URL/./hello`, "PUT /hello body\n"},
	{"curl, a request that is not allowed", []string{"curl"}, `curl -sS -X DELETE $API_TOKEN_BASE_URL/hello`,
		"rootsfs: no rule of the secret API_TOKEN allows DELETE \"/hello\" (\"DELETE /hello\" in allow of its [[secret]] block would); it allows: " + strings.Join(secretRules, ", ") + "\n"},
	{"curl, events", []string{"curl"}, `curl -sSN $API_TOKEN_BASE_URL/events`, "data: 0\n\ndata: 1\n\ndata: 2\n\n"},
	{"curl by https", []string{"curl"}, `curl -sS https://api.example.com:PORT/hello?q=1`, "GET /hello?q=1 \n"},
	{"curl by https and HTTP/1.1, with the key", []string{"curl"}, `curl -sS --http1.1 -X PUT -d body -u "me:$API_TOKEN" https://api.example.com:PORT/./hello; curl -sS -H "Authorization: Bearer $API_TOKEN" https://api.example.com:PORT/hello`,
		"you are nobody\nGET /hello \n"}, // the program chooses HTTP Basic, which the host does not accept
	{"curl by https, without the variables", []string{"curl"}, `env -i PATH="$PATH" curl -sS https://api.example.com:PORT/hello`, "GET /hello \n"},
	{"curl by https, a request that is not allowed", []string{"curl"}, `curl -sS -o /dev/null -w '%{http_code}\n' -X DELETE https://api.example.com:PORT/hello`, "403\n"},
	{"node https, websocket", []string{"node"}, `node -e '
		const key = require("crypto").randomBytes(16).toString("base64");
		const headers = { Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": 13, "Sec-WebSocket-Key": key };
		require("https").get("https://api.example.com:PORT/websocket", { headers }).on("upgrade", (r, c, head) => {
			let got = head;
			c.on("data", (d) => got = Buffer.concat([got, d])).on("end", () => { console.log(r.statusCode, got.subarray(2).toString()); c.end(); });
		})'`, "101 hello\n"},
	{"git clone by https", []string{"git"}, `git clone -q https://api.example.com:PORT/git/repo.git repo2 && cat repo2/file`, "hello by clone\n"},
	{"issuers of the certificates", []string{"openssl"}, `for host in api evil; do openssl s_client -connect $host.example.com:PORT -servername $host.example.com </dev/null 2>/dev/null | openssl x509 -noout -issuer; done
		openssl s_client -CApath /etc/ssl/certs -no-CAfile -verify_return_error -connect api.example.com:PORT -servername api.example.com </dev/null 2>/dev/null | grep -o 'Verification: OK'`,
		"issuer=O = rootsfs, CN = \"rootsfs run, for the hosts of its secrets, by this process\"\nissuer=CN = the test\nVerification: OK\n"},
	{"curl to another port", []string{"curl"}, `curl -s -m 10 $API_TOKEN_BASE_URL:81/hello || echo refused`, "refused\n"},
	{"git clone", []string{"git"}, `git clone -q $API_TOKEN_BASE_URL/git/repo.git repo && cat repo/file`, "hello by clone\n"},
	{"variables of the command", nil, `echo ${#API_TOKEN}; echo $API_TOKEN_BASE_URL`, fmt.Sprintf("%d\nhttp://api-token.secret.internal\n", len(credential))},
	// The pattern of grep is in a file, because grep would find it among its own arguments.
	{searchProgram, nil, `printf %s v3ryS3cret -tok3n-of-the-owner >pattern
		find /proc/[0-9]*/environ /proc/[0-9]*/cmdline /tmp /etc /run -type f -readable ! -name pattern -exec grep -laF -f pattern {} + 2>/dev/null; env | grep -F -f pattern; rm pattern; echo searched`,
		"searched\n"},
}

// isLeftOut reports whether the caller w does not run the program p. index is the position of p in
// the list. Except in the soak, only one caller runs a slow program.
func isLeftOut(p secretProgram, w caller, index int) bool {
	return knownRecipes[p.name].isSlow && !lab.Soak() && w != callers[index%2]
}

// Unmodified programs use a credential that is nowhere inside, at both levels that have a network
// of their own. Root tests one of the levels, the user the other one; see eachNetLevel.
func TestSecretPrograms(t *testing.T) {
	programs := slices.Concat([]secretProgram{{"the placeholder", nil, `echo "$API_TOKEN"`, "PLACEHOLDER\n"}}, secretPrograms, recipes(t))
	get := compileGet(t)
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	testkit.Must(t, err)
	eachNetLevel(t, func(t *testing.T, o *outside, level sandbox.Level) {
		a := newAPI(t)
		var script strings.Builder
		fmt.Fprintf(&script, "export GOROOT='%s' PATH=\"$PATH:%[1]s/bin\"; echo '%s' | base64 -d >Get.class\n", strings.TrimSpace(string(goroot)), get)
		for j, p := range programs {
			if missing(p.needs) != "" || isLeftOut(p, o.caller, j) {
				p.script = ":"
			}
			fmt.Fprintf(&script, "%s( began=$(date +%%s%%N); ( %s\n); echo \"==== $((($(date +%%s%%N) - began) / 1000000)) ms\" ) >said.%d 2>&1 </dev/null &\n",
				map[bool]string{true: "wait; "}[p.name == searchProgram], strings.ReplaceAll(p.script, "PORT", a.port), 1000+j)
		}
		script.WriteString("wait; cat said.*")
		ord := o.secretOrder(a, script.String(), "api")
		ord.Args = slices.Insert(ord.Args, len(ord.Args)-4, "--net=evil.example.com", "--pids-max=1000") // before --
		ord.setLevel(level)
		began := time.Now()
		stdout, log, code := o.run(ord)
		t.Logf("all took %v", time.Since(began))
		output, ended := endOfProgram.Split(stdout, -1), endOfProgram.FindAllStringSubmatch(stdout, -1)
		if len(output) != len(programs)+1 || code != 0 {
			t.Fatalf("exit code %d, the programs said\n%s; rootsfs: %s", code, stdout, log)
		}
		for j, p := range programs {
			t.Run(p.name, func(t *testing.T) {
				if tool := missing(p.needs); tool != "" {
					t.Skipf("this machine has no %s", tool)
				}
				if isLeftOut(p, o.caller, j) {
					t.Skip("the other user runs it")
				}
				t.Logf("it took %s", ended[j][1])
				if got := strings.ReplaceAll(output[j], strings.TrimSpace(output[0]), "PLACEHOLDER"); got != p.want {
					t.Errorf("it said\n%swant\n%s", got, p.want)
				}
			})
		}
		audit := o.owner("audit", "show", "--session", sessionName)
		for _, line := range []string{
			fmt.Sprintf("GET \"/hello\", at api.example.com:%s, secret API_TOKEN, status 200)", a.port),
			fmt.Sprintf("DELETE \"/hello\", at api.example.com:%s, secret API_TOKEN, status 403: no rule", a.port),
			"allowed  grant        -  (control, network API_TOKEN=https://api.example.com:" + a.port + ")",
		} {
			if !strings.Contains(audit, line) {
				t.Errorf("not on record: %s\n%s", line, audit)
			}
		}
		if strings.Contains(audit+log, credential) || strings.Contains(audit, "q=1") {
			t.Errorf("the credential or the query is on record or was printed: %s\n%s", audit, log)
		}
		// The session's files: records, state, what the programs have written, a kept HOME.
		if err := exec.Command("grep", "-rqaF", credential, o.base).Run(); err == nil || exitCode(err) != 1 {
			out, _ := exec.Command("grep", "-rlaF", credential, o.base).Output()
			t.Errorf("%v: the credential is in the files %s", err, out)
		}
	})
}

// When a secret is revoked, the requests that are under way end for the program and for the host, and
// no further request is answered.
func TestSecretIsRevoked(t *testing.T) {
	for _, w := range callers {
		for i, command := range [][]string{{"net", "remove", "API_TOKEN="}, {"revoke", "--net"}, {"revoke", "--all"}} {
			t.Run(w.name+" "+strings.Join(command, " "), func(t *testing.T) {
				t.Parallel()
				a, o := newAPI(t), newOutside(t, w)
				base, host := "$API_TOKEN_BASE_URL", "api-token.secret.internal"
				if i%2 == 1 {
					base, host = "https://api.example.com:"+a.port, "api.example.com"
				}
				upload := "(while echo x; do sleep 0.05; done) 2>/dev/null | curl -sS -T - " + base + "/upload >upload 2>&1 &\n"
				cmd := o.driver(o.secretOrder(a, upload+"curl -sSN "+base+"/held 2>&1; echo ended; curl -sS "+base+"/hello 2>&1", "api"))
				var log bytes.Buffer
				cmd.Stderr = &log
				out, err := cmd.StdoutPipe()
				testkit.Must(t, err)
				testkit.Must(t, cmd.Start())
				defer time.AfterFunc(giveUp, func() { _ = cmd.Process.Kill() }).Stop()
				lines := bufio.NewReader(out)
				if line, err := lines.ReadString('\n'); line != "held\n" {
					t.Fatal(line, err)
				}
				owner := func(args ...string) string {
					out, err := o.ownerCommand(append(args, "--session", sessionName)...).CombinedOutput()
					if err != nil {
						t.Errorf("%v: %v\n%s", args, err, out)
					}
					if strings.Contains(string(out), credential) {
						t.Errorf("%v says %s", args, out)
					}
					return string(out)
				}
				name := "API_TOKEN=https://api.example.com:" + a.port
				if list := owner("net", "list"); !strings.Contains(list, name+"\n") || !strings.Contains(list, "api.example.com") || !strings.Contains(list, `GET "/held"`) || !strings.Contains(list, "under way") {
					t.Errorf("listed: %s", list)
				}
				for _, args := range [][]string{{"status"}, {"status", "--json"}, {"net", "list", "--json"}} {
					if got := owner(args...); !strings.Contains(got, name) {
						t.Errorf("%v: %s", args, got)
					}
				}
				<-a.began
				owner(command...)
				<-a.ended
				<-a.ended
				rest, _ := io.ReadAll(lines)
				_ = cmd.Wait()
				// Over HTTP/2 the request may end before the connection. Then curl's exit code is 92, not 56.
				if got := string(rest); !strings.HasPrefix(got, "curl: (56)") && !strings.HasPrefix(got, "curl: (92)") || !strings.HasSuffix(got, "ended\ncurl: (6) Could not resolve host: "+host+"\n") {
					t.Errorf("the command said %q; rootsfs: %s", got, log.String())
				}
			})
		}
	}
}

// If a secret's host has an untrusted certificate or cannot be resolved, the program gets the reason
// and nothing else. If no rule allows a request, the audit log tells the reason, and rootsfs why
// tells how to allow it. If the secret's variable is not set, nothing starts.
func TestSecretNotAnswered(t *testing.T) {
	a := newAPI(t)
	o := newOutside(t, callers[0])
	script := `curl -sS -w '%{http_code}\n' $API_TOKEN_BASE_URL/hello`
	ord := o.secretOrder(a, script, "api")
	ord.Env = append(append([]string{}, o.env...), "API_TOKEN="+credential)
	want := "rootsfs: the TLS certificate of api.example.com:" + a.port + " is not trusted, or is for another name; SSL_CERT_FILE of rootsfs itself names other authorities\n502\n"
	if stdout, log, _ := o.run(ord); stdout != want {
		t.Errorf("%q; rootsfs: %s", stdout, log)
	}
	ord = o.secretOrder(a, `curl -sS -X DELETE "$API_TOKEN_BASE_URL/hello%22,%22*" -o /dev/null; curl -sS -X DELETE $API_TOKEN_BASE_URL/hello -o /dev/null`, "api")
	o.run(ord)
	why, _, code := o.run(order{Args: o.rootsfs("why", "--session", sessionName)})
	audit := o.owner("audit", "show", "--op", "request", "--session", sessionName)
	if code != 3 || !strings.Contains(why, `no rule of the secret API_TOKEN allows DELETE "/hello"`) || !strings.Contains(why, `to allow it: add "DELETE /hello" to allow in the [[secret]] block of API_TOKEN`) {
		t.Errorf("why: exit code %d, %s", code, why)
	}
	if want := `allows DELETE "/hello\",\"*"; it allows: `; !strings.Contains(audit, want) {
		t.Errorf("not on record: %s\n%s", want, audit)
	}
	if want := `allows DELETE "/hello" ("DELETE /hello" in allow of its [[secret]] block would); it allows: `; !strings.Contains(audit, want) {
		t.Errorf("not on record: %s\n%s", want, audit)
	}
	ord = o.secretOrder(a, script, "nowhere")
	if stdout, log, _ := o.run(ord); stdout != "rootsfs: nowhere.example.com:"+a.port+" cannot be resolved\n502\n" {
		t.Errorf("%q; rootsfs: %s", stdout, log)
	}
	ord = o.secretOrder(a, script, "api")
	ord.Env = append([]string{}, o.env...)
	if stdout, log, code := o.run(ord); stdout != "" || code == 0 || !strings.Contains(log, "secret API_TOKEN: the variable is not set here") {
		t.Errorf("exit code %d, %q; rootsfs: %s", code, stdout, log)
	}
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}
