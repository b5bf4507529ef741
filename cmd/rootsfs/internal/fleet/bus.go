package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Address says where a fleet's server is, and how to recognize it.
type Address struct {
	Server string `json:"server"` // HOST:PORT; for an external cluster several, with commas
	Pin    string `json:"pin"`    // the fingerprint of the fleet's certificate authority; "": an external server
}

// credential is the proof of a connection: a claim signed for the fleet's account, and the key
// that the claim names. The key signs the server's nonces, and nothing else.
type credential struct {
	JWT  string `json:"jwt"`
	Seed string `json:"seed"`
}

// newConnectionKey makes the key of a connection.
func newConnectionKey() (public, seed string, err error) {
	kp, err := nkeys.CreateUser()
	if err != nil {
		return "", "", err
	}
	public, err = kp.PublicKey()
	if err != nil {
		return "", "", err
	}
	s, err := kp.Seed()
	return public, string(s), err
}

// Bus is a connection to a fleet's server.
type Bus struct {
	Names Names
	Conn  *nats.Conn
	party string
	at    Address // of the server, as other machines reach it
}

// The times of a connection. A handshake takes long when all machines come back at once.
const (
	connectTime   = 10 * time.Second
	pingTime      = 20 * time.Second
	reconnectWait = 200 * time.Millisecond
	reconnectMost = 5 * time.Second
)

// reconnectDelay returns how long a connection waits before the next attempt. The time grows with
// the attempts, up to a bound. A part of it is random, so that machines do not all connect at once.
func reconnectDelay(attempts int) time.Duration {
	most := min(reconnectMost, reconnectWait<<min(attempts, 8))
	return most/2 + rand.N(most)
}

// The parties that are neither a machine nor an invite. No machine or invite has such a name.
const (
	partyOwner  = "OWNER"
	partyKeeper = "KEEPER"
)

// dial connects a party: a machine by its name, an invite by its ID, partyOwner or partyKeeper. If
// reconnects is set, a lost connection is made again, and dial returns a Bus even if its first attempt
// to connect has failed.
func dial(n Names, to Address, party string, cred func() (credential, error), reconnects bool, more ...nats.Option) (*Bus, error) {
	if _, err := to.port(); err != nil {
		return nil, err
	}
	opts := []nats.Option{
		nats.Name(party), nats.CustomInboxPrefix(inbox(party)), nats.IgnoreDiscoveredServers(),
		nats.Timeout(connectTime), nats.PingInterval(pingTime), nats.MaxPingsOutstanding(2),
		nats.UserJWT(
			func() (string, error) { c, err := cred(); return c.JWT, err },
			func(nonce []byte) ([]byte, error) { return signNonce(cred, nonce) }),
		nats.Secure(to.tls(n)),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // the default handler would print
	}
	if !to.isExternal() {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	if reconnects {
		opts = append(opts, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(),
			nats.CustomReconnectDelay(reconnectDelay))
	} else {
		opts = append(opts, nats.NoReconnect())
	}
	c, err := nats.Connect("tls://"+strings.Join(to.hosts(), ",tls://"), append(opts, more...)...)
	if err != nil {
		return nil, unreachable(to, err)
	}
	return &Bus{Names: n, Conn: c, party: party, at: to}, nil
}

// signNonce signs a server's nonce with the credential's key, to prove that this party has the key. The
// server chooses the nonce. Therefore the key of a connection must sign nothing else.
func signNonce(cred func() (credential, error), nonce []byte) ([]byte, error) {
	c, err := cred()
	if err != nil {
		return nil, err
	}
	kp, err := nkeys.FromSeed([]byte(c.Seed))
	if err != nil {
		return nil, err
	}
	defer kp.Wipe()
	return kp.Sign(nonce)
}

// unreachable returns an error that explains why a server cannot be used.
func unreachable(to Address, err error) error {
	at := names.Quote(to.Server)
	switch {
	case errors.Is(err, errOtherServer):
		return fmt.Errorf("the server at %s is not the fleet's: its certificate is by another authority; nothing was sent to it", at)
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return refused("the fleet's server at %s does not accept this credential: it has expired or was taken back; an owner lets a machine in: rootsfs fleet invite NAME", at)
	}
	return fmt.Errorf("the fleet's server at %s cannot be reached: %w; see that it runs there (rootsfs fleet serve), and that its port is open", at, err)
}

// refused returns an error of the class control.NotApproved, which decides the exit code.
func refused(format string, args ...any) error {
	return &control.Error{Class: control.NotApproved, Text: fmt.Sprintf(format, args...)}
}

// Close ends the connection. It waits up to a second until the server has everything that was
// published.
func (b *Bus) Close() {
	if b.Conn.IsConnected() {
		_ = b.Conn.FlushTimeout(time.Second) // the server may be gone
	}
	b.Conn.Close()
}

// request sends a request and returns the first answer.
func (b *Bus) request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	connected, cancel := b.whileConnected(ctx)
	defer cancel()
	m, err := b.Conn.RequestWithContext(connected, subject, data)
	switch {
	case err != nil && ctx.Err() == nil && connected.Err() != nil:
		return nil, errors.New("the connection to the fleet's server was lost")
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded):
		return nil, errors.New("the fleet's keeper does not answer; see that rootsfs fleet serve runs")
	case err != nil:
		return nil, err
	}
	return m.Data, nil
}

// whileConnected returns a context that ends with ctx, and when the connection is lost: the answer to
// a request comes over the same connection, or never.
func (b *Bus) whileConnected(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	lost := b.Conn.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	go func() {
		select {
		case <-lost:
		case <-ctx.Done():
		}
		cancel()
		b.Conn.RemoveStatusListener(lost)
	}()
	return ctx, cancel
}

// answer answers the request of a party. It refuses a request that wants its answer at a subject
// outside of the party's own inbox. A server lets a request name any subject for the answer, and a
// keeper may publish on subjects on which the party may not.
func (b *Bus) answer(m *nats.Msg, party string, data []byte) error {
	if !strings.HasPrefix(m.Reply, inbox(party)+".") {
		return fmt.Errorf("%s wants its answer at %s, which is not its own", names.Quote(party), names.Quote(m.Reply))
	}
	return b.Conn.Publish(m.Reply, data)
}

// machineRights returns the rights of a machine's connection. They are a template, into which the
// server puts the machine's name. The keeper's key machinesKey gives a connection no other rights.
func machineRights(n Names) jwt.UserPermissionLimits {
	const name = "{{name()}}"
	r := publishRights(n.machine(name, ">"))
	r.Sub.Allow.Add(n.ordersForAll(), n.orders(name), n.Do(name), n.Status(), inbox(name)+".>")
	r.Resp = &jwt.ResponsePermission{MaxMsgs: 1, Expires: 10 * time.Second}
	return r
}

// inviteRights returns the rights of an invite's connection: to ask to be enrolled.
func inviteRights(n Names) jwt.UserPermissionLimits {
	const id = "{{name()}}"
	r := publishRights(n.join(id))
	r.Sub.Allow.Add(inbox(id) + ".>")
	return r
}

// publishRights returns rights to publish on one subject, with the bounds of a connection.
func publishRights(publish string) jwt.UserPermissionLimits {
	r := jwt.UserPermissionLimits{AllowedConnectionTypes: jwt.StringList{jwt.ConnectionTypeStandard}}
	r.NatsLimits = jwt.NatsLimits{Subs: 64, Payload: 256 << 10, Data: jwt.NoLimit}
	r.Pub.Allow.Add(publish)
	return r
}
