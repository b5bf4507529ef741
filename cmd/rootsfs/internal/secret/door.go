package secret

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// maxStreams bounds the requests by HTTP/2 that a connection of the program has at a time.
const maxStreams = 32

// maxFrame bounds the frames of the program's bodies. A frame is passed on when all of it has come, and
// one as large as maxUnsent would leave the program waiting meanwhile.
const maxFrame = 32 << 10

// Door answers the program's own https connections to the host of secrets. It ends TLS with a
// certificate for that host, and gives each request to the proxy of one of the secrets.
type Door struct {
	proxies     []*Proxy // of secrets with the same host and port
	certificate tls.Certificate
}

// NewDoor returns the door to the host of the secrets of some proxies.
func NewDoor(a *Authority, proxies []*Proxy) (*Door, error) {
	certificate, err := a.leaf(proxies[0].secret.URL.Host)
	return &Door{proxies, certificate}, err
}

// Serve answers the connections of the program until l fails.
func (d *Door) Serve(l net.Listener) {
	s := newServer(d)
	s.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: maxUnsent, MaxReceiveBufferPerStream: maxUnsent, MaxReadFrameSize: maxFrame,
	}
	s.TLSConfig = &tls.Config{GetConfigForClient: d.configFor, Certificates: []tls.Certificate{d.certificate}, MinVersion: tls.VersionTLS12}
	s.ConnState = d.noteHandshake
	_ = s.ServeTLS(l, "", "") // it ends when l fails
}

// configFor returns the configuration for a client, without a certificate if it asks for
// another host: the client then gets the alert unrecognized_name.
func (d *Door) configFor(h *tls.ClientHelloInfo) (*tls.Config, error) {
	if h.ServerName == "" || sameHost(h.ServerName, d.proxies[0].secret.URL.Host) {
		return nil, nil // the server's own
	}
	return &tls.Config{MinVersion: tls.VersionTLS12}, nil
}

func sameHost(a, b string) bool { return strings.EqualFold(strings.TrimSuffix(a, "."), b) }

// noteHandshake records that the program has refused the certificate, as a request without a
// method.
func (d *Door) noteHandshake(c net.Conn, state http.ConnState) {
	t, ok := c.(*tls.Conn)
	if state != http.StateClosed || !ok || t.ConnectionState().HandshakeComplete {
		return
	}
	var alert *net.OpError
	if err := t.Handshake(); !errors.As(err, &alert) || alert.Op != "remote error" {
		return
	}
	p := d.proxies[0]
	_ = p.opt.Record(Request{ // a refusal needs no reserved room
		Secret: p.secret.Name, Host: p.secret.URL.Authority(), Began: time.Now(),
		Refused: fmt.Errorf("the program does not trust the certificate authority of this run (%s): it has authorities of its own; let it use the base URL, or give it the file of the variable SSL_CERT_FILE", names.Escape(alert.Err.Error())),
	})
}

// ServeHTTP implements http.Handler.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.proxyOf(r).ServeHTTP(w, r) }

// proxyOf returns the proxy for a request: of the secret whose placeholder the request has, or
// else of the one whose URL names the path most closely. Secrets that were revoked come last.
func (d *Door) proxyOf(r *http.Request) *Proxy {
	best, bestScore := d.proxies[0], -1
	written, _, _ := strings.Cut(r.RequestURI, "?")
	path, err := parsePath(written)
	for _, p := range d.proxies {
		if p.opt.Live != nil && !p.opt.Live() {
			continue
		}
		score := 0
		if prefix := p.secret.URL.Prefix; err == nil && path.below(prefix) {
			score = 1 + len(prefix)
		}
		if p.isPresented(r) {
			score += maxHeader // more than any prefix of a path has
		}
		if score > bestScore {
			best, bestScore = p, score
		}
	}
	return best
}

// isFor reports whether a request by https is for the host of the secret.
func (p *Proxy) isFor(r *http.Request) bool {
	for _, authority := range append([]string{r.Host}, r.Header["Host"]...) { // by HTTP/2 there may be both
		host, port, err := net.SplitHostPort(authority)
		if err != nil {
			host, port = strings.TrimSuffix(strings.TrimPrefix(authority, "["), "]"), "443"
		}
		if !sameHost(host, p.secret.URL.Host) || port != fmt.Sprint(p.secret.URL.Port) {
			return false
		}
	}
	return true
}
