package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// secretName is the name for -only.
const secretName = "secret"

// childSecret is the mode in which this program is a client that speaks https to a URL. It takes
// orders from its standard input.
const childSecret = "child-secret"

// Goals of `rootsfs run --secret`. They bound its cost against the same https requests without a
// sandbox, and against a start without --secret.
const (
	secretFirstGoal = time.Millisecond // added to a request, with or without a connect
	secretRatioGoal = 0.5              // least speed, as a fraction of the speed without a sandbox
	secretStartGoal = 0.003            // seconds, added to a start
)

// secretWay has the results of requests by one way: without a sandbox, or through rootsfs run
// --secret. Each list has one sample a repetition.
type secretWay struct {
	Download []float64 `json:"downloadPerSecond"`
	Upload   []float64 `json:"uploadPerSecond"`
	First    []float64 `json:"firstByteSeconds"` // with the connect and TLS
	Request  []float64 `json:"requestSeconds"`   // on an open connection
}

// secretReport has all results of the rows of --secret.
type secretReport struct {
	Direct secretWay `json:"direct"`
	Ours   secretWay `json:"secret"`
	// Plain and With are the seconds of `rootsfs run --net=HOST -- true` without and with --secret.
	Plain  []float64 `json:"startSeconds"`
	With   []float64 `json:"startWithSecretSeconds"`
	Broken string    `json:"broken,omitempty"`
}

// secretRows measures https requests through rootsfs run --secret and without a sandbox. It also
// measures the start of rootsfs run with and without --secret.
func (l *lab) secretRows(ctx context.Context, r *report, wanted *regexp.Regexp) error {
	n, done, err := l.networkLabFor(secretName, r, wanted)
	if n == nil || err != nil {
		return err
	}
	defer done()
	server, err := n.serveSecret()
	if err != nil {
		return err
	}
	defer server.Close()
	r.Secret = &secretReport{}
	for rep := range r.Repetitions {
		fmt.Fprintf(l.log, "bench: %4.0f s  %s %d/%d\n", time.Since(r.When).Seconds(), secretName, rep+1, r.Repetitions)
		if err := n.measureSecret(ctx, r.Secret); err != nil {
			r.Secret.Broken = err.Error()
			break
		}
	}
	return ctx.Err()
}

// serveSecret starts the https server that the clients send requests to, and sets n.port to its
// port. It adds to n.env the variables that rootsfs and the clients need.
func (n *networkLab) serveSecret() (*http.Server, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	authorities := filepath.Join(n.path("secret"), "ca.pem") // not in the root: rootsfs reads it
	err = errors.Join(os.MkdirAll(filepath.Dir(authorities), 0o755),
		os.WriteFile(authorities, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644))
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n.env = append(n.env, "SSL_CERT_FILE="+authorities, "BENCH_TOKEN=0123456789abcdef0123456789abcdef")
	_, n.port, _ = net.SplitHostPort(listener.Addr().String())
	s := &http.Server{
		Handler: http.HandlerFunc(answerSecret), ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
	}
	go func() { _ = s.ServeTLS(listener, "", "") }() // until it is closed
	return s, nil
}

// answerSecret sends as many bytes as the query says, after it has read the body.
func answerSecret(w http.ResponseWriter, r *http.Request) {
	count, err := strconv.ParseInt(r.URL.RawQuery, 10, 64)
	if _, cerr := io.Copy(io.Discard, r.Body); err != nil || cerr != nil {
		http.Error(w, "no", http.StatusBadRequest)
		return
	}
	_, _ = io.CopyN(w, anyBytes{}, count) // a client that breaks off has its own error
}

// secretRun returns a command line of rootsfs run that permits connections to the server of
// serveSecret. If hasSecret is true, the command line has --secret for this server.
func (n *networkLab) secretRun(name string, hasSecret bool, command ...string) []string {
	argv := n.run(name, "--net=127.0.0.1:"+n.port)
	argv = argv[:len(argv)-1] // without --
	if hasSecret {
		argv = append(argv, "--secret", "BENCH_TOKEN=https://127.0.0.1:"+n.port)
	}
	return append(append(argv, "--"), command...)
}

// measureSecret runs one repetition and appends the samples to r.
func (n *networkLab) measureSecret(ctx context.Context, r *secretReport) error {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	url := "https://127.0.0.1:" + n.port + "/"
	for _, way := range []struct {
		argv []string
		to   *secretWay
	}{
		{[]string{n.client, childSecret, url}, &r.Direct},
		{n.secretRun("bench-secret", true, n.client, childSecret, url), &r.Ours},
	} {
		if err := n.measureWay(ctx, way.argv, way.to); err != nil {
			return err
		}
	}
	var plain, with []float64
	for range n.tries {
		for hasSecret, to := range map[bool]*[]float64{false: &plain, true: &with} {
			argv := n.secretRun("bench-start", hasSecret, "/bin/true")
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
			cmd.Env = n.env
			began := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%v: %w: %s", argv, err, out)
			}
			*to = append(*to, time.Since(began).Seconds())
		}
	}
	r.Plain, r.With = append(r.Plain, median(plain)), append(r.With, median(with))
	return nil
}

