package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/broker/tools/oauth"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard"
)

// httpFlags are the flags for serving over HTTP. Many are passed unchanged in the request to a
// session.
type httpFlags struct {
	control.HTTPRequest
	addr, cert, key, tokenFile string
	noToken                    bool
}

func (f *httpFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.addr, "http", "", "serve over Streamable HTTP at `ADDR`: [HOST]:PORT, by default on the loopback address")
	pathVar(fs, &f.tokenFile, "token-file", "`file` with the bearer token that clients send (default: a new one)")
	fs.BoolVar(&f.noToken, "no-token", false, "ask for no token: on the loopback address only, and every local user gets in")
	pathVar(fs, &f.cert, "tls-cert", "certificate `file`, PEM")
	pathVar(fs, &f.key, "tls-key", "`file` with the certificate's key, PEM")
	fs.StringArrayVar(&f.Hosts, "host", nil, "a further `name` by which clients call the server, or NAME:PORT; repeatable")
	fs.StringArrayVar(&f.Origins, "origin", nil, "a web `origin` whose pages may call, such as https://app.example; repeatable")
	fs.StringVar(&f.Issuer, "oauth-issuer", "", "take access tokens of the OAuth server at this `URL` instead of a bearer token")
	fs.StringArrayVar(&f.Audiences, "oauth-audience", nil, "`name` of this server in tokens (default: the URL that clients call); repeatable")
	fs.StringArrayVar(&f.Scopes, "oauth-scope", nil, "a `scope` that tokens must have; repeatable")
	fs.IntVar(&f.Sessions, "max-sessions", tools.DefaultSessions, "most sessions at a time")
	fs.IntVar(&f.UserSessions, "max-user-sessions", tools.DefaultUserSessions, "most sessions of one OAuth user at a time")
}

// check refuses flags that contradict each other, and flags that would let in every client. It
// completes an address without a host by the loopback host.
func (f *httpFlags) check() error {
	if f.addr == "" {
		if f.tokenFile != "" || f.cert != "" || f.key != "" || f.noToken || f.Issuer != "" {
			return usage(errors.New("--token-file, --no-token, --oauth-issuer, --tls-cert and --tls-key go with --http: give it as well"))
		}
		return nil
	}
	if err := f.checkOAuth(); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(f.addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return usage(fmt.Errorf("--http %s: write [HOST]:PORT, such as :8931, with a port up to 65535", quoteIfNeeded(f.addr)))
	}
	if err := f.checkNames(); err != nil {
		return err
	}
	if host == "" {
		f.addr = "localhost" + f.addr
	}
	switch {
	case (f.cert == "") != (f.key == ""):
		return usage(errors.New("--tls-cert and --tls-key go together: give both"))
	case f.noToken && f.tokenFile != "":
		return usage(errors.New("--no-token and --token-file cannot be combined"))
	case f.Sessions < 1:
		return usage(errors.New("--max-sessions: write a number above 0"))
	case host == "" || isLoopback(host):
	case f.noToken:
		return usage(fmt.Errorf("--http %s is not a loopback address: leave --no-token out", quoteIfNeeded(f.addr)))
	case f.cert == "":
		return usage(fmt.Errorf("--http %s is not a loopback address: the token would pass unencrypted; give --tls-cert and --tls-key", quoteIfNeeded(f.addr)))
	}
	return nil
}

// checkNames refuses names that no request can have.
func (f *httpFlags) checkNames() error {
	for _, h := range f.Hosts {
		name, port, err := net.SplitHostPort(h)
		if err != nil {
			name, port = strings.Trim(h, "[]"), "1"
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || name == "" || strings.ContainsAny(name, "/@ ") || strings.Contains(name, ":") && net.ParseIP(name) == nil {
			return usage(fmt.Errorf("--host %s: write NAME or NAME:PORT, such as files.example:443", quoteIfNeeded(h)))
		}
	}
	for _, o := range f.Origins {
		if u, err := url.Parse(o); err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return usage(fmt.Errorf("--origin %s: write SCHEME://HOST[:PORT], such as https://app.example, without anything behind it", quoteIfNeeded(o)))
		}
	}
	return nil
}

// checkOAuth refuses OAuth flags that are invalid or contradict each other. With --oauth-issuer it
// also refuses certificate authorities that programs can write, and waits until the authorities are
// read.
func (f *httpFlags) checkOAuth() error {
	switch {
	case f.UserSessions < 1:
		return usage(errors.New("--max-user-sessions: write a number above 0"))
	case f.Issuer == "" && len(f.Audiences)+len(f.Scopes) > 0:
		return usage(errors.New("--oauth-audience and --oauth-scope go with --oauth-issuer"))
	case f.Issuer == "" && f.UserSessions != tools.DefaultUserSessions:
		return usage(errors.New("--max-user-sessions goes with --oauth-issuer: without it all clients are one user"))
	case f.Issuer == "":
		return nil
	case f.noToken || f.tokenFile != "":
		return usage(errors.New("--oauth-issuer says whose tokens are taken: leave --token-file and --no-token out"))
	case slices.Contains(f.Audiences, "") || slices.Contains(f.Scopes, ""):
		return usage(errors.New("--oauth-audience and --oauth-scope: write a name"))
	}
	if err := oauth.CheckURL(f.Issuer); err != nil {
		return usage(fmt.Errorf("--oauth-issuer %s %w", quoteIfNeeded(f.Issuer), err))
	}
	wait, err := writabledirs.NewJudge().CertificateFiles()
	if err == nil {
		wait()
	}
	return err
}

