package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// secretTargets describe a credential that this program uses and must not have. The rules of the
// credential allow only GET /hello.
type secretTargets struct {
	Base   string    // the host that stands for Host inside, without a port
	Host   string    // the host outside that accepts the credential
	Port   string    // its port
	Evil   string    // another host of the same server
	File   string    // the file outside that holds the credential
	Halves [2]string // the halves of the credential; the whole is nowhere in this program's arguments

	byHTTPS  bool // ask connects to Host by https, and not to Base
	hasAsked bool // ask was called
}

// requestHost returns the value of the Host header.
func (t *secretTargets) requestHost() string {
	if t.byHTTPS {
		return t.Host + ":" + t.Port
	}
	return t.Base
}

// owned is the host's answer to a request that is not allowed.
const owned = "owned"

// secretAttempts try to get hold of the credential, or to use it for a request that is not
// allowed. The first one is the allowed request.
var secretAttempts = []struct {
	name string
	try  func(t *secretTargets) error
}{
	{"", func(t *secretTargets) error { return t.ask("GET /hello HTTP/1.1", "Host: "+t.requestHost()) }},
	{"find the key in variables and arguments of a process", findKey},
	{"find it in the memory of another process", findKeyInMemory},
	{"read the file that holds it", func(t *secretTargets) error { return t.holds(os.ReadFile(t.File)) }},
	{"ask for a path that no rule allows", func(t *secretTargets) error { return t.get("/admin") }},
	{"use another method", func(t *secretTargets) error { return t.ask("DELETE /hello HTTP/1.1", "Host: "+t.requestHost()) }},
	{"climb out of an allowed path", func(t *secretTargets) error { return t.get("/hello/../admin") }},
	{"the same with an encoded slash", func(t *secretTargets) error { return t.get("/hello/..%2fadmin") }},
	{"the same, encoded twice", func(t *secretTargets) error { return t.get("/hello/%252e%252e/admin") }},
	{"the same with a backslash", func(t *secretTargets) error { return t.get("/hello/..\\admin") }},
	{"the same with a parameter", func(t *secretTargets) error { return t.get("/hello/..;/admin") }},
	{"the same with an encoded question mark", func(t *secretTargets) error { return t.get("/hello%3f/../admin") }},
	{"name another method in a header", func(t *secretTargets) error { return t.get("/hello", "X-HTTP-Method-Override: DELETE") }},
	{"name another path in a header", func(t *secretTargets) error { return t.get("/hello", "X_Original_URL: /admin") }},
	{"send another's key in the query", func(t *secretTargets) error { return t.get("/hello?access_token=another") }},
	{"name another host", func(t *secretTargets) error { return t.ask("GET /hello HTTP/1.1", "Host: "+t.Evil) }},
	{"use it as a proxy", func(t *secretTargets) error {
		return t.ask("GET https://"+t.Evil+":"+t.Port+"/admin HTTP/1.1", "Host: "+t.Evil)
	}},
	{"have it open a tunnel (CONNECT)", func(t *secretTargets) error { return t.ask("CONNECT "+t.Evil+":"+t.Port+" HTTP/1.1", "Host: "+t.Evil) }},
	{"hide a second request in a body", func(t *secretTargets) error {
		return t.ask("POST /hello HTTP/1.1", "Host: "+t.requestHost(), "Content-Length: 4", "Transfer-Encoding: chunked", "", "0", "", "DELETE /hello HTTP/1.1", "Host: "+t.requestHost())
	}},
	{"speak another HTTP, which no rule sees (Upgrade)", func(t *secretTargets) error {
		return t.get("/hello", "Connection: Upgrade", "Upgrade: HTTP/2.0")
	}},
	{"have the host send the key back (TRACE)", func(t *secretTargets) error { return t.ask("TRACE /hello HTTP/1.1", "Host: "+t.requestHost()) }},
	{"the same in a header of an answer", func(t *secretTargets) error { return t.get("/hello?echo") }},
	{"the same in a redirect", func(t *secretTargets) error { return t.get("/hello?told") }},
	{"have a redirect take the key to another host", func(t *secretTargets) error { return t.get("/hello?away") }},
	{"connect to the name at another port", func(t *secretTargets) error { return reach(t.Base + ":81") }},
	{"connect to the key's host past rootsfs", reachPast},
	{"look up the name of another secret", func(*secretTargets) error { return resolve("other.secret.internal", "udp", "") }},
}

