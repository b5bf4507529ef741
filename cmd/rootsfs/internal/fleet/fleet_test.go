package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// lab is a fleet with a running server, whose owner is the user of the test.
type lab struct {
	*testing.T
	server *Server
	owner  *Owner
	log    *strings.Builder
	home   string // the owner's
}

// newLab starts a fleet.
func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{T: t, log: &strings.Builder{}, home: t.TempDir()}
	t.Setenv("HOME", l.home)
	t.Setenv("XDG_STATE_HOME", "")
	dir := ServerDir(filepath.Join(t.TempDir(), "server"))
	_, err := Create(dir, Plan{Name: "acme", Server: "localhost:4222", Lease: time.Minute})
	l.must(err)
	l.server, err = Start(dir, "localhost:0", slog.New(slog.NewTextHandler(l.log, nil)))
	l.must(err)
	t.Cleanup(l.server.Stop)
	l.setOwnerPort()
	l.connectOwner()
	return l
}

// connectOwner connects the owner.
func (l *lab) connectOwner() {
	l.Helper()
	l.Setenv("HOME", l.home)
	var err error
	l.owner, err = OpenOwner()
	l.must(err)
	l.Cleanup(l.owner.Close)
}

// setOwnerPort writes the port that the server got to the owner's files.
func (l *lab) setOwnerPort() {
	dir, err := stateDir("owner")
	l.must(err)
	var info ownedFleet
	l.must(readJSON(ownerDir(dir).fleet(), &info))
	info.Server = "localhost:" + l.server.Addr[strings.LastIndexByte(l.server.Addr, ':')+1:]
	l.must(writeJSON(ownerDir(dir).fleet(), info))
}

func (l *lab) must(err error) {
	l.Helper()
	testkit.Must(l, err)
}

// invite returns the token of a new invite.
func (l *lab) invite(machine string) string {
	l.Helper()
	inv, err := l.owner.Invite(context.Background(), machine, time.Hour)
	l.must(err)
	return inv.Token
}

// join makes a machine that belongs to another user.
func (l *lab) join(machine string) *Member {
	l.Helper()
	l.Setenv("HOME", l.TempDir())
	m, err := Join(context.Background(), l.invite(machine), nil)
	l.must(err)
	return m
}