// resources returns the URL of the server for each of its names. A name without a port gets the
// listener's port, because another server may listen at another port.
func (f *httpFlags) resources(at *url.URL) []string {
	host, port := at.Hostname(), at.Port()
	hosts := slices.Concat([]string{host}, f.names())
	if isLoopback(host) {
		hosts = append(hosts, "localhost", "127.0.0.1", "::1")
	}
	var list []string
	for _, h := range hosts {
		u := *at
		u.Host = net.JoinHostPort(strings.Trim(h, "[]"), port)
		if _, _, err := net.SplitHostPort(h); err == nil {
			u.Host = h // with a port of its own
		}
		if u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80" {
			u.Host = strings.TrimSuffix(u.Host, ":"+port)
		}
		if !slices.Contains(list, u.String()) {
			list = append(list, u.String())
		}
	}
	return list
}

// isLoopback reports whether a host of --http is this machine only. It judges the text, since a
// name may later resolve to another address.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// servingMessage is the line that printServing prints with --json.
type servingMessage struct {
	URL       string `json:"url"`
	Session   string `json:"session"`
	TokenFile string `json:"token_file,omitempty"`
	Issuer    string `json:"issuer,omitempty"`
}

// printServing prints the address of the server. A new token is shown only here.
func (a *app) printServing(m servingMessage, token string, isNew bool) {
	if a.JSON {
		// An error means that the reader has gone. The server goes on.
		_ = a.line(m)
		return
	}
	a.say("serving at %s; session %s", m.URL, m.Session)
	file := m.TokenFile
	switch {
	case m.Issuer != "":
		a.say("clients send an access token of %s", quoteIfNeeded(m.Issuer))
	case file != "" && isNew:
		a.say("bearer token, shown this once and kept in %s: %s", quoteIfNeeded(file), token)
	case file != "":
		a.say("clients send the bearer token in %s", quoteIfNeeded(file))
	}
}

// request returns the request to the session for serving at a URL.
func (f *serveFlags) request(at *url.URL, token string) control.HTTPRequest {
	req := f.http.HTTPRequest
	req.ToolsRequest, req.Path, req.Port, req.Token = f.tools(), at.Path, at.Port(), token
	req.Hosts, req.Resources = f.http.names(), f.http.resources(at)
	return req
}

// overHTTP opens the port and calls serve, which serves until ctx ends. session is the name of
// the session.
func (a *app) overHTTP(ctx context.Context, session string, f *serveFlags, serve func(ctx context.Context, l *net.TCPListener, req control.HTTPRequest, ready func()) error) error {
	cert, key, err := f.http.readPair()
	if err != nil {
		return err
	}
	l, at, err := f.http.listen(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	token, file, done, err := f.http.token(session)
	if err != nil {
		return err
	}
	defer done()
	req := f.request(at, token)
	req.Certificate, req.Key = cert, key
	return serve(ctx, l, req, func() {
		a.printServing(servingMessage{at.String(), session, file, f.http.Issuer}, token, f.http.tokenFile == "")
		if f.ask && !a.JSON {
			a.say("questions of clients wait for your answer; see them come: rootsfs consent list --watch")
		}
	})
}

// serveHTTP serves a session of this process.
func (a *app) serveHTTP(ctx context.Context, s *session.Session, f *serveFlags) error {
	return a.overHTTP(ctx, s.Name(), f, func(ctx context.Context, l *net.TCPListener, req control.HTTPRequest, ready func()) error {
		front, err := s.NewFront(ctx, guard.Subject(s.Name()), req)
		if err != nil {
			return err
		}
		defer front.Close()
		ready()
		return front.Serve(ctx, l)
	})
}

// shareHTTP makes a live session serve the clients of the port.
func (a *app) shareHTTP(ctx context.Context, c *control.Client, f *serveFlags) error {
	return a.overHTTP(ctx, c.Info().Name, f, func(ctx context.Context, l *net.TCPListener, req control.HTTPRequest, ready func()) error {
		front, err := c.HTTP(ctx, req, l)
		if err != nil {
			return err
		}
		defer front.Close()
		ready()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = io.Copy(io.Discard, front)
		}()
		select {
		case <-ended:
			return fmt.Errorf("%w: %s has ended", control.ErrNoSession, quoteIfNeeded(c.Info().Name))
		case <-ctx.Done(): // a signal
			_ = l.Close()
			_ = front.CloseWrite()
			<-ended // the port is closed
			return nil
		}
	})
}

// listen opens the port, and returns its URL.
func (f *httpFlags) listen(ctx context.Context) (l *net.TCPListener, at *url.URL, err error) {
	at = &url.URL{Scheme: "http", Path: "/mcp"}
	if f.cert != "" {
		at.Scheme = "https"
	}
	all, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.addr)
	if err != nil {
		if errors.Is(err, unix.EADDRINUSE) {
			err = fmt.Errorf("%w; choose another port, or :0 for any that is free", err)
		}
		return nil, nil, fmt.Errorf("--http: %w", err)
	}
	at.Host = all.Addr().String()
	return all.(*net.TCPListener), at, nil
}

// readPair reads the certificate and its key.
func (f *httpFlags) readPair() (cert, key []byte, err error) {
	if f.cert == "" {
		return nil, nil, nil
	}
	judge := writabledirs.NewJudge()
	cert, err = judge.ReadFile(f.cert)
	if err == nil {
		key, err = judge.ReadFile(f.key)
	}
	if err == nil {
		_, err = tls.X509KeyPair(cert, key)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	return cert, key, nil
}

// names returns the names by which clients may call, beside those of the loopback.
func (f *httpFlags) names() []string {
	if host, _, err := net.SplitHostPort(f.addr); err == nil {
		return append(slices.Clone(f.Hosts), host)
	}
	return f.Hosts
}
