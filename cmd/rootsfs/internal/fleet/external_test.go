package fleet

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// externalServers are NATS servers in one cluster, with an account of their own, and certificates by an
// authority that the system trusts. A single server is in no cluster.
type externalServers struct {
	*testing.T
	at      string // their addresses
	list    []*server.Server
	options func(i int) *server.Options
	ports   []int
	creds   func() string // makes a file of credentials
}

// systemAuthority returns the one authority of all these servers. There is only one, because a process
// reads only once which authorities the system trusts.
var systemAuthority = sync.OnceValues(func() (*authority, error) { return newAuthority(Names{"localhost"}) })

// start starts a server, or starts it again at the same address.
func (all *externalServers) start(i int) {
	all.Helper()
	o := all.options(i)
	o.Port = all.ports[i]
	s, err := server.NewServer(o)
	if err != nil {
		all.Fatal(err)
	}
	s.Start()
	all.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		all.Fatal("the server does not start")
	}
	all.list[i], all.ports[i] = s, s.Addr().(*net.TCPAddr).Port
}

// await waits until the servers are a cluster.
func (all *externalServers) await() {
	all.Helper()
	alone := func(s *server.Server) bool { return s.NumRoutes() < len(all.list)-1 }
	testkit.Until(all, "the servers are a cluster", func() bool { return !slices.ContainsFunc(all.list, alone) })
}

func newExternalServers(t *testing.T, n int) *externalServers {
	t.Helper()
	all := &externalServers{T: t, list: make([]*server.Server, n), ports: slices.Repeat([]int{server.RANDOM_PORT}, n)}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ca, err := systemAuthority()
	must(err)
	authorities := filepath.Join(t.TempDir(), "ca.pem")
	must(os.WriteFile(authorities, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.der}), 0o600))
	t.Setenv("SSL_CERT_FILE", authorities) // the first connection of this process that uses the system's authorities reads it
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
	all.options = func(i int) *server.Options {
		o := &server.Options{ServerName: fmt.Sprint("some-", i), Host: "localhost", NoSigs: true, NoLog: true,
			TLSConfig: &tls.Config{Certificates: conf.Certificates, MinVersion: tls.VersionTLS13}, TLSTimeout: 10,
			TrustedOperators: []*jwt.OperatorClaims{oc}, AccountResolver: resolver}
		if n > 1 {
			o.Cluster = server.ClusterOpts{Name: "some", Host: "localhost", Port: server.RANDOM_PORT, PoolSize: -1}
		}
		if running := slices.IndexFunc(all.list, func(s *server.Server) bool { return s != nil && s.Running() }); running >= 0 {
			o.Routes = []*url.URL{{Scheme: "nats", Host: all.list[running].ClusterAddr().String()}}
		}
		return o
	}
	var at []string
	for i := range n {
		all.start(i)
		at = append(at, fmt.Sprint("localhost:", all.ports[i]))
	}
	all.at = strings.Join(at, ",")
	all.await()
	all.creds = func() string {
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
	return all
}

// newLabAt makes a fleet that uses external servers, with a keeper and a machine m1. It fails the test
// if the machine can join without credentials.
func newLabAt(t *testing.T, all *externalServers) (*lab, *Member) {
	t.Helper()
	l := &lab{T: t, log: &strings.Builder{}, home: t.TempDir()}
	t.Setenv("HOME", l.home)
	t.Setenv("XDG_STATE_HOME", "")
	own, err := ReadCreds(all.creds())
	l.must(err)
	dir := ServerDir(filepath.Join(t.TempDir(), "keeper"))
	_, err = Create(dir, Plan{Name: "acme", Server: all.at, Creds: own, Lease: time.Minute})
	l.must(err)
	l.server = l.startKeeper(dir)
	l.connectOwner()
	text := l.invite("m1")
	t.Setenv("HOME", t.TempDir())
	if _, err := Join(context.Background(), text, nil); err == nil {
		t.Error("a machine joins without credentials")
	}
	theirs, err := ReadCreds(all.creds())
	l.must(err)
	m, err := Join(context.Background(), text, theirs)
	l.must(err)
	return l, m
}

