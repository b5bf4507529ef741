package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

const statusLong = `Show each live session: where it is mounted; its roots with mode, state, end, and how
much was done, refused, read and written; repositories that servers made, whose hooks
are untrusted; connected servers; and what the daemon uses. Mounts that a dead daemon
left come last.

With --watch, follow the events of one session: roots that come, go or change, and
every refusal with operation, path and reason.`

const statusExamples = `  rootsfs status
  rootsfs status --watch --session work
  rootsfs status --json | jq '.[].roots[].name'`

func (a *app) newStatusCmd() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show live sessions, their roots and what happens",
		Long:    statusLong,
		Example: statusExamples,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch {
				return a.streamStatus(cmd.Context())
			}
			return a.status(cmd.Context())
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on showing what happens")
	a.sessionFlag(cmd)
	cmd.Flags().Lookup("session").Usage = "only this live `session`: its name or mountpoint (default: all)"
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) status(ctx context.Context) error {
	var sessions []control.Info
	if a.Session != "" {
		in, err := control.Find(a.Session)
		if err != nil {
			return err
		}
		sessions = append(sessions, in)
	} else {
		all, err := control.List()
		if err != nil {
			return err
		}
		sessions = all
	}
	list := []control.Status{}
	var errs []error
	ctx, cancel := interruptible(ctx)
	defer cancel()
	done := a.waiting("asking the sessions")
	type answer struct {
		control.Status
		err error
	}
	// The sessions are asked concurrently, because each may take long to answer.
	for _, got := range sideBySide(sessions, func(in control.Info) answer {
		st, err := control.GetStatus.Call(ctx, control.Dial(in), control.None{})
		return answer{st, err}
	}) {
		switch {
		case got.err == nil:
			list = append(list, got.Status)
		case !errors.Is(got.err, control.ErrNoSession): // with ErrNoSession, the session ended meanwhile
			errs = append(errs, got.err)
		}
	}
	if a.Session == "" {
		left, err := staleMounts(sessions)
		for _, point := range left {
			list = append(list, control.Status{Point: names.Foreign(point), Stale: true, Roots: []control.Root{}, Files: []broker.Stats{}, Recent: []control.Operation{}})
		}
		errs = append(errs, err)
	}
	done()
	if err := a.report(list, func() { a.printStatus(list) }); err != nil {
		return err
	}
	return errors.Join(errs...)
}

func (a *app) printStatus(list []control.Status) {
	if len(list) == 0 || list[0].Stale { // the live ones come first
		a.say("no live session; start one: rootsfs mount --root PATH MOUNTPOINT")
	}
	for i, st := range list {
		if i > 0 && !list[i-1].Stale {
			a.say("")
		}
		if st.Stale {
			a.say("mount at %s: %s; do: rootsfs unmount %s", quoteIfNeeded(st.Point), staleText, names.ShellWord(st.Point))
			continue
		}
		a.printSession(st)
	}
}

