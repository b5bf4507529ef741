package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/auditview"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/rootspec"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/secret"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// lastTrail finds the session with the newest refusal, among all sessions or only the named one. If
// path is set, only refusals of path count. lastTrail returns nil if there is no refusal. It does
// not read the records of a session that wrote its last record before the newest refusal found so
// far.
func (a *app) lastTrail(ctx context.Context, path string) (*auditview.Trail, error) {
	dir, named, err := auditLocation(a)
	if err != nil {
		return nil, err
	}
	store, err := recordStore()
	if err != nil {
		return nil, err
	}
	flushRecords(ctx, named)
	newest, err := lastWritten(dir, named)
	if err != nil {
		return nil, err
	}
	var matches func(*auditview.Trail, *audit.Entry) bool
	if path != "" {
		full, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		matches = func(t *auditview.Trail, e *audit.Entry) bool {
			return t.HostPath(e) == full || e.Root.Raw()+"/"+e.Name().Raw() == path
		}
	}
	var last *auditview.Trail
	for _, session := range slices.SortedFunc(maps.Keys(newest), func(a, b string) int { return newest[b].Compare(newest[a]) }) {
		if last != nil && newest[session].Before(last.Refused.Time) {
			break
		}
		t, err := store.Trail(ctx, session, matches)
		if err != nil {
			return nil, err
		}
		if t.Refused != nil && (last == nil || t.Refused.Time.After(last.Refused.Time)) {
			last = &t
		}
	}
	return last, nil
}

// flushRecords makes the live sessions, or the named one, write their records. If a session
// does not answer, its records are read as they are.
func flushRecords(ctx context.Context, named string) {
	all, err := control.List()
	if err != nil {
		return
	}
	for _, in := range all {
		if named == "" || in.Name == named {
			_, _ = control.GetRefusal.Call(ctx, control.Dial(in), control.None{}) // a session writes its records before it answers
		}
	}
}

// lastWritten returns, for each session with records or for the named one, the time of the last
// write to its newest file.
func lastWritten(dir, named string) (map[string]time.Time, error) {
	files, err := audit.Files(dir, named)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	newest := map[string]time.Time{}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			continue // it was pruned meanwhile
		}
		if session := auditSession(f); info.ModTime().After(newest[session]) {
			newest[session] = info.ModTime()
		}
	}
	return newest, nil
}

// recordPath returns the path of a refusal on record, as a path in the session.
func recordPath(r *audit.Entry) names.Foreign {
	switch {
	case r.PathHash != "":
		return names.Foreign(auditview.ForDisplay(r).Path)
	case r.Name() == "":
		return r.Root
	}
	return r.Root + "/" + r.Name()
}

// secondPath returns the second path of a refusal on record, "" if it has none.
func secondPath(r *audit.Entry) string {
	if name := r.Name2(); name != "" {
		return (cmp.Or(r.Root2, r.Root) + "/" + name).Raw()
	}
	return r.Root2.Raw()
}

// noteMissingRights sets e.Lacks to the rights that the refused operation on record lacked.
func (e *explanation) noteMissingRights(r *audit.Entry) {
	if r.Kind.Raw() != names.ReadOnly.String() && r.Kind.Raw() != names.Permission.String() {
		return
	}
	have, err := rules.ParseMode(e.Mode)
	want, werr := rules.ParseMode(r.Rights.Raw())
	if err == nil && werr == nil && want&^have != 0 {
		e.Lacks = (want &^ have).String()
	} else if err == nil && r.Kind.Raw() == names.ReadOnly.String() && have&guard.Write == 0 {
		e.Lacks = guard.Write.String()
	}
}

// findRefusedName finds the name that a built-in rule is about, if an ended session has refused a
// rename. The records do not have this name, which may lie in the renamed directory, so
// findRefusedName asks about the same rename in a root like the one on record. If the directory has
// changed so that such a root does not refuse the rename by a rule, no command is proposed.
func (e *explanation) findRefusedName(ctx context.Context, req control.CheckRequest) {
	e.builtIn = false
	spec, err := rootspec.Parse(e.spec(e.Mode).Raw())
	if err != nil {
		return
	}
	req.Subject = "" // the new root is for every server
	var ans control.CheckAnswer
	err = withRoot(ctx, spec, func(x session.Explainer, _ guard.Grant) (err error) {
		ans, err = x.Check(ctx, req)
		return err
	})
	switch {
	case err != nil:
	case ans.Allowed:
		e.Advice = "a new session with the same root allows it, as the files are now"
	case ans.Rule != nil:
		e.Rule, e.At = ans.Rule, ans.At
	}
}

