package secret

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"software.sslmate.com/src/go-pkcs12"
)

// signFor returns a certificate for a name, signed with the authority's key even if the authority
// must not sign for that name.
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

// Go and OpenSSL trust the authority for the hosts of its secrets and for no other host, even if the
// authority's key has signed a certificate for the other host.
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
		roots, below := x509.NewCertPool(), x509.NewCertPool()
		roots.AppendCertsFromPEM(a.PEM())
		below.AddCert(a.certificate)
		dir := t.TempDir()
		file := filepath.Join(dir, AuthorityHash+".0")
		if err := os.WriteFile(file, a.PEM(), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, want := range c.names {
			leaf := signFor(t, a, name, false)
			if _, err := leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, Intermediates: below}); (err == nil) != want {
				t.Errorf("Go: %s: %v", name, err)
			}
			if noTool != nil {
				continue
			}
			at, chain := filepath.Join(dir, "leaf"), filepath.Join(dir, "chain")
			for file, c := range map[string]*x509.Certificate{at: leaf, chain: a.certificate} {
				if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			// OpenSSL looks in the directory, so that AuthorityHash is checked, too.
			out, err := exec.Command(openssl, "verify", "-no-CAfile", "-no-CAstore", "-CApath", dir, "-untrusted", chain, at).CombinedOutput()
			if (err == nil) != want || !want && !strings.Contains(string(out), "subtree violation") {
				t.Errorf("OpenSSL: %s: %v\n%s", name, err, out)
			}
		}
	}
	a, err := NewAuthority([]*Secret{secretAt("api.example.com")})
	if err != nil {
		t.Fatal(err)
	}
	// The key can sign an authority below this one, but the path length makes clients refuse it.
	if err := signFor(t, a, "api.example.com", true).CheckSignatureFrom(a.certificate); err != nil {
		t.Error(err)
	}
	if !a.certificate.MaxPathLenZero || a.certificate.MaxPathLen != 0 {
		t.Error("the path length permits another authority below this one")
	}
	if a.key.Equal(a.root.PublicKey) || !a.key.PublicKey.Equal(a.certificate.PublicKey) || a.root.MaxPathLen != 1 {
		t.Error("the key in memory is that of the root, which Java does not constrain")
	}
	if noTool != nil {
		t.Skip("without openssl: ", noTool)
	}
}

// javaGet is a program that prints the answer from each URL of its arguments, or the error.
const javaGet = `
import java.net.URI;
import java.net.http.*;
public class Get {
	public static void main(String[] urls) throws Exception {
		HttpClient c = HttpClient.newHttpClient();
		for (String url : urls) try {
			System.out.println(c.send(HttpRequest.newBuilder(URI.create(url)).build(), HttpResponse.BodyHandlers.ofString()).body());
		} catch (java.io.IOException e) { System.out.println(e); }
	}
}`

// Node and Java refuse the certificate of a server if the key of the authority has signed it for a
// host that has no secret. Java checks the constraints only in certificates below the root
// certificate: it ignores the constraints of the root certificate itself.
func TestConstraintsHoldForClients(t *testing.T) {
	a, err := NewAuthority([]*Secret{{URL: URL{Host: "api.example.com", Port: 443}}, {URL: URL{Host: "127.0.0.1", Port: 443}}})
	if err != nil {
		t.Fatal(err)
	}
	serve := func(host string) (url string) {
		leaf, err := a.leaf(host)
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(http.HandlerFunc(hello))
		s.TLS, s.Config.ErrorLog = &tls.Config{Certificates: []tls.Certificate{leaf}}, silent
		s.StartTLS()
		t.Cleanup(s.Close)
		return "https://" + net.JoinHostPort(host, s.URL[strings.LastIndex(s.URL, ":")+1:]) + "/"
	}
	own, other := serve("127.0.0.1"), serve("localhost")
	dir := t.TempDir()
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	store, err := pkcs12.Passwordless.EncodeTrustStoreEntries([]pkcs12.TrustStoreEntry{{Cert: a.root, FriendlyName: "0"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	write("java.p12", store)
	write("ca.pem", a.PEM())
	write("Get.java", []byte(javaGet))
	for _, c := range []struct{ tool, script, refusal string }{
		{"node", `for u in "$@"; do NODE_EXTRA_CA_CERTS=ca.pem node -e 'fetch(process.argv[1]).then((r) => r.text()).then(console.log, (e) => console.log(e.cause.message))' $u; done`, "permitted subtree violation"},
		{"javac", `javac Get.java && java -XX:TieredStopAtLevel=1 -Djavax.net.ssl.trustStore=java.p12 Get "$@"`, "name constraints check failed"},
	} {
		if c.tool == "javac" && os.Getenv("ROOTSFS_SOAK") == "" {
			continue // it takes seconds
		}
		if _, err := exec.LookPath(c.tool); err != nil {
			t.Skipf("without %s: %v", c.tool, err)
		}
		cmd := exec.Command("sh", "-c", c.script, "sh", own, other)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		first, second, _ := strings.Cut(string(out), "\n")
		if err != nil || first != "hello" || !strings.Contains(second, c.refusal) {
			t.Errorf("%s: %v\n%s", c.tool, err, out)
		}
	}
}

// The placeholder of a key has the length, the known prefix and the separators of the key, and is
// hexadecimal if the key is. The rest is random: each call of newPlaceholder returns another
// placeholder. The placeholder of another credential begins with rootsfs-placeholder-.
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