func (a *app) printSession(st control.Status) {
	a.say("session %s%s", st.Session, atPoint(st.Point))
	how := fmt.Sprintf("cache %s, locks %s, posix %s", st.Cache, st.Locks, st.Posix)
	if st.Transport != "" {
		how += ", transport " + st.Transport
	}
	if st.ReadOnly {
		how += ", read-only"
	}
	a.say("  pid %d, since %s, %s", st.PID, st.Started.Local().Format("2006-01-02 15:04:05"), how)
	if st.NoRings != "" {
		a.say("  requests do not come over io_uring: %s", names.Escape(st.NoRings))
	}
	if !st.Mounted && st.Point != "" {
		a.say("  unmounted, but not everything could be taken back; everything is refused until the last holder is gone")
	}
	if st.Audit != "" {
		a.say("  audit %s", quoteIfNeeded(st.Audit))
	}
	if !st.AuditOK {
		a.say("  audit records cannot be written: operations fail; see: rootsfs doctor")
	}
	if st.Config != "" && (st.ConfigError != "" || st.Profile != "") {
		a.say("  configuration %s%s", quoteIfNeeded(st.Config), withPrefix(", profile ", st.Profile))
	}
	if st.ConfigError != "" {
		a.say("  the configuration is not in force: %s", names.Escape(st.ConfigError))
	}
	for _, p := range st.Paused {
		a.say("  %s", p.String())
	}
	if l := st.Lease; l != nil && len(st.Paused) == 0 {
		a.say("  %s belongs to the fleet %s; its lease has %s left", names.Quote(l.Machine), names.Quote(l.Fleet), (time.Duration(l.LeftMS) * time.Millisecond).Round(time.Second))
	}
	if c := st.Ceiling; c != nil {
		a.say("  ceiling of this machine: %s, read %s", names.Join(c.Files, ", "), c.Read.Local().Format(time.DateTime))
		if c.Problem != "" {
			a.say("  a file is not in force, and counts as it was then: %s", names.Escape(c.Problem))
		}
	}
	a.printLateChanges(st)
	a.printConfined(st.Server)
	a.printNetwork(st.Session, st.Network)
	for _, s := range st.Sockets {
		a.say("  socket %s: %s, inside %s", quoteIfNeeded(s.Name), quoteIfNeeded(s.Path), s.Inside)
	}
	p := st.Process
	a.say("  using %.1f s of CPU, %s of memory, %d of %d descriptors; %s in progress",
		p.CPU, sizeText(p.Resident), p.FDs, p.FDLimit, plural(int(p.InFlight), "operation"))
	a.printWaiting(st)
	if len(st.Roots) == 0 {
		a.say("  no roots")
	} else {
		a.printRootFigures(st.Roots)
		a.printRepos(st.Roots)
	}
	a.printServers(st.Files)
	a.printQuotas(st.Roots, st.Subjects)
	if st.Server != nil {
		a.printRecent(st.Recent)
	}
}

// printLateChanges prints which changes on the host may be noticed late, and why where the reason
// is known.
func (a *app) printLateChanges(st control.Status) {
	if len(st.Unwatched) > 0 {
		list := make([]string, len(st.Unwatched))
		for i, n := range st.Unwatched {
			list[i] = quoteIfNeeded(n)
		}
		a.say("  changes on the host are seen after up to a second in: %s", strings.Join(list, ", "))
	}
	if st.WatchesRefused > 0 {
		a.say("  some directories could not be watched (%d times): changes there are seen after up to a second; raise fs.inotify.max_user_watches and max_user_instances", st.WatchesRefused)
	}
	if st.PathsPolled != "" {
		a.say("  paths of roots and of the configuration are looked at once a second: %s", st.PathsPolled)
	}
	if st.Stuck > 0 {
		what := "a directory"
		if st.Stuck > 1 {
			what = strconv.Itoa(st.Stuck) + " directories"
		}
		a.say("  a program has begun to read %s in the mount and does not end: changes that the host makes there may be seen only when it is ended", what)
	}
}

// printWaiting prints the suspended servers, and how many questions and remembered denials there
// are.
func (a *app) printWaiting(st control.Status) {
	for _, s := range st.Suspended {
		whom := "servers without a name"
		if s.Subject != "" {
			whom = quoteIfNeeded(s.Subject)
		}
		a.say("  suspended: %s, since %s: %s; everything is refused until: rootsfs resume", whom, s.Since.Local().Format(time.TimeOnly), names.Escape(s.Why))
	}
	if st.Questions > 0 {
		verb := "waits"
		if st.Questions > 1 {
			verb = "wait"
		}
		a.say("  %s %s for your consent; see: rootsfs consent list", plural(st.Questions, "question"), verb)
	}
	if st.Denials > 0 {
		a.say("  %s remembered, without a question; see: rootsfs consent denials", plural(st.Denials, "denial"))
	}
}

