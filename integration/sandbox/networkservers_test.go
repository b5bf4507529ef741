package sandbox

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// servers holds the ports of the servers that programs connect to, at 127.0.0.5. Shell scripts get
// each port in a variable that has the name of the field.
type servers struct {
	HTTPS, GREETER, SSH, POSTGRES, REDIS string
	certificate                          string // of the HTTPS server, in PEM, for api.example.com and evil.example.com
}

func newServers(t *testing.T) servers {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello by", r.Method) })
	mux.HandleFunc("/websocket", greetWebSocket)
	mux.HandleFunc("/registry/", serveRegistry)
	mux.HandleFunc("/simple/", serveIndex)
	mux.HandleFunc("/grpc/", answerCall)
	mux.Handle("/apt/", serveDebs())
	repos := ""
	if missing([]string{"git"}) == "" {
		repos = repository(t)
		path, err := exec.Command("git", "--exec-path").Output()
		testkit.Must(t, err)
		mux.Handle("/git/", &cgi.Handler{
			Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"), Root: "/git",
			Env: []string{"GIT_PROJECT_ROOT=" + repos, "GIT_HTTP_EXPORT_ALL=1"},
		})
	}
	s := httptest.NewUnstartedServer(mux)
	s.Listener.Close()
	s.Listener = listenAt(t)
	cert := certificate(t)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // the programs report the errors themselves
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return servers{
		HTTPS:       portOf(s.Listener),
		GREETER:     answerConns(t, greet),
		SSH:         answerConns(t, sshServer(t, repos)),
		POSTGRES:    answerConns(t, greetPostgres),
		REDIS:       answerConns(t, greetRedis),
		certificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})),
	}
}

// certificate makes a self-signed certificate for api.example.com and evil.example.com.
func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"api.example.com", "evil.example.com"}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	testkit.Must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func listenAt(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.5:0")
	testkit.Must(t, err)
	return l
}

func portOf(l net.Listener) string { return fmt.Sprint(l.Addr().(*net.TCPAddr).Port) }

// answerConns listens at 127.0.0.5, runs f for each connection, and returns the port. At the end of
// the test it waits until each call of f has returned.
func answerConns(t *testing.T, f func(net.Conn)) (port string) {
	t.Helper()
	l := listenAt(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { defer c.Close(); f(c) })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return portOf(l)
}

// greet sends the first line, as SMTP and MySQL do, and repeats one line of the client.
func greet(c net.Conn) {
	fmt.Fprint(c, "220 ready\n")
	if line, err := bufio.NewReader(c).ReadString('\n'); err == nil {
		fmt.Fprint(c, "250 "+line)
	}
}

// greetPostgres declines TLS, and answers the startup message with an error.
func greetPostgres(c net.Conn) {
	for {
		var head [8]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		size, code := binary.BigEndian.Uint32(head[:4]), binary.BigEndian.Uint32(head[4:])
		switch {
		case size == 8: // asks for TLS, or for GSSAPI
			fmt.Fprint(c, "N")
		case code == 3<<16 && size < 1000:
			if _, err := io.CopyN(io.Discard, c, int64(size)-8); err != nil {
				return
			}
			fields := "SFATAL\x00C28000\x00Mhello by startup\x00\x00"
			c.Write(binary.BigEndian.AppendUint32([]byte("E"), uint32(len(fields)+4)))
			fmt.Fprint(c, fields)
			return
		default:
			return
		}
	}
}

// greetRedis answers the command PING without arguments, and no other.
func greetRedis(c net.Conn) {
	want := "*1\r\n$4\r\nping\r\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err == nil && string(got) == want {
		fmt.Fprint(c, "+PONG\r\n")
		_, _ = io.Copy(io.Discard, c)
	}
}

// answerCall answers a call of gRPC: a message, and a status in the trailers.
func answerCall(w http.ResponseWriter, r *http.Request) {
	message, _ := io.ReadAll(r.Body)
	if r.ProtoMajor != 2 || len(message) < 5 {
		http.Error(w, "this is no call", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	text := "hello by call of " + string(message[5:])
	w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...))
	w.Header().Set("Grpc-Status", "0")
}

