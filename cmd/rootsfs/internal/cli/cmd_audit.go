package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostwatch"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

const auditLong = `Show, follow and verify the records of what was opened, changed and refused. Every
session writes them to $XDG_STATE_HOME/rootsfs/audit (~/.local/state/rootsfs/audit):
one JSON object a line, linked into a chain of hashes. Contents of files are never
recorded.`

const auditExamples = `  rootsfs audit show --since 10m --denied
  rootsfs audit follow --root code
  rootsfs audit verify`

func (a *app) newAuditCmd() *cobra.Command {
	return group(&cobra.Command{
		Use:     "audit",
		Short:   "Show, follow and verify the record of operations",
		Long:    auditLong,
		Example: auditExamples,
	}, newAuditShowCmd(a), newAuditFollowCmd(a), newAuditVerifyCmd(a))
}

// auditFlags are the flags that select records.
type auditFlags struct {
	since, until, root, op, subject, path string
	dir                                   string
	denied                                bool
}

func (f *auditFlags) add(a *app, cmd *cobra.Command) {
	fs := cmd.Flags()
	auditSessionFlag(a, cmd)
	a.jsonFlag(cmd)
	fs.StringVar(&f.since, "since", "", "records from this `time` on: 10m (ago), 2006-01-02, 2006-01-02T15:04 or RFC 3339")
	a.rootFlag(cmd, &f.root, "records of this `root` only")
	fs.StringVar(&f.op, "op", "", "records of this `operation` only, such as open, rename or revoke")
	fs.StringVar(&f.subject, "subject", "", "records of this `subject` only")
	fs.StringVar(&f.path, "path", "", "records whose path, with or without its root, matches this `glob`; ** stands for any number of directories")
	fs.BoolVar(&f.denied, "denied", false, "refusals only")
	pathVar(fs, &f.dir, "dir", "the audit files in this `directory`, such as a machine's that rootsfs fleet audit pull has copied")
	completeFlag(cmd, "dir", cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs))
	fixedWords(cmd, "op", auditOps()...)
}

// auditSessionFlag adds the flag --session, which here also takes the name of an ended session.
func auditSessionFlag(a *app, cmd *cobra.Command) {
	pathVar(cmd.Flags(), &a.Session, "session", "only this `session`: a name, also of one that has ended, or the mountpoint of a live one")
	completeFlag(cmd, "session", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		dir, err := config.AuditDir()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		list, err := auditSessions(dir)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return list, cobra.ShellCompDirectiveNoFileComp
	})
}

// auditOps returns the words of --op: every operation, and the three kinds of lines that the
// log itself adds.
func auditOps() []string {
	list := []string{"session", "lost", "summed"}
	for i := 1; i < names.Ops; i++ {
		list = append(list, names.Op(i).String())
	}
	slices.Sort(list)
	return list
}

func (f *auditFlags) filter(now time.Time) (audit.Filter, error) {
	out := audit.Filter{Root: f.root, Op: f.op, Denied: f.denied, Subject: f.subject, Path: f.path}
	if f.op != "" && !slices.Contains(auditOps(), f.op) {
		return out, usage(fmt.Errorf("--op %s: there is no such operation; there are %s", names.Quote(f.op), strings.Join(auditOps(), ", ")))
	}
	for _, t := range []struct {
		flag, text string
		to         *time.Time
	}{{"since", f.since, &out.Since}, {"until", f.until, &out.Until}} {
		if t.text == "" {
			continue
		}
		var err error
		if *t.to, err = parseMoment(t.text, now); err != nil {
			return out, usage(fmt.Errorf("--%s %s: %w", t.flag, names.Quote(t.text), err))
		}
	}
	if !out.Until.IsZero() && out.Until.Before(out.Since) {
		return out, usage(errors.New("--until is before --since; exchange them"))
	}
	return out, nil
}