// printConfined prints the confinement of the program that `rootsfs run` started.
func (a *app) printConfined(c *control.Confined) {
	if c == nil {
		return
	}
	words := make([]string, len(c.Command))
	for i, w := range c.Command {
		words[i] = names.Escape(w)
	}
	net := netText(c)
	a.fold(fmt.Sprintf("runs %s (pid %d, uid %d): confined by %s, paths %s, %s", strings.Join(words, " "), c.PID, c.UID, c.Confinement, c.Map, net))
	for _, l := range c.Layers {
		if l.State != "on" {
			a.say("  %s: %s%s", l.Name, l.State, withPrefix(", ", l.Detail))
		}
	}
	for _, h := range c.Holes {
		a.say("  not stopped: %s", h)
	}
	if c.PrivateBytes > 0 {
		a.say("  its private HOME and /tmp have room for %s, in memory (run --home-max)", sizeText(c.PrivateBytes))
	}
	for _, n := range c.Notes {
		a.say("  note: %s", n)
	}
}

// maxShownHosts is how many refused hosts the status lists.
const maxShownHosts = 5

// printNetwork prints the use of a network of approved hosts.
func (a *app) printNetwork(session string, n *control.NetState) {
	if n == nil || n.IsUnused() {
		return
	}
	a.say("  network: %s open, of %d so far; %s sent, %s received; %d refused, %d failed; see: rootsfs net list",
		plural(n.Open, "connection"), n.Opened, sizeText(n.Sent), sizeText(n.Received), n.Refused, n.Failed)
	if len(n.Unapproved) == 0 {
		return
	}
	hosts := make([]string, 0, maxShownHosts)
	for _, u := range n.Unapproved[:min(len(n.Unapproved), maxShownHosts)] {
		hosts = append(hosts, fmt.Sprintf("%s (%d)", quoteEscaped(u.Host), u.Times))
	}
	if more := len(n.Unapproved) - len(hosts); more > 0 {
		hosts = append(hosts, fmt.Sprintf("and %d more", more))
	}
	a.fold("refused, for want of a rule: " + strings.Join(hosts, ", "))
	a.say("  to allow one: rootsfs net add %s --session %s", names.ShellWord(n.Unapproved[0].Host), names.ShellWord(session))
}

// printRecent prints up to five of the last operations, the newest first.
func (a *app) printRecent(list []control.Operation) {
	if len(list) == 0 {
		return
	}
	rows := [][]string{{"  LAST", "OPERATION", "PATH", "VIA", "VERDICT"}}
	for _, op := range list[:min(len(list), 5)] {
		verdict := op.Verdict
		if op.Reason != "" {
			verdict += " (" + op.Reason
			if op.Detail != "" {
				verdict += fmt.Sprintf(": %s", op.Detail)
			}
			verdict += ")"
		}
		rows = append(rows, []string{"  " + op.Time.Local().Format(time.TimeOnly), op.Op, quoteEscaped(op.Path), op.Via, verdict})
	}
	a.table(rows)
}

func (a *app) printRootFigures(roots []control.Root) {
	rows := [][]string{{"  ROOT", "MODE", "STATE", "FS", "FREE", "EXPIRES", "OPS", "REFUSED", "READ", "WRITTEN", "PATH"}}
	for _, r := range roots {
		free := "-"
		if r.Free != nil {
			free = sizeText(*r.Free)
		}
		rows = append(rows, []string{
			"  " + quoteIfNeeded(r.Name), r.Mode, r.State, r.FSType, free, expiryText(&r),
			fmt.Sprint(r.Ops), fmt.Sprint(r.Refused), sizeText(r.BytesRead), sizeText(r.Written), rootLocation(&r),
		})
	}
	a.table(rows)
	a.printUnavailable(roots)
	a.printStages(roots)
	for _, r := range roots {
		if r.SharedBy != "" {
			a.say("  %s was allowed without a session: %s has it until the server ends", quoteIfNeeded(r.Name), r.SharedBy)
		}
	}
}

// maxShownRepos is how many of a root's repositories the status lists.
const maxShownRepos = 10

// printRepos prints, for each root, the repositories that servers made.
func (a *app) printRepos(roots []control.Root) {
	for _, r := range roots {
		for _, dir := range r.Repos[:min(len(r.Repos), maxShownRepos)] {
			a.say("  created by the server: %s", repositoryText(r.Name, dir))
		}
		if more := len(r.Repos) - maxShownRepos; more > 0 {
			a.say("  created by the server: %d more repositories in %s; see: rootsfs policy show", more, quoteIfNeeded(r.Name))
		}
	}
}

