package fleet

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// someServer is a NATS server of somebody else: with its own accounts, and a certificate of an
// authority that the system knows. It returns the server's address, and a function that makes a file
// of credentials.
func someServer(t *testing.T) (at string, creds func() string) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ca, err := newAuthority(Names{"localhost"})
	must(err)
	authorities := filepath.Join(t.TempDir(), "ca.pem")
	must(os.WriteFile(authorities, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.der}), 0o600))
	t.Setenv("SSL_CERT_FILE", authorities) // the first connection of this process that asks the system reads it
	conf, err := ca.serverTLS(Names{"localhost"})
	must(err)
	operator, err := nkeys.CreateOperator()
	must(err)
	account, err := nkeys.CreateAccount()
	must(err)
	own, err := operator.PublicKey()
	must(err)
	oc := jwt.NewOperatorClaims(own)
	signed, err := oc.Encode(operator)
	must(err)
	oc, err = jwt.DecodeOperatorClaims(signed)
	must(err)
	public, err := account.PublicKey()
	must(err)
	text, err := jwt.NewAccountClaims(public).Encode(operator)
	must(err)
	resolver := &server.MemAccResolver{}
	must(resolver.Store(public, text))
	s, err := server.NewServer(&server.Options{Host: "localhost", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
		TLSConfig: &tls.Config{Certificates: conf.Certificates, MinVersion: tls.VersionTLS13}, TLSTimeout: 10,
		TrustedOperators: []*jwt.OperatorClaims{oc}, AccountResolver: resolver})
	must(err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	_, port, err := net.SplitHostPort(s.Addr().String())
	must(err)
	return "localhost:" + port, func() string {
		user, err := nkeys.CreateUser()
		must(err)
		public, err := user.PublicKey()
		must(err)
		token, err := jwt.NewUserClaims(public).Encode(account)
		must(err)
		seed, err := user.Seed()
		must(err)
		data, err := jwt.FormatUserConfig(token, seed)
		must(err)
		file := filepath.Join(t.TempDir(), "user.creds")
		must(os.WriteFile(file, data, 0o600))
		return file
	}
}

// A fleet uses a server that is there already: machines join, get leases and carry out orders. Three
// keepers on the one server are three.
func TestServerOfOthers(t *testing.T) {
	at, creds := someServer(t)
	l := &lab{T: t, log: nil, home: t.TempDir()}
	t.Setenv("HOME", l.home)
	t.Setenv("XDG_STATE_HOME", "")
	own, err := ReadCreds(creds())
	l.must(err)
	dir := ServerDir(filepath.Join(t.TempDir(), "keeper"))
	_, err = Create(dir, Plan{Name: "acme", Server: at, Creds: own, Lease: time.Minute})
	l.must(err)
	start := func(dir ServerDir) *Server {
		s, err := Start(dir, "", slog.New(slog.DiscardHandler))
		l.must(err)
		t.Cleanup(s.Stop)
		return s
	}
	l.server = start(dir)
	l.connectOwner()
	text := l.invite("m1")
	t.Setenv("HOME", t.TempDir())
	if _, err := Join(context.Background(), text, nil); err == nil {
		t.Error("a machine joins without credentials")
	}
	theirs, err := ReadCreds(creds())
	l.must(err)
	m, err := Join(context.Background(), text, theirs)
	l.must(err)
	p := l.restart(m, t.TempDir())
	l.must(p.ask())
	var others []*Server
	for range 2 {
		dir := ServerDir(filepath.Join(t.TempDir(), "keeper"))
		if serves, err := l.owner.AddKeeper(context.Background(), dir, ""); serves || err != nil {
			t.Errorf("a keeper that does not run serves: %v, %v", serves, err)
		}
		others = append(others, start(dir))
		if serves, err := l.owner.AddKeeper(context.Background(), dir, ""); !serves || err != nil {
			t.Fatalf("the keeper is not added: %v, %v", serves, err)
		}
	}
	p = l.begun(p)
	others[1].Stop()
	l.must(p.ask())
	p.done()
	if out := l.give(everything, 10*time.Second); !out.Done() {
		t.Errorf("with two of three keepers: %+v", out)
	}
}
