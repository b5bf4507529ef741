package broker

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// cursor is a position in one state of the list of roots (R182): the version of the session's
// own list, and how many of its roots were sent.
type cursor struct {
	Version uint64 `json:"v"`
	Offset  int    `json:"o"`
}

func (c cursor) String() string {
	b, _ := json.Marshal(c)
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseCursor(s string) (c cursor, err error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err == nil {
		err = wire.Decode(b, &c)
	}
	if err != nil || c.Offset <= 0 {
		return c, badParams{text: "params: cursor is malformed; list again without one"}
	}
	return c, nil
}

// listRoots answers roots/list: the roots that are shown to the session's subject, a page at a
// time. Pages of different states of the list never mix.
func (s *Session) listRoots(_ *request, p *wire.RootsParams) (any, error) {
	if err := s.barred(names.OpNone); err != nil {
		return nil, err
	}
	all := s.visible()
	version := s.roots.versionOf(all)
	first := 0
	if p.Cursor != "" {
		c, err := parseCursor(p.Cursor)
		if err != nil {
			return nil, err
		}
		if c.Version != version {
			return nil, staleCursor(version, c.Version)
		}
		if c.Offset >= len(all) {
			return nil, badParams{text: "params: cursor lies behind the end of the list"}
		}
		first = c.Offset
	}
	end := min(first+s.b.cfg.PageSize, len(all))
	res := &wire.RootsResult{Roots: make([]wire.Root, 0, end-first)}
	for _, st := range all[first:end] {
		res.Roots = append(res.Roots, s.b.rootOf(&st))
	}
	if end < len(all) {
		res.NextCursor = cursor{version, end}.String()
	}
	return res, nil
}

// rootOf returns the entry of a root in roots/list.
func (b *Broker) rootOf(st *guard.Status) wire.Root {
	where := st.Grant.Resolved
	if b.cfg.FlatAt != "" {
		where = path.Join(b.cfg.FlatAt, string(st.Grant.Root))
	}
	return wire.Root{URI: names.FormatURI(where), Name: string(st.Grant.Root)}
}

// parse parses p, a path that a server has sent. If Config.FlatAt is set, p may also be an absolute
// path or a file URI below that directory.
func (b *Broker) parse(who guard.Subject, p string) (guard.Path, error) {
	if b.cfg.FlatAt != "" && (strings.HasPrefix(p, "/") || strings.HasPrefix(p, "file:")) {
		inside, err := p, error(nil)
		if inside[0] != '/' {
			if inside, err = names.ParseURI(p); err != nil {
				return guard.Path{}, err
			}
		}
		if rel, ok := strings.CutPrefix(inside, b.cfg.FlatAt+"/"); ok {
			return names.ParsePath(rel)
		}
	}
	return b.cfg.Registry.Parse(who, p)
}

// noRoots returns the error of a client without roots. For roots/list it has SEP-1708's words.
func noRoots(method string) error {
	e := &wire.Error{
		Code: wire.CodeMethodNotFound, Message: "Roots not supported",
		Data: json.RawMessage(`{"reason":"Client does not have roots capability"}`),
	}
	if method != wire.RootsList {
		e.Message = "there is no method " + names.QuoteShort(method) + " here: the client offers no files"
	}
	return e
}

func staleCursor(expected, received uint64) error {
	data, _ := json.Marshal(map[string]uint64{"expected": expected, "received": received})
	return &wire.Error{
		Code:    wire.CodeInvalidParams,
		Message: fmt.Sprintf("the list of roots changed (version %d, the cursor is of %d): list again without a cursor", expected, received),
		Data:    data,
	}
}

// announcer numbers the states of a session's list of roots and sends list_changed:
// the first at once, each further one at least the time wait after the one before. The last
// state is always announced.
type announcer struct {
	s    *Session
	wait time.Duration

	mu        sync.Mutex   // guards the fields below
	list      []listedRoot // the roots in the state that has the number version
	version   uint64
	announced uint64 // the version that was last announced, or that the peer began with
	changed   bool   // the list may have changed since the last announcement
	running   bool   // a goroutine runs run
}

// listedRoot is one root in a state of a session's list. The list is compared root by root,
// not by the registry's version, which also changes with the roots of other subjects (R127).
type listedRoot struct {
	root   guard.RootName
	epoch  uint64
	rights guard.Rights
}

// versionOf returns the number of the list's state. The number grows with each change.
func (a *announcer) versionOf(all []guard.Status) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.versionLocked(all)
}

func (a *announcer) versionLocked(all []guard.Status) uint64 {
	now := make([]listedRoot, len(all))
	for i := range all {
		now[i] = listedRoot{all[i].Grant.Root, all[i].Epoch, all[i].Grant.Policy.Rights}
	}
	if a.version == 0 || !slices.Equal(now, a.list) {
		a.list = now
		a.version++
	}
	return a.version
}

// begin records that the peer knows the present list.
func (a *announcer) begin() {
	all := a.s.visible()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.announced = a.versionLocked(all)
}

// announceRoots announces that the list may have changed. It does not wait.
func (s *Session) announceRoots() {
	s.mu.Lock()
	tell := s.peer != nil && !s.b.cfg.NoListChanged && !s.b.cfg.NoRoots && hasListChanged(s.revision)
	s.mu.Unlock()
	if tell {
		s.roots.change()
	}
	s.syncClients()
}

// hasListChanged reports whether a revision of the protocol has list_changed. Revision 2026-07-28
// has removed it (SEP-2575).
func hasListChanged(revision string) bool { return revision < "2026-07-28" }

func (a *announcer) change() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changed = true
	if !a.running {
		a.running = true
		go a.run()
	}
}

// run announces changes until the list has not changed for the time wait, or the session ends. It
// runs in a goroutine of its own, because the peer may be slow and the registry must not wait for
// the peer.
func (a *announcer) run() {
	for a.next() {
		quiet := time.NewTimer(a.wait)
		a.s.stats.notified.Add(1)
		a.s.notify(wire.RootsChanged, nil, nil)
		select {
		case <-quiet.C:
		case <-a.s.ctx.Done():
			quiet.Stop()
			return
		}
	}
}

// next reports whether the list has changed since the last announcement, and notes the
// new state as announced. If it has not changed, run ends.
func (a *announcer) next() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed {
		a.changed = false
		if v := a.versionLocked(a.s.visible()); v != a.announced { // else only roots of other subjects have changed
			a.announced = v
			return true
		}
	}
	a.running = false
	return false
}