// serveIndex serves a package index for pip. The index has one wheel, of the package dep.
func serveIndex(w http.ResponseWriter, r *http.Request) {
	const wheel = "dep-1.0.0-py3-none-any.whl"
	if !strings.HasSuffix(r.URL.Path, wheel) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!DOCTYPE html><a href="/simple/%s">%[1]s</a>`, wheel)
		return
	}
	packed := zip.NewWriter(w)
	for name, text := range map[string]string{
		"dep.py":                       `text = "hello by import"`,
		"dep-1.0.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: dep\nVersion: 1.0.0\n",
		"dep-1.0.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"dep-1.0.0.dist-info/RECORD":   "",
	} {
		if f, err := packed.Create(name); err == nil {
			_, _ = io.WriteString(f, text)
		}
	}
	_ = packed.Close()
}

// greetWebSocket sends one text frame (RFC 6455).
func greetWebSocket(w http.ResponseWriter, r *http.Request) {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n\x81\x05hello",
		base64.StdEncoding.EncodeToString(sum[:]))
}

// serveRegistry serves a registry for npm with version 1.0.0 of the package dep.
func serveRegistry(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, ".tgz") {
		fmt.Fprintf(w, `{"name": "dep", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": "dep", "version": "1.0.0",
			"dist": {"tarball": "https://%s/registry/dep/-/dep-1.0.0.tgz"}}}}`, r.Host)
		return
	}
	zipped := gzip.NewWriter(w)
	packed := tar.NewWriter(zipped)
	for name, text := range map[string]string{
		"package/package.json": `{"name": "dep", "version": "1.0.0", "main": "index.js"}`,
		"package/index.js":     `module.exports = "hello by require"`,
	} {
		_ = packed.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))})
		_, _ = io.WriteString(packed, text)
	}
	_ = packed.Close()
	_ = zipped.Close()
}

// repository makes a git repository, and returns the directory that it lies in.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script := `git init -q --bare repo.git && cd repo.git && git config http.receivepack true
		tree=$(printf '100644 blob %s\tfile\n' $(echo hello by clone | git hash-object -w --stdin) | git mktree)
		git update-ref HEAD $(git -c user.name=n -c user.email=e commit-tree -m m $tree)`
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make a repository: %v\n%s", err, out)
	}
	return dir
}

// sshServer returns the function that serves one SSH connection. Everybody may connect, and fetch
// from repo.git in the directory repos.
func sshServer(t *testing.T, repos string) func(net.Conn) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	testkit.Must(t, err)
	signer, err := ssh.NewSignerFromKey(key)
	testkit.Must(t, err)
	config := &ssh.ServerConfig{NoClientAuth: true}
	config.AddHostKey(signer)
	return func(c net.Conn) {
		conn, channels, requests, err := ssh.NewServerConn(c, config)
		if err != nil {
			return
		}
		defer conn.Close()
		go ssh.DiscardRequests(requests)
		for ask := range channels {
			channel, requests, err := ask.Accept()
			if err != nil {
				return
			}
			for r := range requests {
				_ = r.Reply(r.Type == "exec" || r.Type == "env", nil)
				if r.Type == "exec" {
					uploadPack(channel, filepath.Join(repos, "repo.git"))
				}
			}
		}
	}
}

func uploadPack(channel ssh.Channel, repo string) {
	cmd := exec.Command("git", "upload-pack", repo)
	in, err := cmd.StdinPipe()
	if err == nil {
		go func() { _, _ = io.Copy(in, channel); in.Close() }()
		cmd.Stdout = channel
		err = cmd.Run()
	}
	status := uint32(0)
	if err != nil {
		status = 1
	}
	_, _ = channel.SendRequest("exit-status", false, binary.BigEndian.AppendUint32(nil, status))
	channel.Close()
}
