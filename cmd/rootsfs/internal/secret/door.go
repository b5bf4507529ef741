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

// maxFrame bounds the frames of HTTP/2 that the program sends. The body in a frame is passed on
// only when the whole frame has come. A frame as large as maxUnsent would use the program's whole
// window, so the program would have to wait until the frame has been passed on.
const maxFrame = 32 << 10

// Door answers the program's own https connections to the host of secrets. It ends TLS with a
// certificate for that host, and gives each request to the proxy of one of the secrets.
type Door struct {
	proxies     []*Proxy // of secrets with the same host and port
	certificate tls.Certificate
}

// NewDoor returns the door to the host of the proxies' secrets, which have the same host and port.
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

// configFor returns nil, which means the server's own configuration, for a client that asks for the
// host of the secrets or names no host. For a client that asks for another host it returns a
// configuration without a certificate: this client gets the alert unrecognized_name.
func (d *Door) configFor(h *tls.ClientHelloInfo) (*tls.Config, error) {
	if h.ServerName == "" || sameHost(h.ServerName, d.proxies[0].secret.URL.Host) {
		return nil, nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12}, nil
}

func sameHost(a, b string) bool { return strings.EqualFold(strings.TrimSuffix(a, "."), b) }

// noteHandshake records that the program has ended the handshake with an alert of TLS. Clients send
// an alert if they do not trust the certificate. The record is of a refused request without a
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

// proxyOf returns the proxy for a request: of the secret whose placeholder the request has, or else
// of the secret whose URL has the longest prefix of the path. It returns the proxy of a revoked
// secret only if all secrets are revoked.
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
			score += maxHeader // more than the length of any prefix
		}
		if score > bestScore {
			best, bestScore = p, score
		}
	}
	return best
}

// isFor reports whether a request by https is for the host of the secret.
func (p *Proxy) isFor(r *http.Request) bool {
	for _, authority := range append([]string{r.Host}, r.Header["Host"]...) { // HTTP/2 may have :authority and host
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
