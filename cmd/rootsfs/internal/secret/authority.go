package secret

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"time"
)

// Authority is the certificate authority of one run. It signs for the hosts of the run's
// secrets and for no other: its certificates say so, and clients check that. Programs trust a root
// certificate, whose key has signed one certificate and is gone. Java ignores the constraints of a
// root certificate, so the only key that is kept is that of the certificate below it.
type Authority struct {
	root, certificate *x509.Certificate
	key               *ecdsa.PrivateKey // of certificate, in the memory of this process and nowhere else
}

// AuthorityHash is the name, without the final ".0", of the authority's file in a directory of
// certificates: OpenSSL looks for the file by a hash of authorityName.
const AuthorityHash = "d6d1a1cf"

var authorityName = pkix.Name{Organization: []string{"rootsfs"}, CommonName: "rootsfs run, for the hosts of its secrets"}

// validFor is how long certificates are valid. It is long because servers run for months. That does
// no harm, because the key is gone at the end of the run.
const validFor = 397 * 24 * time.Hour

// NewAuthority makes an authority for the hosts of secrets.
func NewAuthority(list []*Secret) (*Authority, error) {
	root, rootKey, err := newCertificate(constrained(authorityName, 1, list), nil, nil)
	if err != nil {
		return nil, err
	}
	below := pkix.Name{Organization: authorityName.Organization, CommonName: authorityName.CommonName + ", by this process"}
	certificate, key, err := newCertificate(constrained(below, 0, list), root, rootKey)
	return &Authority{root, certificate, key}, err
}

// newCertificate makes a key, and from the template t a certificate for the key. parentKey signs the
// certificate. Without a parent the new key signs it.
func newCertificate(t, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if parent == nil {
		parent, parentKey = t, key
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, key.Public(), parentKey)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate for the hosts of secrets: %w", err)
	}
	c, err := x509.ParseCertificate(der)
	return c, key, err
}

// constrained returns the template of an authority that may sign only for the hosts of secrets.
// The argument below is the greatest number of authorities that a chain may have below this one.
func constrained(name pkix.Name, below int, list []*Secret) *x509.Certificate {
	t := template(name)
	t.IsCA, t.BasicConstraintsValid, t.MaxPathLen, t.MaxPathLenZero, t.KeyUsage = true, true, below, below == 0, x509.KeyUsageCertSign
	t.PermittedDNSDomainsCritical = true
	for _, s := range list {
		if addr, err := netip.ParseAddr(s.URL.Host); err == nil {
			t.PermittedIPRanges = append(t.PermittedIPRanges, &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())})
		} else {
			t.PermittedDNSDomains = append(t.PermittedDNSDomains, s.URL.Host)
		}
	}
	// If no name of a kind is permitted, clients permit every name of that kind.
	if t.PermittedDNSDomains == nil {
		t.PermittedDNSDomains = []string{"rootsfs.invalid"}
	}
	if t.PermittedIPRanges == nil {
		t.ExcludedIPRanges = []*net.IPNet{{IP: make(net.IP, 4), Mask: make(net.IPMask, 4)}, {IP: make(net.IP, 16), Mask: make(net.IPMask, 16)}}
	}
	return t
}

// template returns the fields that all certificates have.
func template(subject pkix.Name) *x509.Certificate {
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // it never fails
	now := time.Now()
	return &x509.Certificate{ // valid an hour ago, too: the clock may be set back
		SerialNumber: new(big.Int).SetBytes(serial), Subject: subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validFor),
	}
}

// PEM returns the certificate that programs inside trust.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.root.Raw})
}

// leaf makes the certificate of a host.
func (a *Authority) leaf(host string) (tls.Certificate, error) {
	t := template(pkix.Name{Organization: authorityName.Organization})
	t.KeyUsage = x509.KeyUsageDigitalSignature
	if addr, err := netip.ParseAddr(host); err == nil {
		t.IPAddresses = []net.IP{addr.AsSlice()}
	} else {
		t.DNSNames = []string{host}
	}
	c, key, err := newCertificate(t, a.certificate, a.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{c.Raw, a.certificate.Raw}, PrivateKey: key}, nil
}
