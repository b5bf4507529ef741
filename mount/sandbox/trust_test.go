package sandbox

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"

	"software.sslmate.com/src/go-pkcs12"
)

// Texts in the form of certificates.
const (
	ourAuthority    = "-----BEGIN CERTIFICATE-----\nb3Vycw==\n-----END CERTIFICATE-----\n"
	ownersAuthority = "-----BEGIN CERTIFICATE-----\nb3duZXI=\n-----END CERTIFICATE-----\n"
)

// The files in which distributions and OpenSSL keep the machine's authorities also have the
// caller's authority, and so have the files that the variables for authorities name. The command
// cannot change these files. The other files of the machine's directories are there, too.
func TestTrust(t *testing.T) {
	const bundlePath = "/etc/ssl/certs/ca-certificates.crt"
	bundle, err := os.ReadFile(bundlePath)
	if err != nil {
		t.Skip("this machine has its authorities elsewhere")
	}
	entries, err := os.ReadDir("/etc/ssl/certs")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{"d6d1a1cf.0": true, "ca-bundle.crt": true}
	for _, e := range entries {
		names[e.Name()] = true
	}
	atLevels(t, rooted, func(t *testing.T, level Level) {
		point := tree(t)
		put(t, point+"/home/u/code/own.pem", "key of nobody\n"+ownersAuthority)
		o := Options{
			Level: level, Tree: point, Roots: []string{"/home/u/code"}, Trust: NewTrust([]byte(ourAuthority), "d6d1a1cf"),
			Env: []string{"CURL_CA_BUNDLE=/home/u/code/own.pem", "PIP_CERT=/nowhere", "PATH=/usr/bin:/bin"},
		}
		out, exit := output(t, o, `cd /etc
			for f in ssl/certs/ca-certificates.crt pki/tls/certs/ca-bundle.crt pki/ca-trust/extracted/pem/tls-ca-bundle.pem pki/tls/cert.pem ssl/ca-bundle.pem ssl/cert.pem ca-certificates/extracted/tls-ca-bundle.pem; do
				cmp $f "$SSL_CERT_FILE" || echo "$f differs"
			done
			for f in ssl/certs/d6d1a1cf.0 pki/tls/certs/d6d1a1cf.0; do cmp $f "$NODE_EXTRA_CA_CERTS" || echo "$f differs"; done
			for f in "$SSL_CERT_FILE" ssl/certs/d6d1a1cf.0 ssl/certs/mine; do (echo mine >$f) 2>/dev/null && echo "$f can be written"; done
			echo $CURL_CA_BUNDLE $PIP_CERT $GIT_SSL_CAINFO; ls ssl/certs | wc -l; cat "$CURL_CA_BUNDLE" "$NODE_EXTRA_CA_CERTS"; cat "$SSL_CERT_FILE"`)
		want := "/etc/ssl/rootsfs/CURL_CA_BUNDLE.pem /nowhere /etc/ssl/rootsfs/bundle.pem\n"
		got, ok := strings.CutPrefix(out, want)
		count, files, _ := strings.Cut(got, "\n")
		if !ok || exit.Code != 0 || strings.TrimSpace(count) != fmt.Sprint(len(names)) || files != strings.TrimSpace(ownersAuthority+ourAuthority+ourAuthority+strings.TrimRight(string(bundle), "\n")+"\n"+ourAuthority) {
			t.Errorf("inside: %.600q, %+v", out, exit)
		}
		for _, e := range entries {
			if e.Name() == "ca-certificates.crt" || e.IsDir() {
				continue
			}
			from, _ := os.ReadFile("/etc/ssl/certs/" + e.Name())
			if out, exit := output(t, o, "cat /etc/ssl/certs/"+e.Name()); out != strings.TrimSpace(string(from)) || exit.Code != 0 {
				t.Errorf("%s is %q", e.Name(), out)
			}
			break
		}
	})
}

// Java finds the authorities in a file of its own kind, which its options name unless the owner's
// options name another.
func TestTrustOfJava(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	list, err := pkcs12.DecodeTrustStore(javaTrust(slices.Concat(authority, []byte("text\n"), authority)), "")
	if err != nil || len(list) != 2 || !slices.Equal(list[1].Raw, der) {
		t.Errorf("%d certificates, %v", len(list), err)
	}
	const ours = "-Djavax.net.ssl.trustStore=/etc/ssl/rootsfs/java.p12 -Djavax.net.ssl.trustStoreType=PKCS12"
	for own, want := range map[string]string{
		"-": ours, "": ours, "-Xmx1g": "-Xmx1g " + ours, "-Djavax.net.ssl.trustStore=/own -Xmx1g": "-Djavax.net.ssl.trustStore=/own -Xmx1g",
	} {
		o := Options{Env: []string{"JAVA_TOOL_OPTIONS=" + own}}
		if own == "-" {
			o.Env = nil
		}
		if NewTrust(authority, "").plan(&o); !slices.Contains(o.Env, "JAVA_TOOL_OPTIONS="+want) {
			t.Errorf("%q: %q", own, o.Env)
		}
	}
}
