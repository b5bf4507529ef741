package secret

import (
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/rootsfs/rootsfs/guard/names"
)

// A request may ask for another protocol on its connection (RFC 9110, 7.8): websocket, or a protocol
// of container engines. The rules decide about the request. If the host agrees, the bytes of both
// directions are passed on, and the credential is removed from the bytes of the host.

// upgradeOf returns the protocol that a request asks for, or "" if the request asks for none. It
// returns an error for more than one protocol, and for a protocol whose name begins with h or tls,
// as the names of HTTP and TLS do. Over HTTP or TLS, further requests could follow that no rule sees.
// For h2c upgradeOf returns "", because a server may answer such a request by HTTP/1.1.
func upgradeOf(r *http.Request) (string, error) {
	protocol := strings.Join(r.Header.Values("Upgrade"), ",")
	lower := strings.ToLower(strings.TrimSpace(protocol))
	switch {
	case lower == "" || lower == "h2c" || !httpguts.HeaderValuesContainsToken(r.Header["Connection"], "Upgrade"):
		return "", nil
	case strings.Contains(lower, ","), strings.HasPrefix(lower, "h"), strings.HasPrefix(lower, "tls"):
		return "", fmt.Errorf("the protocol %s is not possible with a secret", names.Quote(protocol))
	}
	return protocol, nil
}

// isOfUpgrade reports whether a header is sent to the host with a request for another protocol.
// The header of websocket's extensions is not sent: extensions compress, and the credential is not
// found in compressed bytes.
func isOfUpgrade(name string) bool {
	return name == "Connection" || name == "Upgrade" || strings.HasPrefix(name, "Sec-Websocket-") && name != "Sec-Websocket-Extensions"
}

// transport returns the transport for the request.
func (x *exchange) transport() http.RoundTripper {
	switch {
	case x.signature != nil:
		return signer{x, x.p.transport}
	case x.upgrade != "":
		return x.p.upgrades
	}
	return x.p.transport
}