// startKeeper starts the keeper of a directory.
func (l *lab) startKeeper(dir ServerDir) *Server {
	l.Helper()
	s, err := Start(dir, "", slog.New(slog.DiscardHandler))
	l.must(err)
	l.Cleanup(s.Stop)
	return s
}

// A fleet uses an external server: a machine joins, gets leases and carries out orders. Three keepers
// that use the same server count as three.
func TestExternalServer(t *testing.T) {
	l, m := newLabAt(t, newExternalServers(t, 1))
	p := l.restart(m, t.TempDir())
	l.must(p.ask())
	var others []*Server
	for range 2 {
		dir := ServerDir(filepath.Join(t.TempDir(), "keeper"))
		if serves, err := l.owner.AddKeeper(context.Background(), dir, ""); serves || err != nil {
			t.Errorf("a keeper that does not run serves: %v, %v", serves, err)
		}
		others = append(others, l.startKeeper(dir))
		var serves bool
		var err error
		if !testkit.Eventually(func() bool { // a busy keeper answers too late, and the owner is told to repeat
			serves, err = l.owner.AddKeeper(context.Background(), dir, "")
			return serves && err == nil
		}) {
			t.Fatalf("the keeper is not added: %v, %v", serves, err)
		}
	}
	p = l.withNewestCharter(p)
	others[1].Stop()
	l.must(p.ask())
	p.takeActions()
	if out := l.give(revokeAll, 10*time.Second); !out.Done() {
		t.Errorf("with two of three keepers: %+v", out)
	}
}

// In an external cluster, the server to which the machine is connected fails while an order is given and
// records are sent. No record is lost, and the order is carried out: the machine, the keeper and the
// owner use the other servers. With ROOTSFS_SOAK=1 the test does so 20 times.
func TestExternalCluster(t *testing.T) {
	rounds := 1
	if os.Getenv("ROOTSFS_SOAK") != "" {
		rounds = 20
	}
	others := newExternalServers(t, 3)
	l := &recordLab{state: t.TempDir(), files: filepath.Join(t.TempDir(), "audit")}
	l.lab, l.m = newLabAt(t, others)
	l.archive = &Archive{Owner: l.owner, Dir: filepath.Join(t.TempDir(), "archive")}
	p := l.restart(l.m, t.TempDir())
	l.waitConnected(p, 1)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { p.follow(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	log := l.open("work", 1<<20)
	defer l.shippers().start(ctx)()
	var last uint64
	for range rounds {
		l.record(log, "work", 20)
		i := slices.IndexFunc(others.list, func(s *server.Server) bool { return s.Addr().String() == p.bus.Conn.ConnectedAddr() })
		go others.list[i].Shutdown()
		last = l.record(log, "work", 20)
		l.must(l.giveUntilDone(revokeAll))
		l.awaitRecord(l.server, "work", last)
		others.list[i].WaitForShutdown()
		if rounds > 1 {
			others.start(i)
			others.await()
		}
	}
	if did := p.takeActions(); strings.Count(did, "revoke true") < rounds {
		t.Errorf("the orders are not carried out: %s", did)
	}
	l.must(log.Close())
	l.archive.Owner = l.owner
	if _, issues := l.pull(); len(issues) > 0 || l.states()["m1 work"].State != RecordsWhole || l.states()["m1 work"].To < last {
		t.Errorf("%+v, %v", l.states(), issues)
	}
}

// giveUntilDone gives an order again and again until it is done, for about a minute. It connects the
// owner again when the connection is lost.
func (l *lab) giveUntilDone(o Order) (err error) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		var out Outcome
		if out, err = l.owner.Give(context.Background(), o, 10*time.Second); err == nil && out.Done() {
			return nil
		}
		if !l.owner.Bus.Conn.IsConnected() {
			l.owner.Close()
			l.connectOwner()
		}
	}
	return fmt.Errorf("the order is not carried out: %w", err)
}