// parseMoment reads a time in the past: a duration before now, or a date.
func parseMoment(s string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil {
		if d < 0 {
			return time.Time{}, errors.New("write the duration without a sign; it is counted back from now")
		}
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("write a duration such as 10m, or 2006-01-02, 2006-01-02T15:04 or an RFC 3339 time")
}

// location returns the audit directory and the session. Without --dir these are the results of
// auditLocation; with --dir they are the values of --dir and --session.
func (f *auditFlags) location(a *app) (dir, session string, err error) {
	if f.dir == "" {
		return auditLocation(a)
	}
	files, err := audit.Files(f.dir, a.Session)
	if err == nil && len(files) == 0 {
		err = &exitError{Code: ExitNoSuch, Err: fmt.Errorf("there are no audit files of the session in %s", quoteIfNeeded(f.dir))}
	}
	return f.dir, a.Session, err
}

// auditLocation returns the audit directory and the session of --session, "" for all sessions. A
// session without records is an error, and so is a directory without any records.
func auditLocation(a *app) (dir, session string, err error) {
	if dir, err = config.AuditDir(); err != nil {
		return "", "", err
	}
	session = a.Session
	if strings.Contains(session, "/") || session == "." || session == ".." {
		in, err := control.Find(session)
		if err != nil {
			return "", "", err
		}
		session = in.Name
	}
	list, err := auditSessions(dir)
	switch {
	case err != nil:
		return "", "", err
	case len(list) == 0:
		return "", "", &exitError{Code: ExitNoSuch, Err: fmt.Errorf("no session has kept records in %s yet; start one: rootsfs mount --root PATH MOUNTPOINT", quoteIfNeeded(dir))}
	case session != "" && !slices.Contains(list, session):
		return "", "", &exitError{Code: ExitNoSuch, Err: fmt.Errorf("session %s left no records; those that did: %s", names.Quote(session), strings.Join(list, ", "))}
	}
	return dir, session, nil
}

// auditSessions lists by name the sessions with records, and those whose records are gone
// although an anchor refers to them.
func auditSessions(dir string) ([]string, error) {
	files, err := audit.Files(dir, "")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var list []string
	for _, f := range files {
		list = append(list, auditSession(f))
	}
	pattern, err := config.AnchorPath("*")
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Dir(pattern))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the anchors of the audit cannot be listed: %w", err)
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), strings.TrimPrefix(filepath.Base(pattern), "*"))
		if ok && control.CheckName(name) == nil && e.Type().IsRegular() {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// auditSession returns the session of a file of records, SESSION-TIME.jsonl[.zst]. TIME has no
// hyphen.
func auditSession(file string) string {
	base := filepath.Base(file)
	return base[:strings.LastIndexByte(base, '-')]
}

const auditShowLong = `Show the records of all sessions, or of one, the oldest first; --limit keeps the
newest. With --json each record is printed as it was written, one object a line,
with invisible characters as \u escapes.

--path compares a path as it is printed, with or without the root's name. A pattern
without a slash is compared with the last element.`

const auditShowExamples = `  rootsfs audit show --since 1h --root code
  rootsfs audit show --denied --limit 20
  rootsfs audit show --op rename --json | jq .path2`

func newAuditShowCmd(a *app) *cobra.Command {
	f := &auditFlags{}
	limit := 0
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Show records",
		Long:    auditShowLong,
		Example: auditShowExamples,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usage(fmt.Errorf("--limit %d: write 0 (no limit) or more", limit))
			}
			filter, err := f.filter(time.Now())
			if err != nil {
				return err
			}
			dir, session, err := f.location(a)
			if err != nil {
				return err
			}
			return a.auditShow(dir, session, filter, limit)
		},
	}
	f.add(a, cmd)
	cmd.Flags().StringVar(&f.until, "until", "", "records before this `time`, written as for --since")
	cmd.Flags().IntVar(&limit, "limit", 0, "only the last `N` of the records (0: all)")
	return cmd
}

