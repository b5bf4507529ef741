package fleet

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/jwt/v2"

	"github.com/rootsfs/rootsfs/guard/names"
)

// A fleet can use an external NATS server or cluster. The server's administrator gives each party a
// file with the party's credentials, and the rights on the party's subjects. Everything that a party
// relies on is signed, so that the server decides only who can be heard.

// isExternal reports whether a server is not the fleet's own. The certificate of an external server is
// by an authority that the system trusts.
func (a Address) isExternal() bool { return a.Pin == "" }

// tls returns the configuration that verifies a server. Each server of an external cluster must be one
// that the owner has named. dial ignores other servers that a server names: an attacker can change an
// external server's first message, which comes before the encryption begins.
func (a Address) tls(n Names) *tls.Config {
	if a.isExternal() {
		return &tls.Config{MinVersion: tls.VersionTLS13} // the connection adds the server's name
	}
	return clientTLS(n, a.Pin)
}

// hosts returns the HOST:PORT of every server.
func (a Address) hosts() []string {
	if a.isExternal() {
		return strings.Split(a.Server, ",")
	}
	return []string{a.Server}
}

// port returns the port of the last server, and an error unless each is HOST:PORT.
func (a Address) port() (port string, err error) {
	for _, server := range a.hosts() {
		if _, port, err = splitServer(server); err != nil {
			return "", err
		}
	}
	return port, nil
}

// ReadCreds reads a file of credentials as NATS writes them.
func ReadCreds(file string) (*Creds, error) {
	data, err := readOwn(file)
	if err != nil {
		return nil, err
	}
	bad := func(err error) (*Creds, error) {
		return nil, &names.Error{Kind: names.Invalid, Err: fmt.Errorf("%s has no credentials of NATS: %w", names.Quote(file), err)}
	}
	token, err := jwt.ParseDecoratedJWT(data)
	if err != nil {
		return bad(err)
	}
	if _, err := jwt.DecodeUserClaims(token); err != nil {
		return bad(err)
	}
	kp, err := jwt.ParseDecoratedUserNKey(data)
	if err != nil {
		return bad(err)
	}
	seed, err := kp.Seed()
	return &Creds{credential{token, string(seed)}}, err
}

// Creds are the credentials of a connection to a server that is not the fleet's own.
type Creds struct{ credential }

// errCreds says that credentials are missing.
var errCreds = errors.New("this fleet uses a NATS server of its own administrator: write --creds FILE, with this machine's credentials there")