// opWord returns the operation of a record as --op takes it.
func opWord(r *audit.Entry) string {
	if r.Op.Raw() != names.OpOpen.String() {
		return r.Op.Raw()
	}
	switch rights, err := rules.ParseMode(r.Rights.Raw()); {
	case err == nil && rights&guard.Write != 0:
		return "write"
	case err == nil && rights&guard.Append != 0:
		return "append"
	}
	return "read"
}

// noRefusal is a filter for Store.Trail that accepts no refusal.
func noRefusal(*auditview.Trail, *audit.Entry) bool { return false }

// limitsOf returns the limits that can have caused the refusal, by their names for --limit, the
// likeliest limit first. It returns none if the refusal has another reason.
func limitsOf(r *audit.Entry) []string {
	switch {
	case r.Kind.Raw() == names.Rate.String():
		return []string{"ops_per_second"}
	case r.Kind.Raw() != names.Quota.String():
		return nil
	case r.Errno == "EFBIG":
		return []string{"max_file"}
	case r.Op.Raw() == names.OpWrite.String(), r.Op.Raw() == names.OpReplace.String(), r.Op.Raw() == names.OpCopyFileRange.String():
		return []string{"max_written", "max_created"}
	}
	return []string{"max_created", "max_written"}
}

// noteLimit sets e.Limit to the limit that was reached in a live session, and e.Advice to how the
// owner can raise it. subject is the server of the refused operation.
func (e *explanation) noteLimit(st *control.Status, subject string) {
	for _, limit := range e.limits {
		if r := rootNamed(st, e.Root.Raw()); r != nil && limitText(limit, r.Limits) != "" {
			e.Limit, e.LimitValue, e.limitOwner = limit, limitText(limit, r.Limits), "root "+quoteIfNeeded(e.Root)
			e.Advice = names.Text("revoke the root and grant it with a higher limit; programs then have to open what they use of it anew: " +
				commandWords{"revoke", e.Root}.line() + " && " + append(commandWords{"roots", "add"}, e.limitFlags()...).line())
			return
		}
		for _, q := range st.Subjects {
			value := limitText(limit, guard.Limits{MaxFile: q.MaxFile, MaxWritten: q.MaxWritten, MaxCreated: q.MaxCreated})
			if q.Subject.Raw() == subject && value != "" {
				e.Limit, e.LimitValue, e.limitOwner = limit, value, "server "+quoteIfNeeded(subject)
				e.Advice = "raise the limit in the [[subject]] block of the configuration"
				return
			}
		}
	}
}

// limitText returns the value of a limit, "" if it is not set.
func limitText(limit string, l guard.Limits) string {
	k, err := config.KeyNamed(config.Limits(), limit)
	if err != nil {
		return ""
	}
	return k.Text(&l)
}

// limitFlags returns a SPEC of the root with a flag for the limit.
func (e *explanation) limitFlags() commandWords {
	return commandWords{e.spec(e.Mode), "--limit", names.Foreign(e.Limit + "=VALUE")}
}

// secretAdvice returns what the owner can do about a refused request with a secret, "" if the
// record names no rule that would allow the request.
func secretAdvice(r *audit.Entry) names.Text {
	if r.SecretRule == "" {
		return ""
	}
	return names.Text(fmt.Sprintf("add %s to allow in the [[secret]] block of %s, and start the session again", names.Quote(r.SecretRule), names.EscapeQuoted(r.Secret)))
}

// hostOf returns the host, as --net takes it, of a connection that no rule permitted. It
// returns "" if the record is about something else, or about a name that stands for a secret.
func hostOf(r *audit.Entry) string {
	if !r.NoRule || secret.IsInside(r.Host.Raw()) {
		return ""
	}
	return hostRule(cmp.Or(r.ServerName, r.Host).Raw(), r.Port)
}