func (a *app) auditShow(dir, session string, filter audit.Filter, limit int) error {
	files, err := audit.Files(dir, session)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out := bufio.NewWriterSize(a, 64<<10)
	var last [][]byte // with a limit: the latest lines so far
	err = audit.Read(files, filter, func(e audit.Entry) error {
		text := a.auditLine(&e, session == "", filter.Op)
		if limit == 0 || text == nil {
			_, err := out.Write(text)
			return err
		}
		if last = append(last, text); len(last) > limit {
			last = last[1:]
		}
		return nil
	})
	for _, text := range last {
		_, _ = out.Write(text) // Flush returns the first error
	}
	if ferr := out.Flush(); ferr != nil {
		return ferr
	}
	var damage *audit.DamageError
	if errors.As(err, &damage) && damage.More == 0 && !slices.ContainsFunc(damage.List, func(d audit.Damage) bool { return !d.Torn }) {
		return nil // each of these lines is being written, or a crash cut it: verify counts such lines
	}
	if damage != nil {
		return fmt.Errorf("%w; run: rootsfs audit verify", err)
	}
	return err
}

const auditFollowLong = `Show records as they are written, until interrupted, also of sessions that begin
later. With --since, begin with the records since then.`

const auditFollowExamples = `  rootsfs audit follow --denied
  rootsfs audit follow --session work --since 5m --json`

func newAuditFollowCmd(a *app) *cobra.Command {
	f := &auditFlags{}
	cmd := &cobra.Command{
		Use:     "follow",
		Short:   "Show records as they are written",
		Long:    auditFollowLong,
		Example: auditFollowExamples,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := f.filter(time.Now())
			if err != nil {
				return err
			}
			dir, session, err := f.location(a)
			if err != nil {
				return err
			}
			ctx, cancel := interruptible(cmd.Context())
			defer cancel()
			return a.auditFollow(ctx, dir, session, filter)
		},
	}
	f.add(a, cmd)
	return cmd
}

func (a *app) auditFollow(ctx context.Context, dir, session string, filter audit.Filter) error {
	ctx, cancel := context.WithCancel(ctx)
	watcher, changes := hostwatch.New(ctx), make(chan struct{}, 1)
	defer func() {
		cancel()
		<-watcher.Done()
	}()
	warned := false
	watcher.Watch(dir, hostwatch.Entries, func() bool {
		if why := watcher.Problem(); why != "" && !warned {
			warned = true
			a.warn("new records are looked for once a second: %s", why)
		}
		select {
		case changes <- struct{}{}:
		default:
		}
		return true
	})
	return audit.Follow(ctx, dir, session, filter, changes, func(e audit.Entry) error {
		_, err := a.Write(a.auditLine(&e, session == "", filter.Op))
		return err
	})
}

const auditVerifyLong = `Check the chain of hashes of every session, or of one, against its anchor in the
state directory. A record that was changed, removed, inserted or moved is found, and
so is a file that was cut or deleted. The exit code is then 1.

A change is not found if its author could write the anchor as well as the records, as
every unconfined process of the same user can.`

const auditVerifyExamples = `  rootsfs audit verify --session work --json`

func newAuditVerifyCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "verify",
		Short:   "Check that no record was changed or removed",
		Long:    auditVerifyLong,
		Example: auditVerifyExamples,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.auditVerify(cmd.Context()) },
	}
	auditSessionFlag(a, cmd)
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) auditVerify(ctx context.Context) error {
	dir, session, err := auditLocation(a)
	if err != nil {
		return err
	}
	store, err := recordStore()
	if err != nil {
		return err
	}
	defer a.waiting("reading the records")()
	reports, err := store.Verify(ctx, session)
	if err != nil {
		return err
	}
	var broken []string
	err = a.report(reports, func() {
		for _, r := range reports {
			a.say("%s", auditVerdict(r))
		}
	})
	for _, r := range reports {
		if !r.OK {
			broken = append(broken, r.Session)
		}
	}
	if err != nil || len(broken) == 0 {
		return err
	}
	return fmt.Errorf("the records of %s are not what was written; keep %s as it is and find out who could write there",
		strings.Join(broken, ", "), quoteIfNeeded(dir))
}

