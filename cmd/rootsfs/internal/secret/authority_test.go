package secret

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// signFor returns a certificate of the authority for names that it should not sign for.
func signFor(t *testing.T, a *Authority, name string, ca bool) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := template(pkix.Name{CommonName: "of the key of the authority"})
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	template.IsCA, template.BasicConstraintsValid = ca, ca
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Go and OpenSSL trust the authority for the hosts of its secrets and for no other, even if its
// key were used for that.
func TestAuthorityIsConstrained(t *testing.T) {
	secretAt := func(host string) *Secret { return &Secret{URL: URL{Host: host, Port: 443}} }
	openssl, noTool := exec.LookPath("openssl")
	for _, c := range []struct {
		hosts []*Secret
		names map[string]bool
	}{
		{[]*Secret{secretAt("api.example.com"), secretAt("10.1.2.3"), secretAt("fd00::1")}, map[string]bool{
			"api.example.com": true, "10.1.2.3": true, "fd00::1": true, "example.com": false, "api.example.org": false, "10.1.2.4": false, "fd00::2": false, "notapi.example.com": false}},
		{[]*Secret{secretAt("api.example.com")}, map[string]bool{"api.example.com": true, "10.1.2.3": false, "::1": false}},
		{[]*Secret{secretAt("10.1.2.3")}, map[string]bool{"10.1.2.3": true, "api.example.com": false, "fd00::1": false}},
	} {
		a, err := NewAuthority(c.hosts)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(a.PEM())
		dir := t.TempDir()
		file := filepath.Join(dir, AuthorityHash+".0")
		if err := os.WriteFile(file, a.PEM(), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, want := range c.names {
			leaf := signFor(t, a, name, false)
			if _, err := leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); (err == nil) != want {
				t.Errorf("Go: %s: %v", name, err)
			}
			if noTool != nil {
				continue
			}
			at := filepath.Join(dir, "leaf")
			if err := os.WriteFile(at, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}), 0o600); err != nil {
				t.Fatal(err)
			}
			// By the directory, so that the hash is checked, too.
			out, err := exec.Command(openssl, "verify", "-no-CAfile", "-no-CAstore", "-CApath", dir, at).CombinedOutput()
			if (err == nil) != want || !want && !strings.Contains(string(out), "subtree violation") {
				t.Errorf("OpenSSL: %s: %v\n%s", name, err, out)
			}
		}
	}
	a, err := NewAuthority([]*Secret{secretAt("api.example.com")})
	if err != nil {
		t.Fatal(err)
	}
	// An authority below this one is none.
	if err := signFor(t, a, "api.example.com", true).CheckSignatureFrom(a.certificate); err != nil {
		t.Error(err)
	}
	if !a.certificate.MaxPathLenZero || a.certificate.MaxPathLen != 0 {
		t.Error("others may sign below the authority")
	}
}

// A placeholder has the shape of its key, another one each time, and nothing else in common.
func TestPlaceholder(t *testing.T) {
	for credential, prefix := range map[string]string{
		key: "ghp_",
		"sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_AbCd": "sk-ant-api03-",
		"github_pat_11AAAAAAA0abcdefghijkl_0123456789abcdefghij":  "github_pat_",
		"0123456789012345678901234567890123456789":                "",
		"0123456789abcdef0123456789abcdef":                        "",
		"short":                                                   "rootsfs-placeholder-",
		"a password, with spaces and more":                        "rootsfs-placeholder-",
	} {
		one, two := newPlaceholder(credential), newPlaceholder(credential)
		if one == two || !strings.HasPrefix(one, prefix) || strings.Contains(one, credential) {
			t.Errorf("%s: %s and %s", credential, one, two)
		}
		if strings.HasPrefix(one, "rootsfs-") {
			continue
		}
		same := 0
		for i := len(prefix); i < len(credential); i++ {
			if one[i] == credential[i] && !strings.ContainsRune(separators, rune(one[i])) {
				same++
			}
			if strings.ContainsRune(separators, rune(one[i])) != strings.ContainsRune(separators, rune(credential[i])) {
				t.Errorf("%s has become %s", credential, one)
			}
		}
		isHex := strings.Trim(credential, digits+"abcdef") == ""
		if len(one) != len(credential) || same > len(credential)/2 || isHex && strings.Trim(one, digits+"abcdef") != "" {
			t.Errorf("%s has become %s", credential, one)
		}
	}
}
