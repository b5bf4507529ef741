package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
)

// httpFlags are the flags of serving over HTTP.
type httpFlags struct {
	addr, cert, key, tokenFile string
	hosts, origins             []string
	sessions                   int
	noToken                    bool
}

func (f *httpFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.addr, "http", "", "serve over Streamable HTTP at `ADDR`, [HOST]:PORT; without HOST on the loopback")
	fs.StringVar(&f.tokenFile, "token-file", "", "`file` with the bearer token that clients send (default: one is made)")
	fs.BoolVar(&f.noToken, "no-token", false, "ask clients for no token: on the loopback only, where every local user then gets in")
	fs.StringVar(&f.cert, "tls-cert", "", "certificate `file`, PEM")
	fs.StringVar(&f.key, "tls-key", "", "`file` with the certificate's key, PEM")
	fs.StringArrayVar(&f.hosts, "host", nil, "a `name` by which clients may call the server, beside localhost; may be given again")
	fs.StringArrayVar(&f.origins, "origin", nil, "a web `origin` whose pages may call, such as https://app.example; may be given again")
	fs.IntVar(&f.sessions, "max-sessions", tools.DefaultSessions, "most sessions at a time")
}

// check refuses what would let in anybody.
func (f *httpFlags) check() error {
	if f.addr == "" {
		if f.tokenFile != "" || f.cert != "" || f.key != "" || f.noToken {
			return usage(errors.New("--token-file, --no-token, --tls-cert and --tls-key go with --http"))
		}
		return nil
	}
	host, _, err := net.SplitHostPort(f.addr)
	if err != nil {
		return usage(fmt.Errorf("--http %s: write [HOST]:PORT, such as :8931", shown(f.addr)))
	}
	if host == "" {
		f.addr = "localhost" + f.addr
	}
	switch {
	case (f.cert == "") != (f.key == ""):
		return usage(errors.New("--tls-cert and --tls-key go together"))
	case f.noToken && f.tokenFile != "":
		return usage(errors.New("--no-token and --token-file contradict each other"))
	case f.sessions < 1:
		return usage(errors.New("--max-sessions: write a number above 0"))
	case host == "" || loopback(host):
	case f.noToken:
		return usage(fmt.Errorf("--http %s is no loopback address: leave --no-token out", shown(f.addr)))
	case f.cert == "":
		return usage(fmt.Errorf("--http %s is no loopback address: the token would pass unencrypted; give --tls-cert and --tls-key", shown(f.addr)))
	}
	return nil
}

// loopback reports whether a host of --http is this machine only, by its text: a
// name may come to mean another address.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Bounds of connections.
const (
	httpHeader    = 16 << 10
	httpWithin    = 10 * time.Second // of the header
	httpIdle      = 2 * time.Minute
	httpConns     = 4 // for each session: its stream and its calls
	httpGraceful  = 3 * time.Second
	leastToken    = 16 // bytes
	greatestToken = 4096
)

// token is the token of the file, or a new one in a file of the session's.
func (f *httpFlags) token(s *session.Session) (token, path string, err error) {
	if f.noToken {
		return "", "", nil
	}
	if f.tokenFile != "" {
		token, err = readToken(f.tokenFile)
		return token, f.tokenFile, err
	}
	dir, err := config.StateDir()
	if err != nil {
		return "", "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", fmt.Errorf("make the directory of the token: %w", err)
	}
	token, path = rand.Text(), filepath.Join(dir, s.Name()+".token")
	// Never into a file that is there: its mode, or a link, would be another's.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", "", fmt.Errorf("remove the last token: %w", err)
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		_, err = io.WriteString(out, token+"\n")
		err = errors.Join(err, out.Close())
	}
	if err != nil {
		return "", "", fmt.Errorf("keep the token: %w", err)
	}
	return token, path, nil
}

// readToken reads a token that others cannot read.
func readToken(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", usage(fmt.Errorf("--token-file: %w", err))
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", usage(fmt.Errorf("--token-file: %w", err))
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", usage(fmt.Errorf("--token-file %s can be read by others; chmod 600 %s", shown(path), shellWord(path)))
	}
	text, err := io.ReadAll(io.LimitReader(file, greatestToken))
	if err != nil {
		return "", usage(fmt.Errorf("--token-file: %w", err))
	}
	token := strings.TrimSpace(string(text))
	if len(token) < leastToken || strings.ContainsAny(token, " \t\r\n") {
		return "", usage(fmt.Errorf("--token-file %s: write one token of %d characters or more, such as of: openssl rand -hex 16", shown(path), leastToken))
	}
	return token, nil
}

// servingMessage is the line with --json.
type servingMessage struct {
	URL       string `json:"url"`
	Session   string `json:"session"`
	TokenFile string `json:"token_file,omitempty"`
}

// serving says where the server is; a token that was made is shown this once.
func (a *app) serving(url, session, file, token string, made bool) {
	if a.json {
		// Whoever reads has gone away if this fails; the server has not.
		_ = a.line(servingMessage{url, session, file})
		return
	}
	a.say("serving at %s; session %s", url, session)
	switch {
	case file != "" && made:
		a.say("bearer token, shown this once and kept in %s: %s", shown(file), token)
	case file != "":
		a.say("clients send the bearer token in %s", shown(file))
	}
}

// serveHTTP serves until ctx ends, then lets calls end for a moment.
func (a *app) serveHTTP(ctx context.Context, s *session.Session, f *serveFlags) error {
	token, file, err := f.http.token(s)
	if err != nil {
		return err
	}
	if file != "" && f.http.tokenFile == "" {
		defer os.Remove(file)
	}
	hosts := f.http.hosts
	if host, _, err := net.SplitHostPort(f.http.addr); err == nil {
		hosts = append(hosts, host)
	}
	front := tools.NewHTTP(func(who guard.Subject) *tools.Server { return s.NewTools(who, f.tools()) }, tools.HTTPOptions{
		Registry: s.Registry(), Subject: guard.Subject(s.Name()),
		Token: token, Hosts: hosts, Origins: f.http.origins, Sessions: f.http.sessions, Log: s.Log(),
	})
	defer front.Close()
	mux := http.NewServeMux()
	mux.Handle("/mcp", front)
	srv := &http.Server{
		Handler: mux, ReadHeaderTimeout: httpWithin, IdleTimeout: httpIdle, MaxHeaderBytes: httpHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.http.addr)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	url := "http://" + l.Addr().String() + "/mcp"
	l = netutil.LimitListener(l, httpConns*f.http.sessions)
	if f.http.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.http.cert, f.http.key)
		if err != nil {
			_ = l.Close()
			return usage(fmt.Errorf("--tls-cert: %w", err))
		}
		url = "https" + strings.TrimPrefix(url, "http")
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	}
	a.serving(url, s.Name(), file, token, f.http.tokenFile == "")
	over := make(chan error, 1)
	go func() { over <- srv.Serve(l) }()
	select {
	case err = <-over:
	case <-ctx.Done():
		last, cancel := context.WithTimeout(context.Background(), httpGraceful)
		defer cancel()
		if srv.Shutdown(last) != nil {
			_ = srv.Close() // event streams do not end by themselves
		}
		err = <-over
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
