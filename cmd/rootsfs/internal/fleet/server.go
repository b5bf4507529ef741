package fleet

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/rootsfs/rootsfs/guard/names"
)

// DefaultPort is the server's port if the owner names none.
const DefaultPort = "4222"

// ServerDir is the directory of a fleet's server and keeper.
type ServerDir string

func (d ServerDir) file(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

// The files of a ServerDir. Those in keeper/ are a keeper's secrets and its own copies.
func (d ServerDir) fleet() string           { return d.file("fleet.json") }
func (d ServerDir) claims(of string) string { return d.file(of + ".jwt") } // operator, account, system
func (d ServerDir) key(of string) string    { return d.file("keeper", of+".nk") }
func (d ServerDir) signing() string         { return d.file("keeper", "keeper.key") }
func (d ServerDir) connection() string      { return d.file("keeper", "connection.json") }
func (d ServerDir) authority() string       { return d.file("keeper", "authority.pem") }
func (d ServerDir) store() string           { return d.file("js") }

// The keys of a server by their files' names.
const (
	operatorKey = "operator" // signs the accounts' claims
	machinesKey = "machines" // signs connections with a machine's rights
	invitesKey  = "invites"  // signs connections with an invite's rights
)

// serverInfo is the file fleet.json of a ServerDir.
type serverInfo struct {
	ID   string `json:"id"`
	Port string `json:"port"`
	// External is the address of an external server or cluster; "": the fleet has a server of its own.
	External string `json:"external,omitempty"`
}

// Server is a running server with its keeper.
type Server struct {
	Names Names
	Addr  string // the address that it listens on, or that of the external server
	Bus   *Bus   // the keeper's connection

	dir     ServerDir
	nats    *server.Server
	log     *slog.Logger
	records *recordKeeper
	keys    map[string]nkeys.KeyPair
	mu      sync.Mutex // guards claims
	claims  *jwt.AccountClaims
}

// Start starts the server of a ServerDir, and connects its keeper. listen is HOST:PORT; "": the
// port of the fleet on every address. The caller must call Stop.
func Start(dir ServerDir, listen string, log *slog.Logger) (*Server, error) {
	var info serverInfo
	err := readJSON(dir.fleet(), &info)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no fleet in %s; make one: rootsfs fleet init NAME", names.Quote(string(dir)))
	}
	if err != nil {
		return nil, err
	}
	s := &Server{Names: Names{info.ID}, dir: dir, log: log, keys: map[string]nkeys.KeyPair{}}
	if info.External != "" {
		err = s.connectExternal(info.External)
	} else {
		err = s.begin(listen, info.Port)
	}
	if err != nil {
		return nil, err
	}
	r, err := newRegistrar(s)
	if err == nil {
		_, err = newKeeper(r)
	}
	if err == nil {
		err = r.serve() // after newKeeper, which finds out whether the directory is an older copy
	}
	if err == nil {
		s.records, err = newRecordKeeper(r)
	}
	if err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// begin starts the fleet's own server, and connects the keeper to it.
func (s *Server) begin(listen, port string) (err error) {
	for _, of := range []string{operatorKey, machinesKey, invitesKey} {
		if s.keys[of], err = readKey(s.dir.key(of)); err != nil {
			return err
		}
	}
	opts, err := s.options(listen, port)
	if err != nil {
		return err
	}
	if s.nats, err = server.NewServer(opts); err != nil {
		return err
	}
	s.nats.SetLoggerV2(serverLog{s.log}, false, false, false)
	s.nats.Start()
	if err := s.connect(); err != nil {
		s.Stop()
		return err
	}
	s.Addr = s.nats.Addr().String()
	return nil
}

// connectExternal connects the keeper to an external server.
func (s *Server) connectExternal(at string) (err error) {
	var own credential
	if err := readJSON(s.dir.connection(), &own); err != nil {
		return err
	}
	s.Addr = at
	s.Bus, err = dial(s.Names, Address{Server: at}, partyKeeper, func() (credential, error) { return own, nil }, true, logOptions(s.log)...)
	return err
}

// Stop ends the server and its connections.
func (s *Server) Stop() {
	if s.Bus != nil {
		s.Bus.Conn.Close()
	}
	if s.nats != nil {
		s.nats.Shutdown()
		s.nats.WaitForShutdown()
	}
}

// readyTime bounds how long a server may take to start, and its keeper to connect.
const readyTime = 20 * time.Second

// connect connects the keeper, without the network.
func (s *Server) connect() error {
	if !s.nats.ReadyForConnections(readyTime) {
		return errors.New("the fleet's server has not started; see its log")
	}
	var own credential
	if err := readJSON(s.dir.connection(), &own); err != nil {
		return err
	}
	c, err := nats.Connect("", nats.InProcessServer(s.nats), nats.Name(partyKeeper), nats.CustomInboxPrefix(inbox(partyKeeper)),
		nats.MaxReconnects(-1), nats.Timeout(readyTime), nats.UserJWTAndSeed(own.JWT, own.Seed))
	if err != nil {
		return fmt.Errorf("the keeper cannot connect to its own server: %w", err)
	}
	s.Bus = &Bus{Names: s.Names, Conn: c, party: partyKeeper}
	return nil
}

// options returns the options of the server. The server serves only this fleet. JetStream acknowledges a
// write after the write is on disk.
func (s *Server) options(listen, port string) (*server.Options, error) {
	host, number, err := listenAddress(listen, port)
	if err != nil {
		return nil, err
	}
	operator, err := readOwn(s.dir.claims("operator"))
	if err != nil {
		return nil, err
	}
	oc, err := jwt.DecodeOperatorClaims(string(operator))
	if err != nil {
		return nil, err
	}
	resolver, err := s.resolver()
	if err != nil {
		return nil, err
	}
	data, err := readOwn(s.dir.authority())
	if err != nil {
		return nil, err
	}
	ca, err := decodeAuthority(data)
	if err != nil {
		return nil, err
	}
	conf, err := ca.serverTLS(s.Names)
	if err != nil {
		return nil, err
	}
	return &server.Options{
		ServerName: s.Names.ID, Host: host, Port: number, NoSigs: true,
		TLSConfig: conf, TLSHandshakeFirst: true, TLSTimeout: connectTime.Seconds(), AuthTimeout: 2 * connectTime.Seconds(),
		TrustedOperators: []*jwt.OperatorClaims{oc}, AccountResolver: resolver, SystemAccount: oc.SystemAccount,
		JetStream: true, StoreDir: s.dir.store(), SyncAlways: true,
		JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 10 << 30,
		MaxPayload: 1 << 20, MaxControlLine: 4 << 10, PingInterval: pingTime, MaxPingsOut: 2,
	}, nil
}

// listenAddress returns the host and the port of the address listen. If listen is "", the host is every
// address of this machine, and the port is port.
func listenAddress(listen, port string) (host string, number int, err error) {
	if listen == "" {
		listen = ":" + port
	}
	if host, port, err = net.SplitHostPort(listen); err == nil {
		number, err = strconv.Atoi(port)
	}
	if err != nil || number < 0 || number > 65535 {
		return "", 0, &names.Error{Kind: names.Invalid, Err: fmt.Errorf("--listen %s: write HOST:PORT or :PORT", names.Quote(listen))}
	}
	if number == 0 {
		number = server.RANDOM_PORT
	}
	if host == "" {
		host = "0.0.0.0"
		if l, err := net.Listen("tcp6", "[::]:0"); err == nil {
			host = "::"
			_ = l.Close() // the listener only tests whether there is IPv6
		}
	}
	return host, number, nil
}

// resolver returns a resolver with the accounts of the fleet: its own account, with the rights that this
// version gives, and the system's account, which no key can use.
func (s *Server) resolver() (*server.MemAccResolver, error) {
	r := &server.MemAccResolver{}
	system, err := readOwn(s.dir.claims("system"))
	if err != nil {
		return nil, err
	}
	sc, err := jwt.DecodeAccountClaims(string(system))
	if err != nil {
		return nil, err
	}
	text, err := readOwn(s.dir.claims("account"))
	if err != nil {
		return nil, err
	}
	if s.claims, err = jwt.DecodeAccountClaims(string(text)); err != nil {
		return nil, err
	}
	if err := setRights(s.claims, s.Names, s.keys); err != nil {
		return nil, err
	}
	account, err := s.claims.Encode(s.keys[operatorKey])
	if err != nil {
		return nil, err
	}
	return r, errors.Join(r.Store(sc.Subject, string(system)), r.Store(s.claims.Subject, account))
}

// setRights sets which rights the keeper's keys can give.
func setRights(ac *jwt.AccountClaims, n Names, keys map[string]nkeys.KeyPair) error {
	ac.SigningKeys = jwt.SigningKeys{}
	for of, rights := range map[string]jwt.UserPermissionLimits{machinesKey: machineRights(n), invitesKey: inviteRights(n)} {
		public, err := keys[of].PublicKey()
		if err != nil {
			return err
		}
		scope := jwt.NewUserScope()
		scope.Key, scope.Role, scope.Template = public, of, rights
		ac.SigningKeys.AddScopedSigner(scope)
	}
	return nil
}

// sign makes the claim of a connection. The parameter with is the name of the keeper's key that signs the
// claim. This key decides the connection's rights. For an external server, sign returns "".
func (s *Server) sign(with, public, party string, until time.Time) (string, error) {
	if s.nats == nil { // the administrator of the external server gives the credentials
		return "", nil
	}
	uc := jwt.NewUserClaims(public)
	uc.SetScoped(true)
	uc.Name, uc.IssuerAccount, uc.Expires = party, s.claims.Subject, until.Unix()
	return uc.Encode(s.keys[with])
}

// refuse revokes a connection's key: the server ends the connections with the key, and no longer accepts
// the key. For an external server refuse does nothing: the administrator has to revoke the credentials.
func (s *Server) refuse(public string) error {
	if s.nats == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// The server compares this time with that of the claim, which a wrong clock may have set.
	s.claims.RevokeAt(public, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
	text, err := s.claims.Encode(s.keys[operatorKey])
	if err != nil {
		return err
	}
	if err := writeSynced(s.dir.claims("account"), []byte(text)); err != nil {
		return err
	}
	account, err := s.nats.LookupAccount(s.claims.Subject)
	if err != nil {
		return err
	}
	claims, err := jwt.DecodeAccountClaims(text)
	if err != nil {
		return err
	}
	s.nats.UpdateAccountClaims(account, claims)
	return s.nats.AccountResolver().Store(s.claims.Subject, text)
}

// readKey reads a key of the server.
func readKey(file string) (nkeys.KeyPair, error) {
	data, err := readOwn(file)
	if err != nil {
		return nil, err
	}
	kp, err := nkeys.FromSeed([]byte(strings.TrimSpace(string(data))))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", names.Quote(file), err)
	}
	return kp, nil
}

// serverLog writes the server's log to a slog.Logger. The server's notices are debug messages there.
type serverLog struct{ to *slog.Logger }

func (l serverLog) Noticef(f string, v ...any) { l.to.Debug("server: " + fmt.Sprintf(f, v...)) }
func (l serverLog) Errorf(f string, v ...any)  { l.to.Error("server: " + fmt.Sprintf(f, v...)) }
func (l serverLog) Fatalf(f string, v ...any)  { l.to.Error("server: " + fmt.Sprintf(f, v...)) }
func (l serverLog) Debugf(string, ...any)      {}
func (l serverLog) Tracef(string, ...any)      {}

// Warnf leaves out the warning that clients must begin with the TLS handshake: a fleet's clients do so.
func (l serverLog) Warnf(f string, v ...any) {
	if !strings.Contains(f, "TLS Handshake First") {
		l.to.Warn("server: " + fmt.Sprintf(f, v...))
	}
}