func (n *networkLab) measureWay(ctx context.Context, argv []string, to *secretWay) error {
	c, err := n.startClient(ctx, netWay{argv: argv})
	if err != nil {
		return err
	}
	defer c.stop()
	if _, err := c.do("first", 1); err != nil { // so that the start is not measured
		return err
	}
	for _, m := range []struct {
		what  string
		count int64
		to    *[]float64
	}{{"download", n.bytes, &to.Download}, {"upload", n.bytes, &to.Upload}, {"first", n.firsts, &to.First}, {"request", n.firsts, &to.Request}} {
		v, err := c.do(m.what, m.count)
		if err != nil {
			return err
		}
		*m.to = append(*m.to, v)
	}
	return nil
}

// runSecretClient is the process of childSecret.
func runSecretClient(url string) error {
	return carryOutOrders(func(o networkOrder) (float64, error) { return requestURL(url, o) })
}

// requestURL carries an order out, by HTTP/2 as most clients do.
func requestURL(url string, o networkOrder) (float64, error) {
	transport := &http.Transport{ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	ask := func(wanted int64, body io.Reader, size int64) error {
		req, err := http.NewRequest(http.MethodPost, url+"?"+strconv.FormatInt(wanted, 10), body)
		if err != nil {
			return err
		}
		req.ContentLength = size
		res, err := transport.RoundTrip(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		got, err := io.Copy(io.Discard, res.Body)
		if err == nil && (got != wanted || res.StatusCode != http.StatusOK) {
			err = fmt.Errorf("%s, %d bytes", res.Status, got)
		}
		return err
	}
	if err := ask(1, nil, 0); err != nil {
		return 0, err
	}
	began := time.Now()
	switch o.Do {
	case "download":
		err := ask(o.Count, nil, 0)
		return float64(o.Count) / time.Since(began).Seconds(), err
	case "upload":
		err := ask(1, io.LimitReader(anyBytes{}, o.Count), o.Count)
		return float64(o.Count) / time.Since(began).Seconds(), err
	}
	var all []float64
	for range o.Count {
		if o.Do == "first" {
			transport.CloseIdleConnections()
		}
		began := time.Now()
		if err := ask(1, nil, 0); err != nil {
			return 0, err
		}
		all = append(all, time.Since(began).Seconds())
	}
	return median(all), nil
}

func (r *report) secretTable() string {
	s := r.Secret
	if s == nil || s.Broken != "" {
		return ""
	}
	table := [][]string{{"https", "download", "upload", "connect and first byte", "request"}}
	for _, way := range []struct {
		name string
		*secretWay
	}{{netDirect, &s.Direct}, {"rootsfs --secret", &s.Ours}} {
		table = append(table, []string{way.name, fmt.Sprintf("%.0f MB/s", median(way.Download)/1e6), fmt.Sprintf("%.0f MB/s", median(way.Upload)/1e6),
			fmt.Sprintf("%.0f µs", median(way.First)*1e6), fmt.Sprintf("%.0f µs", median(way.Request)*1e6)})
	}
	return format(table) + fmt.Sprintf("\n`rootsfs run --net=HOST -- true` takes %.1f ms, with --secret %.1f ms.\n", median(s.Plain)*1e3, median(s.With)*1e3)
}

func judgeSecret(r *report) []outcome {
	s := r.Secret
	if s == nil {
		return nil
	}
	ok := s.Broken == "" && len(s.With) > 0
	added := func(ours, direct []float64) time.Duration {
		return time.Duration((median(ours) - median(direct)) * 1e9)
	}
	first, request := added(s.Ours.First, s.Direct.First), added(s.Ours.Request, s.Direct.Request)
	down, up, start := median(s.Ours.Download)/median(s.Direct.Download), median(s.Ours.Upload)/median(s.Direct.Upload), median(s.With)-median(s.Plain)
	return []outcome{
		judge("connect and first byte, added by --secret", secretFirstGoal.String(), ok, first.Round(time.Microsecond).String(), first <= secretFirstGoal),
		judge("request, added by --secret", secretFirstGoal.String(), ok, request.Round(time.Microsecond).String(), request <= secretFirstGoal),
		judge("download with --secret against TLS", fmt.Sprintf("at least %.1f", secretRatioGoal), ok, fmt.Sprintf("%.2f", down), down >= secretRatioGoal),
		judge("upload with --secret against TLS", fmt.Sprintf("at least %.1f", secretRatioGoal), ok, fmt.Sprintf("%.2f", up), up >= secretRatioGoal),
		judge("start, added by --secret", fmt.Sprintf("%.0f ms", secretStartGoal*1e3), ok, fmt.Sprintf("%.1f ms", start*1e3), start <= secretStartGoal),
	}
}
