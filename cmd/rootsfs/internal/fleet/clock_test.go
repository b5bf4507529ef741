package fleet

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
)

// issuedLater returns a machine's claim, issued anew by a server whose clock is ahead.
func (l *lab) issuedLater(token string, ahead time.Duration) string {
	l.Helper()
	parts := strings.Split(token, ".")
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	l.must(err)
	claims := map[string]any{}
	l.must(json.Unmarshal(body, &claims))
	claims["iat"] = time.Now().Add(ahead).Unix()
	body, err = json.Marshal(claims)
	l.must(err)
	signed := parts[0] + "." + base64.RawURLEncoding.EncodeToString(body)
	sig, err := l.server.keys[machinesKey].Sign([]byte(signed))
	l.must(err)
	return signed + "." + base64.RawURLEncoding.EncodeToString(sig)
}

// If the server's clock was wrong and was set right, a machine still has access, and a removed machine
// has none. Claims have no beginning, and a machine whose clock is two days behind accepts the server's
// certificate. A machine refuses a credential that ends before its present one. A removed machine cannot
// connect, even by a claim that was issued while the server's clock was ahead.
func TestClockThatWasWrong(t *testing.T) {
	l := newLab(t)
	m := l.join("m1")
	claims, err := jwt.DecodeUserClaims(m.cred.JWT)
	l.must(err)
	if claims.NotBefore != 0 {
		t.Errorf("the machine's claim begins at %v", time.Unix(claims.NotBefore, 0))
	}
	data, err := readOwn(l.server.dir.authority())
	l.must(err)
	ca, err := decodeAuthority(data)
	l.must(err)
	conf, err := ca.serverTLS(l.server.Names)
	l.must(err)
	roots := x509.NewCertPool()
	authority, err := x509.ParseCertificate(ca.der)
	l.must(err)
	roots.AddCert(authority)
	own, err := x509.ParseCertificate(conf.Certificates[0].Certificate[0])
	l.must(err)
	if _, err := own.Verify(x509.VerifyOptions{DNSName: m.ID, Roots: roots, CurrentTime: time.Now().AddDate(0, 0, -2)}); err != nil {
		t.Errorf("a machine whose clock is two days behind: %v", err)
	}
	behind, err := l.server.sign(machinesKey, claims.Subject, "m1", time.Now().Add(-time.Hour))
	l.must(err)
	if err := m.replaceCredential(behind, claims); err == nil || !strings.Contains(err.Error(), "set the clock right") {
		t.Errorf("a credential that was issued while the clock was behind: %v", err)
	}
	connects := func() error {
		b, err := m.dial(false)
		if err == nil {
			b.Close()
		}
		return err
	}
	if err := connects(); err != nil {
		t.Errorf("after the machine has refused that credential: %v", err)
	}
	l.must(m.replaceCredential(l.issuedLater(m.cred.JWT, 24*time.Hour), claims))
	if err := connects(); err != nil {
		t.Fatalf("with a credential that was issued while the clock was ahead: %v", err)
	}
	l.must(l.owner.Remove(context.Background(), "m1"))
	if connects() == nil {
		t.Error("a removed machine connects by a claim that was issued while the clock was ahead")
	}
}