// A machine's credentials give no right over another machine's subjects, the orders, other
// parties' inboxes, JetStream or the system: the server refuses each attempt.
func TestPermissionsOfAMachine(t *testing.T) {
	l := newLab(t)
	n := l.server.Names
	l.join("m2")
	denied := make(chan error, 1)
	b, err := l.join("m1").dial(false, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	l.must(err)
	defer b.Close()
	publish := func(subject string) func() error {
		return func() error { return b.Conn.Publish(subject, []byte("{}")) }
	}
	hear := func(subject string) func() error {
		return func() error { _, err := b.Conn.Subscribe(subject, func(*nats.Msg) {}); return err }
	}
	for what, try := range map[string]func() error{
		"publish as another machine":        publish(n.ack("m2")),
		"publish an order for all":          publish(n.ordersForAll()),
		"command another machine":           publish(n.Do("m2")),
		"ask the keeper as an owner":        publish(n.invites()),
		"hear another machine's orders":     hear(n.orders("m2")),
		"hear everything":                   hear(">"),
		"hear the owner's inbox":            hear(inbox(partyOwner) + ".>"),
		"hear another's lease requests":     hear(n.lease("m2")),
		"write a bucket":                    publish("$KV.fleet.standing.all"),
		"ask JetStream about a stream":      publish("$JS.API.STREAM.INFO.KV_fleet"),
		"purge a stream":                    publish("$JS.API.STREAM.PURGE.KV_fleet"),
		"read a bucket":                     publish("$JS.API.DIRECT.GET.KV_fleet.$KV.fleet.standing.m2"),
		"answer in the owner's inbox":       publish(inbox(partyOwner) + ".abc"),
		"answer in another machine's inbox": publish(inbox("m2") + ".abc"),
		"ask the system":                    publish("$SYS.REQ.SERVER.PING"),
	} {
		l.must(try())
		l.must(b.Conn.Flush())
		select {
		case err := <-denied:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: not refused", what)
		}
	}
	// These requests are permitted, so the refusals above do not come from a connection without
	// any rights.
	l.must(publish(n.ack("m1"))())
	l.must(hear(n.orders("m1"))())
	l.must(b.Conn.Flush())
	select {
	case err := <-denied:
		t.Errorf("its own subjects: %v", err)
	default:
	}
}

// A machine's request names the subject of the answer. The keeper, whose rights reach further than the
// machine's, publishes the answer on no subject outside of that machine's inbox.
func TestKeeperAnswersInTheInboxOnly(t *testing.T) {
	l := newLab(t)
	m := l.join("m1")
	b, err := m.dial(false)
	l.must(err)
	defer b.Close()
	heard := make(chan *nats.Msg, 8)
	for _, subject := range []string{"$JS.API.STREAM.PURGE.KV_fleet", b.Names.ordersForAll(), inbox(partyOwner) + ".x", inbox("m1") + ".x"} {
		_, err := l.owner.Bus.Conn.ChanSubscribe(subject, heard)
		l.must(err)
	}
	l.must(l.owner.Bus.Conn.Flush())
	for _, reply := range []string{"$JS.API.STREAM.PURGE.KV_fleet", b.Names.ordersForAll(), inbox(partyOwner) + ".x", inbox("m1") + ".x"} {
		q, err := seal(m.key, m.ID, kindRenew, request[struct{}]{Number: reply})
		l.must(err)
		l.must(b.Conn.PublishRequest(b.Names.renew("m1"), reply, q))
	}
	// Requests are answered in their order. Only the last request names an allowed subject: its
	// answer must be the first message.
	select {
	case got := <-heard:
		if got.Subject != inbox("m1")+".x" {
			t.Errorf("the keeper published on %s", got.Subject)
		}
	case <-time.After(10 * time.Second):
		t.Error("the keeper did not answer in the machine's own inbox")
	}
}

// The key of a connection signs no documents. The signing key of a document has a format that the
// message server's software cannot read, and the key of a connection cannot be loaded as a signing key.
func TestKeysAreSeparate(t *testing.T) {
	l := newLab(t)
	m := l.join("m1")
	owner, err := stateDir("owner")
	l.must(err)
	claims, err := jwt.DecodeUserClaims(m.cred.JWT)
	l.must(err)
	if claims.Subject == m.key.Public() || !strings.HasPrefix(claims.Subject, "U") {
		t.Errorf("the connection's key is %s, the signing key %s", claims.Subject, m.key.Public())
	}
	_, err = jwt.NewUserClaims(m.key.Public()).Encode(l.server.keys[machinesKey])
	if err == nil {
		t.Error("a signing key can be a connection's")
	}
	for _, file := range []string{memberDir(filepath.Dir(owner)).connection(), l.server.dir.connection(), l.server.dir.key(machinesKey)} {
		if _, err := loadKey(file); err == nil {
			t.Errorf("%s can be loaded as a signing key", file)
		}
	}
	if _, err := readKey(l.server.dir.signing()); err == nil {
		t.Error("the keeper's signing key can be loaded as a connection's")
	}
}

// An invite enrols one machine, which may ask again with the same keys. The used invite gives neither a
// second machine access, nor the first machine another connection key. A machine that has joined cannot
// be invited again.
func TestInviteOnce(t *testing.T) {
	l := newLab(t)
	text := l.invite("laptop")
	t.Setenv("HOME", t.TempDir())
	first, err := Join(context.Background(), text, nil)
	l.must(err)
	tok, err := decodeToken(text)
	l.must(err)
	claims, err := jwt.DecodeUserClaims(first.cred.JWT)
	l.must(err)
	if _, _, err := tok.ask(context.Background(), first.key, claims.Subject); err != nil {
		t.Errorf("the same machine, asking again: %v", err)
	}
	public, _, err := newConnectionKey()
	l.must(err)
	if _, _, err := tok.ask(context.Background(), first.key, public); err == nil {
		t.Error("the used invite gave another connection to the same signing key")
	}
	t.Setenv("HOME", t.TempDir())
	if m, err := Join(context.Background(), text, nil); err == nil || !strings.Contains(err.Error(), "has been used, by the key "+first.KeyName()) {
		t.Errorf("a second machine: %v, %v", m, err)
	}
	if !strings.Contains(l.log.String(), "the invite of laptop has been used") {
		t.Error("the second use is not in the keeper's log")
	}
	if _, err := l.owner.Invite(context.Background(), "laptop", time.Hour); err == nil {
		t.Error("a machine that has joined is invited again")
	}
}

// An invite that has expired lets nobody in: the keeper refuses the invite, and so does the server. If
// the bus repeats an owner's request for an invite, the keeper makes no second invite.
func TestExpiredInvite(t *testing.T) {
	l := newLab(t)
	text := l.invite("laptop")
	tok, err := decodeToken(text)
	l.must(err)
	var inv inviteRecord
	file := l.server.dir.file("keeper", "invites", tok.Invite+".json")
	l.must(readJSON(file, &inv))
	inv.Expires = time.Now().Add(-time.Second)
	l.must(writeJSON(file, inv))
	t.Setenv("HOME", t.TempDir())
	if _, err := Join(context.Background(), text, nil); err == nil || !strings.Contains(err.Error(), "the invite has expired") {
		t.Errorf("an expired invite: %v", err)
	}
	// The server itself refuses the bearer of a claim that has expired.
	if tok.JWT, err = l.server.sign(invitesKey, inv.Public, tok.Invite, time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	expired, err := tok.encode()
	l.must(err)
	if _, err := Join(context.Background(), expired, nil); err == nil || !strings.Contains(err.Error(), "has expired or was taken back") {
		t.Errorf("an expired claim: %v", err)
	}
	// The owner's request comes once more.
	q, err := seal(l.owner.key, l.owner.Names.ID, kindInvite, request[inviteRequest]{"1", inviteRequest{tok.Invite, "laptop", inv.Public, time.Now().Add(time.Hour)}})
	l.must(err)
	got, err := l.owner.Bus.request(context.Background(), l.owner.Names.invites(), q)
	l.must(err)
	if _, err := readReply[inviteAnswer](got, l.owner.Names.ID, kindInvite, "1", l.owner.Charter.isKeeper); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("a replayed request: %v", err)
	}
}

// A machine joins the server that the invite names, and no other: neither one with a certificate
// of another authority, nor one with another fleet's charter.
func TestJoinWrongServer(t *testing.T) {
	l := newLab(t)
	tok, err := decodeToken(l.invite("laptop"))
	l.must(err)
	t.Setenv("HOME", t.TempDir())
	for what, change := range map[string]func(*token){
		"this is not the fleet's server": func(t *token) { t.Pin = strings.Repeat("0", len(t.Pin)) },
		"certificate is by another":      func(t *token) { t.Fleet = "acme-aaaaaaaaaaaa" },
		"has another charter":            func(t *token) { t.Charter = strings.Repeat("0", len(t.Charter)) },
	} {
		other := *tok
		change(&other)
		text, err := other.encode()
		l.must(err)
		if _, err := Join(context.Background(), text, nil); err == nil || !strings.Contains(err.Error(), strings.Replace(what, "this is not the fleet's server", "is not the fleet's", 1)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := OpenMember(); !errors.Is(err, errNoMember) {
		t.Errorf("a membership was written: %v", err)
	}
}

// A removed machine has no access: the server ends the machine's connection and refuses a new one. The
// owner's list of machines no longer has the machine.
func TestRemove(t *testing.T) {
	l := newLab(t)
	m := l.join("laptop")
	b, err := m.dial(false)
	l.must(err)
	defer b.Close()
	if _, err := askAsMachine[inviteAnswer](context.Background(), m, b, b.Names.renew("laptop"), kindRenew); err != nil {
		t.Fatalf("before the removal: %v", err)
	}
	if m.isRefused(b.at) {
		t.Error("the credential of a machine of the fleet is refused")
	}
	l.must(l.owner.Remove(context.Background(), "laptop"))
	testkit.Until(t, "the connection of a removed machine is closed", b.Conn.IsClosed)
	if b, err := m.dial(false); err == nil {
		b.Close()
		t.Error("a removed machine connects again")
	}
	if !m.isRefused(m.Address) {
		t.Error("the credential of a removed machine is not refused")
	}
	all, err := l.owner.Machines(context.Background(), time.Second)
	if err != nil || len(all) > 0 {
		t.Errorf("machines: %v, %v", all, err)
	}
}

// An answer to the question for the status counts as a machine's only if that machine has signed it.
func TestMachinesBelievesSignaturesOnly(t *testing.T) {
	l := newLab(t)
	m1 := l.join("m1")
	l.join("m2")
	b, err := m1.dial(false)
	l.must(err)
	defer b.Close()
	// m1 claims to be m2.
	liar := &Member{ID: m1.ID, Machine: "m2", key: m1.key}
	l.must(liar.answerStatus(b, func() MachineStatus { return MachineStatus{Version: "false"} }))
	l.must(b.Conn.Flush())
	all, err := l.owner.Machines(context.Background(), 200*time.Millisecond)
	l.must(err)
	for _, m := range all {
		if m.State != MachineNoAnswer {
			t.Errorf("%s is %s by another machine's word", m.Name, m.State)
		}
	}
	honest, err := m1.dial(false) // the server lets a connection answer a question once
	l.must(err)
	defer honest.Close()
	l.must(m1.answerStatus(honest, func() MachineStatus { return MachineStatus{Version: "1"} }))
	l.must(honest.Conn.Flush())
	all, err = l.owner.Machines(context.Background(), time.Second)
	l.must(err)
	states := map[string]MachineState{}
	for _, m := range all {
		states[m.Name] = m.State
	}
	if text, _ := json.Marshal(states); string(text) != `{"m1":"live","m2":"no_answer"}` {
		t.Errorf("the states are %s", text)
	}
}

// If the disk of a keeper is full, the keeper's refusal names the cause and a remedy. The refusal for
// another error is the text of that error.
func TestFullDiskOfAKeeper(t *testing.T) {
	full := &fs.PathError{Op: "write", Path: "/srv/keeper", Err: unix.ENOSPC}
	if text := refusalText(fmt.Errorf("kept: %w", full)); !strings.HasPrefix(text, "the keeper's disk is full (") || !strings.HasSuffix(text, "give the command again") {
		t.Error(text)
	}
	if text := refusalText(errNoMember); text != errNoMember.Error() {
		t.Error(text)
	}
}
