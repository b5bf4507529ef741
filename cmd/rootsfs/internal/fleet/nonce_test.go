package fleet

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
)

// A client signs any text that a server sends as a nonce, such as the text of a status answer. The
// machine's signature of this nonce makes no valid answer, neither by the machine's signing key nor
// by the key of its connection.
func TestNonceSignatureIsNoAnswer(t *testing.T) {
	n := newNames("acme")
	ca, err := newAuthority(n)
	if err != nil {
		t.Fatal(err)
	}
	conf, err := ca.serverTLS(n) // the server is hostile, and has the keys of the fleet's own server
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "localhost:0", conf)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	public, seed, err := newConnectionKey()
	if err != nil {
		t.Fatal(err)
	}
	m := &Member{ID: n.ID, Machine: "laptop", Address: Address{l.Addr().String(), fingerprint(ca.der)}, key: key, cred: credential{"a.b.c", seed}}

	body := []byte(`{"number":"1","machine":"laptop","status":{"version":"","sessions":[]}}`)
	text := string(signedText(n.ID, kindStatus, body))
	signed := make(chan []byte, 1)
	go func() { signed <- signatureOf(l, text) }()
	if b, err := m.dial(false); err == nil {
		b.Close()
		t.Error("the machine connected to the hostile server")
	}
	sig := <-signed
	if len(sig) == 0 {
		t.Fatal("the machine signed no nonce: the test shows nothing")
	}
	for _, by := range []string{key.Public(), public, publicPrefix + public} {
		data, err := json.Marshal(sealed{body, by, sig})
		if err != nil {
			t.Fatal(err)
		}
		var a statusAnswer
		if _, err := openSigned(data, n.ID, kindStatus, anyKey, &a); err == nil {
			t.Errorf("the nonce that a machine signed is opened as an answer by %s", by)
		}
	}
}

// signatureOf accepts one connection as a server does, and sends the nonce. It returns the client's
// signature of the nonce; empty: there is none.
func signatureOf(l net.Listener, nonce string) []byte {
	c, err := l.Accept()
	if err != nil {
		return nil
	}
	defer c.Close()
	quoted, _ := json.Marshal(nonce) // no error: nonce is a string
	fmt.Fprintf(c, "INFO {\"server_id\":\"x\",\"version\":\"2.15.3\",\"max_payload\":1048576,\"auth_required\":true,\"tls_required\":true,\"nonce\":%s}\r\n", quoted)
	line, _ := bufio.NewReader(c).ReadString('\n')
	var connect struct {
		Sig string `json:"sig"`
	}
	_ = json.Unmarshal([]byte(strings.TrimPrefix(strings.TrimSpace(line), "CONNECT ")), &connect)
	sig, _ := base64.RawURLEncoding.DecodeString(connect.Sig)
	return sig
}