func auditVerdict(r audit.Report) string {
	if !r.OK {
		at := ""
		if r.At > 0 {
			at = fmt.Sprintf(" at record %d", r.At)
		}
		return fmt.Sprintf("%s: BROKEN%s: %s", r.Session, at, names.Escape(r.Problem))
	}
	s := fmt.Sprintf("%s: ok, %s in %s, numbers %d to %d", r.Session, plural(int(r.Records), "record"), plural(r.Files, "file"), r.From, r.To)
	if r.Anchored {
		s += fmt.Sprintf(", anchored at %d", r.AnchoredAt)
	}
	if r.Pruned > 0 {
		s += fmt.Sprintf(", numbers 1 to %d deleted (the bounds of all sessions)", r.Pruned)
	}
	if r.Torn > 0 {
		s += ", " + plural(r.Torn, "line") + " cut by a crash"
	}
	if r.Lost > 0 {
		s += fmt.Sprintf(", %d could not be taken", r.Lost)
	}
	return s
}

// auditLine returns a record as one line, folded to the width of the terminal except for JSON. It
// returns nil for the headers of files, which are shown only with --op session.
func (a *app) auditLine(e *audit.Entry, withSession bool, op string) []byte {
	if e.Op == "session" && op != "session" {
		return nil
	}
	if a.JSON {
		return append(names.JSON(e.Line), '\n')
	}
	var b strings.Builder
	b.WriteString(e.Time.Local().Format("2006-01-02 15:04:05.000"))
	if withSession {
		fmt.Fprintf(&b, "  %-12s", names.Escape(e.Session))
	}
	fmt.Fprintf(&b, "  %-7s  %-11s  %s", cmp.Or(names.Escape(e.Verdict), "-"), names.Escape(e.Op), auditPath(e))
	if d := auditDetails(e); len(d) > 0 {
		b.WriteString("  (" + strings.Join(d, ", ") + ")")
	}
	return []byte(names.Fold(b.String(), "", columns(a.Stdout)) + "\n")
}

// tallyText lists counts, sorted by name.
func tallyText(n map[string]int64) string {
	var list []string
	for _, word := range slices.Sorted(maps.Keys(n)) {
		list = append(list, fmt.Sprintf("%s %d", names.Escape(word), n[word]))
	}
	return strings.Join(list, " ")
}

// auditPath returns the path of a record with the name of its root. For a record with two paths it
// returns both.
func auditPath(e *audit.Entry) string {
	where := func(root, path, hash names.Foreign) string {
		switch {
		case hash != "":
			return quoteIfNeeded(root) + "/#" + hash.String()
		case path == "":
			return quoteIfNeeded(root)
		}
		return quoteIfNeeded(root + "/" + path)
	}
	if e.Root == "" && e.Name() == "" {
		return "-"
	}
	s := where(e.Root, e.Name(), e.PathHash)
	if e.Name2() != "" || e.Path2Hash != "" {
		root := e.Root2
		if root == "" {
			root = e.Root
		}
		s += " -> " + where(root, e.Name2(), e.Path2Hash)
	}
	return s
}

func auditDetails(e *audit.Entry) []string {
	var d []string
	add := func(show bool, format string, args ...any) {
		if show {
			d = append(d, fmt.Sprintf(format, args...))
		}
	}
	add(e.Kind != "", "%s", e.Kind)
	add(e.Errno != "", "%s", e.Errno)
	add(e.Count > 1, "%d times until %s", e.Count, e.Last.Local().Format("15:04:05"))
	add(len(e.Kinds) > 0, "kinds: %s", tallyText(e.Kinds))
	add(len(e.Ops) > 0, "operations: %s", tallyText(e.Ops))
	add(e.Verdict == "refused" && e.Rights != "", "needs %s", e.Rights)
	add(e.Read > 0, "read %s", sizeText(e.Read))
	add(e.Written > 0, "wrote %s", sizeText(e.Written))
	add(e.Closed > 0, "closed")
	add(e.DurationUS >= 1000, "%v", (time.Duration(e.DurationUS) * time.Microsecond).Round(time.Millisecond))
	add(e.Lost > 0, "%d records lost", e.Lost)
	add(e.Subject != "", "subject %s", quoteIfNeeded(e.Subject))
	add(e.Via != "" && e.Via != "none", "%s", e.Via)
	add(e.UID != nil && e.PID != 0, "pid %d", e.PID)
	add(e.Detail != "", "%s", names.EscapeQuoted(e.Detail))
	return d
}
