// Package showcmd has the commands that show what goes on: `status`, `audit`, `metrics`,
// `top` and `console`.
//
// # Promises
//
// Those of package cli.
//
// # Not promised
//
// Those of package cli.
package showcmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/doctorcmd"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

// app is the frame of all commands, with those of this package as methods.
type app struct{ *cli.App }

// Commands are those of this package.
func Commands(c *cli.App) cli.Commands {
	a := &app{c}
	return cli.Commands{"status": a.newStatusCmd, "audit": a.newAuditCmd, "metrics": a.newMetricsCmd, "top": a.newTopCmd, "console": a.newConsoleCmd}
}

func (a *app) newStatusCmd() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show live sessions, their roots and what happens",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch {
				return a.watch(cmd.Context())
			}
			return a.status(cmd.Context())
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on showing what happens")
	a.SessionFlag(cmd)
	cmd.Flags().Lookup("session").Usage = "only this live `session`: its name or mountpoint (default: all)"
	a.JSONFlag(cmd)
	return cmd
}

func (a *app) status(ctx context.Context) error {
	var which []control.Info
	if a.Session != "" {
		in, err := control.Find(a.Session)
		if err != nil {
			return err
		}
		which = append(which, in)
	} else {
		all, err := control.List()
		if err != nil {
			return err
		}
		which = all
	}
	list := []control.Status{}
	var errs []error
	ctx, cancel := cli.Interruptible(ctx)
	defer cancel()
	done := a.Waiting("asking the sessions")
	type answer struct {
		control.Status
		err error
	}
	// None waits for another that hangs.
	for _, got := range doctorcmd.SideBySide(which, func(in control.Info) answer {
		st, err := control.GetStatus.Call(ctx, control.Dial(in), control.None{})
		return answer{st, err}
	}) {
		switch {
		case got.err == nil:
			list = append(list, got.Status)
		case !errors.Is(got.err, control.ErrNoSession): // it ended meanwhile
			errs = append(errs, got.err)
		}
	}
	if a.Session == "" {
		left, err := doctorcmd.StaleMounts(which)
		for _, point := range left {
			list = append(list, control.Status{Point: point, Stale: true, Roots: []control.Root{}, Files: []broker.Stats{}, Recent: []control.Operation{}})
		}
		errs = append(errs, err)
	}
	done()
	if err := a.Report(list, func() { a.printStatus(list) }); err != nil {
		return err
	}
	return errors.Join(errs...)
}

func (a *app) printStatus(list []control.Status) {
	if len(list) == 0 || list[0].Stale { // the live ones come first
		a.Say("no live session; start one: rootsfs mount --root PATH MOUNTPOINT")
	}
	for i, st := range list {
		if i > 0 && !list[i-1].Stale {
			a.Say("")
		}
		if st.Stale {
			a.Say("mount at %s: %s; do: rootsfs unmount %s", cli.QuoteIfNeeded(st.Point), doctorcmd.StaleText, names.ShellWord(st.Point))
			continue
		}
		a.printSession(st)
	}
}

