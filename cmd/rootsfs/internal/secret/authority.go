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
// secrets and for no other: its own certificate says so, and clients check that. Its key is in
// the memory of this process and nowhere else.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// AuthorityHash is the name, without its number, of the authority's file in a directory of
// certificates: OpenSSL looks for it by a hash of authorityName.
const AuthorityHash = "d6d1a1cf"

var authorityName = pkix.Name{Organization: []string{"rootsfs"}, CommonName: "rootsfs run, for the hosts of its secrets"}

// validFor is how long certificates are valid. The key is gone at the end of the run, and
// servers run for months.
const validFor = 397 * 24 * time.Hour

// NewAuthority makes an authority for the hosts of secrets.
func NewAuthority(list []*Secret) (*Authority, error) {
	t := template(authorityName)
	t.IsCA, t.BasicConstraintsValid, t.MaxPathLenZero, t.KeyUsage = true, true, true, x509.KeyUsageCertSign
	t.PermittedDNSDomainsCritical = true
	for _, s := range list {
		if addr, err := netip.ParseAddr(s.URL.Host); err == nil {
			t.PermittedIPRanges = append(t.PermittedIPRanges, &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())})
		} else {
			t.PermittedDNSDomains = append(t.PermittedDNSDomains, s.URL.Host)
		}
	}
	// A kind of name without any permitted one would be free.
	if t.PermittedDNSDomains == nil {
		t.PermittedDNSDomains = []string{"rootsfs.invalid"}
	}
	if t.PermittedIPRanges == nil {
		t.ExcludedIPRanges = []*net.IPNet{{IP: make(net.IP, 4), Mask: make(net.IPMask, 4)}, {IP: make(net.IP, 16), Mask: make(net.IPMask, 16)}}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the certificate authority for the hosts of secrets: %w", err)
	}
	a := &Authority{key: key}
	a.certificate, err = x509.ParseCertificate(der)
	return a, err
}

// template returns a template with what all certificates have.
func template(subject pkix.Name) *x509.Certificate {
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // it never fails
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial), Subject: subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validFor), // the clock may be set back
	}
}

// PEM returns the authority's certificate for programs inside.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.certificate, key.Public(), a.key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a certificate for %s: %w", host, err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