// printServers prints the servers that use files/*. A server chooses the text in the column CALLS
// ITSELF, so that text is quoted.
func (a *app) printServers(list []broker.Stats) {
	if len(list) == 0 {
		return
	}
	rows := [][]string{{"  SERVER", "CALLS ITSELF", "SINCE", "REQUESTS", "IN FLIGHT", "REFUSED", "FAILED", "READ", "WRITTEN", "WATCHES", "UPLOADS", "ASKED", "GIVEN"}}
	for _, v := range list {
		subject, name := "-", "-"
		if v.Subject != "" {
			subject = quoteIfNeeded(v.Subject)
		}
		if v.Server != "" {
			name = fmt.Sprintf("%q", v.Server)
		}
		rows = append(rows, []string{
			"  " + subject, name, v.Started.Local().Format(time.TimeOnly), fmt.Sprint(v.Requests), fmt.Sprint(v.InFlight),
			fmt.Sprint(v.Refused), fmt.Sprint(v.Failed), sizeText(v.Read), sizeText(v.Written), fmt.Sprint(v.Watches), fmt.Sprint(v.Uploads),
			fmt.Sprint(v.Asked), fmt.Sprint(v.Given),
		})
	}
	a.table(rows)
}

// streamStatus shows the session and then its events, until the session ends or a signal comes.
func (a *app) streamStatus(ctx context.Context) error {
	return stream(ctx, a, func(u control.Update) error {
		if u.Status != nil {
			if err := a.lineOr(u.Status, func() { a.printSession(*u.Status) }); err != nil {
				return err
			}
		}
		for _, e := range u.Events {
			if err := a.lineOr(e, func() { a.printEvent(e) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// printEvent prints one event. If events were missed before this event, a line with their number
// comes first.
func (a *app) printEvent(e control.Event) {
	if e.Lost > 0 {
		a.say("%s  %d events were missed", e.Time.Local().Format(time.TimeOnly), e.Lost)
	}
	parts := []string{e.Time.Local().Format(time.TimeOnly), e.Kind}
	switch {
	case e.Op != "":
		parts = append(parts, e.Op, quoteEscaped(e.Path), "("+e.Reason+")", fmt.Sprintf("by pid %d uid %d", e.PID, e.UID))
	case e.Root != "":
		parts = append(parts, quoteIfNeeded(e.Root))
	}
	if e.Detail != "" {
		parts = append(parts, names.EscapeQuoted(e.Detail))
	}
	a.foldAt("", strings.Join(parts, "  "))
}

// atPoint returns the text for a session's mountpoint. A session of `rootsfs serve` has none.
func atPoint(point names.Foreign) string {
	if point == "" {
		return ", without a mountpoint"
	}
	return " at " + quoteIfNeeded(point)
}

// printQuotas prints the quotas of roots and of servers, and how much of each is used. The quota of
// a server counts all roots of the server together.
func (a *app) printQuotas(roots []control.Root, subjects []control.Quota) {
	rows := [][]string{{"  QUOTA OF", "WRITTEN", "CREATED", "LARGEST FILE"}}
	of := func(limit int64, text string) string {
		if limit == 0 {
			return ""
		}
		return " of " + text
	}
	add := func(who string, u control.Quota) {
		largest := "-"
		if u.MaxFile > 0 {
			largest = sizeText(u.MaxFile)
		}
		rows = append(rows, []string{
			"  " + who, sizeText(u.Written) + of(u.MaxWritten, sizeText(u.MaxWritten)),
			fmt.Sprint(u.Created) + of(u.MaxCreated, fmt.Sprint(u.MaxCreated)), largest,
		})
	}
	for _, r := range roots {
		if l := r.Limits; l.MaxWritten > 0 || l.MaxCreated > 0 || l.MaxFile > 0 {
			add("root "+quoteIfNeeded(r.Name), control.Quota{Written: r.Written, MaxWritten: l.MaxWritten,
				Created: r.Created, MaxCreated: l.MaxCreated, MaxFile: l.MaxFile})
		}
	}
	for _, u := range subjects {
		add("server "+quoteIfNeeded(u.Subject), u)
	}
	if len(rows) > 1 {
		a.table(rows)
	}
}