// attackSecret makes the attempts. If an attempt calls ask and fails, attackSecret makes it again
// by https.
func attackSecret(raw string) int {
	var t secretTargets
	if err := json.Unmarshal([]byte(raw), &t); err != nil {
		return 2
	}
	return atOnce(len(secretAttempts), func(i int) (string, error) {
		own, a := t, secretAttempts[i]
		err := a.try(&own)
		if own.hasAsked && err != nil {
			own.byHTTPS = true
			if again := a.try(&own); again == nil || outcome(again) != outcome(err) {
				err = again
			}
		}
		return a.name, err
	})
}

// key joins the halves of the credential.
func (t *secretTargets) key() []byte { return []byte(t.Halves[0] + t.Halves[1]) }

// holds returns nil if read contains the credential and err is nil.
func (t *secretTargets) holds(read []byte, err error) error {
	if err == nil && !bytes.Contains(read, t.key()) {
		err = errNotThere
	}
	return err
}

var errNotThere = errors.New("it is not there")

func findKey(t *secretTargets) error {
	for _, glob := range []string{"/proc/[0-9]*/environ", "/proc/[0-9]*/cmdline"} {
		files, _ := filepath.Glob(glob)
		for _, f := range files {
			if t.holds(os.ReadFile(f)) == nil {
				return nil
			}
		}
	}
	return errNotThere
}

// findKeyInMemory searches the memory of all processes except this one, because this process has
// joined the key's halves. It skips regions larger than 256 MiB.
func findKeyInMemory(t *secretTargets) error {
	why := errNotThere
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range procs {
		if filepath.Base(dir) == fmt.Sprint(os.Getpid()) {
			continue
		}
		maps, err := os.ReadFile(dir + "/maps")
		if err != nil {
			why = err
			continue
		}
		memory, err := os.Open(dir + "/mem")
		if err != nil {
			why = err
			continue
		}
		defer memory.Close()
		for line := range strings.Lines(string(maps)) {
			var from, to int64
			if n, _ := fmt.Sscanf(line, "%x-%x", &from, &to); n != 2 || to-from > 256<<20 {
				continue
			}
			part := make([]byte, to-from)
			n, _ := memory.ReadAt(part, from)
			if bytes.Contains(part[:n], t.key()) {
				return nil
			}
		}
	}
	return why
}

func (t *secretTargets) get(path string, headers ...string) error {
	return t.ask(append([]string{"GET " + path + " HTTP/1.1", "Host: " + t.requestHost()}, headers...)...)
}

// reachPast connects to the host outside. It returns nil if the certificate of the answer is not
// one of rootsfs.
func reachPast(t *secretTargets) error {
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: netPatience}, "tcp", t.Host+":"+t.Port, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // any certificate is looked at
	if err != nil {
		return err
	}
	defer c.Close()
	if issuer := c.ConnectionState().PeerCertificates[0].Issuer; len(issuer.Organization) == 1 && issuer.Organization[0] == "rootsfs" {
		return errAnswered
	}
	return nil
}

// errAnswered means that rootsfs, and not the host, has answered.
var errAnswered = errors.New("rootsfs answers")

// dial connects to Base, or to Host if byHTTPS is set. It sets hasAsked.
func (t *secretTargets) dial() (net.Conn, error) {
	t.hasAsked = true
	if t.byHTTPS {
		return tls.DialWithDialer(&net.Dialer{Timeout: netPatience}, "tcp", t.Host+":"+t.Port, nil)
	}
	return net.DialTimeout("tcp", t.Base+":80", netPatience)
}

// ask sends lines to the host of the secret. It returns nil if an answer contains the credential,
// or owned, the answer to a forbidden request. Otherwise it returns errLeftOut for status 200, an
// error with any other status, or the reason why no answer came.
func (t *secretTargets) ask(lines ...string) error {
	c, err := t.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(netPatience))
	if _, err := io.WriteString(c, strings.Join(lines, "\r\n")+"\r\n\r\n"); err != nil {
		return err
	}
	var all bytes.Buffer
	method, _, _ := strings.Cut(lines[0], " ")
	res, err := http.ReadResponse(bufio.NewReader(io.TeeReader(c, &all)), &http.Request{Method: method})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	_ = c.SetDeadline(time.Now().Add(100 * time.Millisecond)) // for an answer to a second request
	_, _ = io.Copy(&all, c)
	if bytes.Contains(all.Bytes(), []byte(owned)) || bytes.Contains(all.Bytes(), t.key()) {
		return nil
	}
	if res.StatusCode == http.StatusOK {
		return errLeftOut
	}
	return fmt.Errorf("status %d", res.StatusCode)
}

// errLeftOut means that rootsfs has sent the request to the host without the part that makes
// it an attack.
var errLeftOut = errors.New("it is left out")