func (a *app) printSession(st control.Status) {
	a.Say("session %s%s", st.Session, atPoint(st.Point))
	how := fmt.Sprintf("cache %s, locks %s, posix %s", st.Cache, st.Locks, st.Posix)
	if st.Transport != "" {
		how += ", transport " + st.Transport
	}
	if st.ReadOnly {
		how += ", read-only"
	}
	a.Say("  pid %d, since %s, %s", st.PID, st.Started.Local().Format("2006-01-02 15:04:05"), how)
	if st.NoRings != "" {
		a.Say("  requests do not come over io_uring: %s", names.Escape(st.NoRings))
	}
	if !st.Mounted && st.Point != "" {
		a.Say("  unmounted: something still holds it; everything is refused until the last holder is gone")
	}
	if st.Audit != "" {
		a.Say("  audit %s", cli.QuoteIfNeeded(st.Audit))
	}
	if !st.AuditOK {
		a.Say("  audit records cannot be written: operations fail; see: rootsfs doctor")
	}
	if st.Config != "" && (st.ConfigError != "" || st.Profile != "") {
		a.Say("  configuration %s%s", cli.QuoteIfNeeded(st.Config), cli.WithPrefix(", profile ", st.Profile))
	}
	if st.ConfigError != "" {
		a.Say("  the configuration is not in force: %s", names.Escape(st.ConfigError))
	}
	a.printLate(st)
	a.printConfined(st.Server)
	a.printNetwork(st.Session, st.Network)
	for _, s := range st.Sockets {
		a.Say("  socket %s: %s, inside %s", cli.QuoteIfNeeded(s.Name), cli.QuoteIfNeeded(s.Path), s.Inside)
	}
	p := st.Process
	a.Say("  using %.1f s of CPU, %s of memory, %d of %d descriptors; %s in progress",
		p.CPU, cli.SizeText(p.Resident), p.FDs, p.FDLimit, cli.Plural(int(p.InFlight), "operation"))
	a.printWaiting(st)
	if len(st.Roots) == 0 {
		a.Say("  no roots")
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

// printLate tells which changes of the host the mount may show late, and why.
func (a *app) printLate(st control.Status) {
	if len(st.Unwatched) > 0 {
		list := make([]string, len(st.Unwatched))
		for i, n := range st.Unwatched {
			list[i] = cli.QuoteIfNeeded(n)
		}
		a.Say("  changes on the host are seen after up to a second in: %s", strings.Join(list, ", "))
	}
	if st.WatchesRefused > 0 {
		a.Say("  some directories could not be watched (%d times): changes there are seen after up to a second; raise fs.inotify.max_user_watches and max_user_instances", st.WatchesRefused)
	}
	if st.Stuck > 0 {
		what := "a directory"
		if st.Stuck > 1 {
			what = strconv.Itoa(st.Stuck) + " directories"
		}
		a.Say("  a program has begun to read %s in the mount and does not end: changes that the host makes there may be seen only when it is ended", what)
	}
}

// printWaiting tells what waits for a word of the owner.
func (a *app) printWaiting(st control.Status) {
	for _, s := range st.Suspended {
		whom := "servers without a name"
		if s.Subject != "" {
			whom = cli.QuoteIfNeeded(s.Subject)
		}
		a.Say("  suspended: %s, since %s: %s; everything is refused until: rootsfs resume", whom, s.Since.Local().Format(time.TimeOnly), names.Escape(s.Why))
	}
	if st.Questions > 0 {
		verb := "waits"
		if st.Questions > 1 {
			verb = "wait"
		}
		a.Say("  %s %s for your consent; see: rootsfs consent list", cli.Plural(st.Questions, "question"), verb)
	}
	if st.Denials > 0 {
		a.Say("  %s remembered, without a question; see: rootsfs consent denials", cli.Plural(st.Denials, "denial"))
	}
}

// printConfined tells of the program that `rootsfs run` started.
func (a *app) printConfined(c *control.Confined) {
	if c == nil {
		return
	}
	words := make([]string, len(c.Command))
	for i, w := range c.Command {
		words[i] = names.Escape(w)
	}
	net := cli.NetText(c)
	a.Fold(fmt.Sprintf("runs %s (pid %d, uid %d): confined by %s, paths %s, %s", strings.Join(words, " "), c.PID, c.UID, c.Confinement, c.Map, net))
	for _, l := range c.Layers {
		if l.State != "on" {
			a.Say("  %s: %s%s", l.Name, l.State, cli.WithPrefix(", ", l.Detail))
		}
	}
	for _, h := range c.Holes {
		a.Say("  not stopped: %s", h)
	}
	if c.PrivateBytes > 0 {
		a.Say("  its private HOME and /tmp have room for %s, in memory (run --home-max)", cli.SizeText(c.PrivateBytes))
	}
	for _, n := range c.Notes {
		a.Say("  note: %s", n)
	}
}

// maxShownHosts is how many refused hosts the status names.
const maxShownHosts = 5

// printNetwork tells what goes over a network of approved hosts.
func (a *app) printNetwork(session string, n *control.NetState) {
	if n == nil || n.IsUnused() {
		return
	}
	a.Say("  network: %s open, of %d so far; %s sent, %s received; %d refused, %d failed; see: rootsfs net list",
		cli.Plural(n.Open, "connection"), n.Opened, cli.SizeText(n.Sent), cli.SizeText(n.Received), n.Refused, n.Failed)
	if len(n.Unapproved) == 0 {
		return
	}
	hosts := make([]string, 0, maxShownHosts)
	for _, u := range n.Unapproved[:min(len(n.Unapproved), maxShownHosts)] {
		hosts = append(hosts, fmt.Sprintf("%s (%d)", cli.QuoteEscaped(u.Host), u.Times))
	}
	if more := len(n.Unapproved) - len(hosts); more > 0 {
		hosts = append(hosts, fmt.Sprintf("and %d more", more))
	}
	a.Fold("refused, for want of a rule: " + strings.Join(hosts, ", "))
	a.Say("  to allow one: rootsfs net add %s --session %s", names.ShellWord(n.Unapproved[0].Host), names.ShellWord(session))
}

// printRecent tells of the last operations, the newest first.
func (a *app) printRecent(list []control.Operation) {
	if len(list) == 0 {
		return
	}
	rows := [][]string{{"  LAST", "OPERATION", "PATH", "VIA", "VERDICT"}}
	for _, op := range list[:min(len(list), 5)] {
		verdict := op.Verdict
		if op.Reason != "" {
			if op.Detail != "" { // escaped already
				op.Reason += ": " + op.Detail
			}
			verdict += " (" + op.Reason + ")"
		}
		rows = append(rows, []string{"  " + op.Time.Local().Format(time.TimeOnly), op.Op, cli.QuoteEscaped(op.Path), op.Via, verdict})
	}
	a.Table(rows)
}

func (a *app) printRootFigures(roots []control.Root) {
	rows := [][]string{{"  ROOT", "MODE", "STATE", "FS", "FREE", "EXPIRES", "OPS", "REFUSED", "READ", "WRITTEN", "PATH"}}
	for _, r := range roots {
		free := "-"
		if r.Free != nil {
			free = cli.SizeText(*r.Free)
		}
		rows = append(rows, []string{
			"  " + cli.QuoteIfNeeded(r.Name), r.Mode, r.State, r.FSType, free, cli.ExpiryText(&r),
			fmt.Sprint(r.Ops), fmt.Sprint(r.Refused), cli.SizeText(r.BytesRead), cli.SizeText(r.Written), cli.RootPlace(&r),
		})
	}
	a.Table(rows)
	a.PrintWhy(roots)
	for _, r := range roots {
		if r.SharedBy != "" {
			a.Say("  %s was allowed without a session: %s has it until the server ends", cli.QuoteIfNeeded(r.Name), r.SharedBy)
		}
	}
}

// mostRepos is how many of a root's repositories the status names.
const mostRepos = 10

// printRepos tells of the repositories that servers made.
func (a *app) printRepos(roots []control.Root) {
	for _, r := range roots {
		for _, dir := range r.Repos[:min(len(r.Repos), mostRepos)] {
			a.Say("  created by the server: %s", cli.RepositoryText(r.Name, dir))
		}
		if more := len(r.Repos) - mostRepos; more > 0 {
			a.Say("  created by the server: %d more repositories in %s; see: rootsfs policy show", more, cli.QuoteIfNeeded(r.Name))
		}
	}
}

// printServers shows who is served over files/*. What a server calls itself is
// its own text.
func (a *app) printServers(list []broker.Stats) {
	if len(list) == 0 {
		return
	}
	rows := [][]string{{"  SERVER", "CALLS ITSELF", "SINCE", "REQUESTS", "IN FLIGHT", "REFUSED", "FAILED", "READ", "WRITTEN", "WATCHES", "UPLOADS", "ASKED", "GIVEN"}}
	for _, v := range list {
		subject, name := "-", "-"
		if v.Subject != "" {
			subject = cli.QuoteIfNeeded(v.Subject)
		}
		if v.Server != "" {
			name = `"` + v.Server + `"` // escaped already
		}
		rows = append(rows, []string{
			"  " + subject, name, v.Started.Local().Format(time.TimeOnly), fmt.Sprint(v.Requests), fmt.Sprint(v.InFlight),
			fmt.Sprint(v.Refused), fmt.Sprint(v.Failed), cli.SizeText(v.Read), cli.SizeText(v.Written), fmt.Sprint(v.Watches), fmt.Sprint(v.Uploads),
			fmt.Sprint(v.Asked), fmt.Sprint(v.Given),
		})
	}
	a.Table(rows)
}

// watch shows the session and then its events until either ends.
func (a *app) watch(ctx context.Context) error {
	return cli.Watch(ctx, a.App, func(u control.Update) error {
		if u.Status != nil {
			if err := a.LineOr(u.Status, func() { a.printSession(*u.Status) }); err != nil {
				return err
			}
		}
		for _, e := range u.Events {
			if err := a.LineOr(e, func() { a.printEvent(e) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// printEvent prints one event on one line.
func (a *app) printEvent(e control.Event) {
	if e.Lost > 0 {
		a.Say("%s  %d events were missed", e.Time.Local().Format(time.TimeOnly), e.Lost)
	}
	parts := []string{e.Time.Local().Format(time.TimeOnly), e.Kind}
	switch {
	case e.Op != "":
		parts = append(parts, e.Op, cli.QuoteEscaped(e.Path), "("+e.Reason+")", fmt.Sprintf("by pid %d uid %d", e.PID, e.UID))
	case e.Root != "":
		parts = append(parts, cli.QuoteIfNeeded(e.Root))
	}
	if e.Detail != "" {
		parts = append(parts, names.EscapeQuoted(e.Detail))
	}
	a.FoldAt("", strings.Join(parts, "  "))
}

// atPoint is the mountpoint of a session; one of `rootsfs serve` has none.
func atPoint(point string) string {
	if point == "" {
		return ", without a mountpoint"
	}
	return " at " + cli.QuoteIfNeeded(point)
}

// printQuotas shows what has been used of quotas: those of roots, and those of
// servers in all their roots together.
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
			largest = cli.SizeText(u.MaxFile)
		}
		rows = append(rows, []string{
			"  " + who, cli.SizeText(u.Written) + of(u.MaxWritten, cli.SizeText(u.MaxWritten)),
			fmt.Sprint(u.Created) + of(u.MaxCreated, fmt.Sprint(u.MaxCreated)), largest,
		})
	}
	for _, r := range roots {
		if l := r.Limits; l.MaxWritten > 0 || l.MaxCreated > 0 || l.MaxFile > 0 {
			add("root "+cli.QuoteIfNeeded(r.Name), control.Quota{Written: r.Written, MaxWritten: l.MaxWritten,
				Created: r.Created, MaxCreated: l.MaxCreated, MaxFile: l.MaxFile})
		}
	}
	for _, u := range subjects {
		add("server "+cli.QuoteIfNeeded(u.Subject), u)
	}
	if len(rows) > 1 {
		a.Table(rows)
	}
}
