package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// revoke serves control.Revoke.
func (s *Session) revoke(ctx context.Context, req control.RevokeRequest) (a control.RevokeAnswer, err error) {
	given := 0
	for _, isGiven := range []bool{req.All, len(req.Names) > 0, req.Subject != "", req.Net} {
		if isGiven {
			given++
		}
	}
	if given != 1 {
		return a, invalid("name the roots to revoke, or a server, or say all of them, or the network: one of these")
	}
	defer s.avail.Update()
	switch {
	case req.Subject != "":
		a.Ended, err = s.revokeForSubject(ctx, guard.Subject(req.Subject))
	case req.All:
		a.Ended, err = s.revokeAll(ctx)
	case req.Net && s.opt.Network == nil:
		err = ErrNoNetwork
	case req.Net:
		a.Ended = append([]control.Ended{}, s.cutNetwork()...)
		err = incomplete("", a.Ended)
	default:
		a.Ended, err = s.revokeNamed(ctx, req.Names)
	}
	return a, err
}

// maxTogether is how many roots end at the same time. Each has a deadline. If thousands ended at
// once, they would wait for each other until their deadlines had passed.
const maxTogether = 64

// revokeAll cuts every socket and the network, and ends every root, including roots that are
// granted meanwhile.
func (s *Session) revokeAll(ctx context.Context) ([]control.Ended, error) {
	sockets, net := s.cutSockets(nil), s.cutNetwork()
	all := append(append([]control.Ended{}, sockets...), net...) // in JSON an empty list, not null
	errs := []error{incomplete("socket", sockets), incomplete("", net)}
	for range 10 { // a client that adds roots faster than this is refused once the session ends
		var which []guard.RootName
		for _, st := range s.reg.Roots() {
			which = append(which, st.Grant.Root)
		}
		if len(which) == 0 {
			break
		}
		ended, err := s.revokeMany(ctx, which)
		if errors.Is(err, names.NotExist) && len(ended) == 0 {
			continue // another call has revoked one of them meanwhile
		}
		all, errs = append(all, ended...), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// RevokeBySignal revokes every root after SIGUSR1, and writes the results to the session's
// directory. The program that starts a session calls it at that signal.
func (s *Session) RevokeBySignal(ctx context.Context) {
	s.log.Warn("SIGUSR1: revoking every root")
	revoked, err := s.revoke(ctx, control.RevokeRequest{All: true})
	a := control.SignalRevoked{Time: time.Now(), Ended: revoked.Ended}
	if err != nil {
		a.Error = control.Text(err)
		s.log.Error("SIGUSR1: not everything could be taken back", "error", err)
	}
	if err := s.dir.PublishRevoked(a); err != nil {
		s.log.Error("SIGUSR1: what came of it could not be written", "error", err)
	}
}

// revokeForSubject revokes the roots that were granted to one subject alone, or to a session of that
// subject.
func (s *Session) revokeForSubject(ctx context.Context, who guard.Subject) ([]control.Ended, error) {
	var which []guard.RootName
	for _, st := range s.reg.Roots() {
		if who != "" && who.Covers(st.Grant.Subject) {
			which = append(which, st.Grant.Root)
		}
	}
	if len(which) == 0 {
		return nil, &guard.Error{Op: names.OpRevoke, Kind: names.NotExist, Err: fmt.Errorf(
			"no root is for the server %s alone; see: rootsfs roots list", names.Quote(string(who)))}
	}
	return s.revokeMany(ctx, which)
}

// revokeMany revokes the named roots, or none if one of them does not exist. The error is one
// sentence for any number of roots.
func (s *Session) revokeMany(ctx context.Context, which []guard.RootName) ([]control.Ended, error) {
	if err := checkKnown(s.reg, which); err != nil {
		return nil, err
	}
	out := make([]control.Ended, 0, len(which))
	for batch := range slices.Chunk(which, maxTogether) {
		reports, err := s.reg.Revoke(ctx, batch...)
		switch {
		case err == nil || len(reports) > 0:
			out = append(out, endings(reports)...)
		case len(batch) > 1 && errors.Is(err, names.NotExist):
			// Another call has revoked one of them meanwhile, so revoke them one by one.
			for _, n := range batch {
				// The report has the error. Without a report, the root was gone.
				one, _ := s.reg.Revoke(ctx, n)
				out = append(out, endings(one)...)
			}
		case !errors.Is(err, names.NotExist):
			return out, err
		}
	}
	return out, incomplete("root", out)
}

// checkKnown returns an error that lists the given names that no root has.
func checkKnown(reg *guard.Registry, which []guard.RootName) error {
	var unknown []string
	for _, n := range which {
		if _, ok := reg.Lookup(n); !ok {
			unknown = append(unknown, names.Quote(string(n)))
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	nothing := ""
	if len(which) > len(unknown) {
		nothing = "; nothing was revoked"
	}
	return &guard.Error{Op: names.OpRevoke, Kind: names.NotExist, Err: fmt.Errorf(
		"no root is named %s%s; see: rootsfs roots list", strings.Join(unknown, " or "), nothing)}
}

// incomplete returns an error that sums up the entries of ended that have an error; nil: none has.
// kind names the kind of the entries: "root" or "socket", or "" for the network, which has one entry.
func incomplete(kind string, ended []control.Ended) error {
	n, first := 0, ""
	for _, e := range ended {
		if e.Error != "" {
			if n == 0 {
				first = strings.TrimSpace(kind+" "+names.Escape(e.Root)) + ": " + e.Error.String()
			}
			n++
		}
	}
	switch n {
	case 0:
		return nil
	case 1:
		return errors.New(first)
	}
	return fmt.Errorf("%d of %d %ss: not everything could be taken back; %s", n, len(ended), kind, first)
}

// endedNow returns the report about a root, a socket or the network that has just ended. The
// revocation began at begun.
func endedNow(name string, begun time.Time) control.Ended {
	return control.Ended{Root: names.Foreign(name), State: guard.RevokedState.String(), TookMS: float64(time.Since(begun).Microseconds()) / 1000}
}

func endings(reports []guard.Ended) []control.Ended {
	out := make([]control.Ended, len(reports))
	for i, r := range reports {
		out[i] = control.Ended{Root: names.Foreign(r.Root), State: r.State.String(), TookMS: float64(r.Took.Microseconds()) / 1000}
		switch {
		case r.Err != nil:
			out[i].Error = names.Text(r.Err.Error())
		case r.State == guard.Live:
			// The registry could not even begin to end the root within the deadline.
			out[i].Error = "it is being changed and has not ended; revoke it again"
		}
	}
	return out
}

// liveSockets returns the sockets that are granted.
func liveSockets(granted *sandbox.Sockets) (list []control.Socket) {
	if granted == nil {
		return nil
	}
	for _, one := range granted.Live() {
		list = append(list, control.Socket{Name: one.Name, Path: one.Path, Inside: sandbox.SocketPath(one.Name)})
	}
	return list
}

// isSocket reports whether a granted socket has the name.
func isSocket(granted *sandbox.Sockets, name string) bool {
	return slices.ContainsFunc(liveSockets(granted), func(one control.Socket) bool { return one.Name == name })
}

// cutSockets cuts the named sockets and records that. If which is nil, it cuts all granted sockets.
func (s *Session) cutSockets(which []string) []control.Ended {
	if which == nil {
		for _, one := range liveSockets(s.opt.Sockets) {
			which = append(which, one.Name)
		}
	}
	var out []control.Ended
	for _, name := range which {
		begun := time.Now()
		if !s.opt.Sockets.Cut(name) {
			continue // another call has cut it meanwhile
		}
		e := endedNow(name, begun)
		if err := s.reg.Note(names.OpRevoke, "", guard.Allowed, "socket "+name); err != nil {
			e.Error = names.Text("it is cut, which cannot be recorded: " + err.Error())
		}
		out = append(out, e)
	}
	return out
}

// revokeNamed revokes the named roots and cuts the named sockets. If a name is that of no root and
// no socket, it returns an error and does nothing.
func (s *Session) revokeNamed(ctx context.Context, which []string) ([]control.Ended, error) {
	var roots []guard.RootName
	var sockets []string
	seen := map[string]bool{}
	for _, n := range which {
		if seen[n] {
			continue
		}
		seen[n] = true
		socket := isSocket(s.opt.Sockets, n)
		if socket {
			sockets = append(sockets, n)
		}
		// A root that was granted later may have the same name.
		if _, root := s.reg.Lookup(guard.RootName(n)); root || !socket {
			roots = append(roots, guard.RootName(n))
		}
	}
	if err := checkKnown(s.reg, roots); err != nil {
		return nil, err
	}
	var cut []control.Ended
	if len(sockets) > 0 {
		cut = s.cutSockets(sockets)
	}
	if len(roots) == 0 {
		return cut, incomplete("socket", cut)
	}
	ended, err := s.revokeMany(ctx, roots)
	return append(cut, ended...), err
}
