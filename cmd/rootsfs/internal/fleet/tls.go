package fleet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// A fleet has a certificate authority of its own, made with the fleet and used for nothing else.
// Its fingerprint is in every invite. The server makes itself a certificate at each start, for
// the fleet's ID instead of a host's name: so the server may move to another address.

// authorityYears is how long an authority is valid.
const authorityYears = 30

// authority signs the certificates of a fleet's server.
type authority struct {
	der []byte
	key *ecdsa.PrivateKey
}

// newAuthority makes the authority of a new fleet.
func newAuthority(n Names) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := template(n.ID + " authority")
	t.IsCA, t.BasicConstraintsValid, t.MaxPathLenZero = true, true, true
	t.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	return &authority{der, key}, err
}

// template returns the fields that all certificates have in common. Certificates are valid from the
// epoch on: if a server makes its certificate while its clock is ahead, the certificate stays valid when
// the clock is set right.
func template(name string) *x509.Certificate {
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // never fails
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Unix(0, 0), NotAfter: time.Now().AddDate(authorityYears, 0, 0),
	}
}

// fingerprint returns the fingerprint by which an invite names an authority.
func fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// encode returns the authority as PEM.
func (a *authority) encode() ([]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, err
	}
	out := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.der})
	return append(out, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...), nil
}

// decodeAuthority is the reverse of encode.
func decodeAuthority(data []byte) (*authority, error) {
	pair, err := tls.X509KeyPair(data, data)
	if err != nil {
		return nil, fmt.Errorf("the fleet's authority: %w", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("the fleet's authority has a key of another kind")
	}
	return &authority{pair.Certificate[0], key}, nil
}

// serverTLS returns the TLS configuration of the fleet's server, with a new certificate.
func (a *authority) serverTLS(n Names) (*tls.Config, error) {
	parent, err := x509.ParseCertificate(a.der)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := template(n.ID + " server")
	t.NotAfter = parent.NotAfter
	t.DNSNames = []string{n.ID}
	t.KeyUsage, t.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der, a.der}, PrivateKey: key}},
		MinVersion:   tls.VersionTLS13,
	}, nil
}

// errOtherServer says that a server is not the fleet's.
var errOtherServer = errors.New("this is not the fleet's server: its certificate is of another authority")

// clientTLS returns a TLS configuration that accepts only the fleet's server. The server's certificate
// must be for the fleet's ID, and by the authority with the fingerprint pin.
func clientTLS(n Names, pin string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: n.ID,
		// The authority is in no pool of the system: VerifyConnection verifies the whole chain.
		InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			roots := x509.NewCertPool()
			for _, c := range cs.PeerCertificates {
				if fingerprint(c.Raw) == pin {
					roots.AddCert(c)
				}
			}
			if len(cs.PeerCertificates) == 0 {
				return errOtherServer
			}
			if _, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: n.ID, Roots: roots}); err != nil {
				return fmt.Errorf("%w (%w)", errOtherServer, err)
			}
			return nil
		},
	}
}
