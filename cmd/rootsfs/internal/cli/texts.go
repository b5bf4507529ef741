package cli

import (
	"path"
	"strings"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

// PrintWhy tells why roots are unavailable.
func (a *App) PrintWhy(roots []control.Root) {
	for _, r := range roots {
		if r.Why != "" {
			a.Say("%s: %s", QuoteIfNeeded(r.Name), r.Why)
		}
	}
}

// RootPlace is a root's directory, and whom it is for if that is one server alone.
func RootPlace(r *control.Root) string {
	return QuoteIfNeeded(r.Resolved) + WithPrefix(", for ", r.Subject)
}

// ExpiryText says when a root ends by itself.
func ExpiryText(r *control.Root) string {
	if r.Once != "" {
		return "once (" + r.Once + ")"
	}
	return LocalTime(r.Expires)
}

// RepositoryText tells of a repository, which can be the root itself, or of what git has begun in
// one.
func RepositoryText(root string, dir names.Foreign) string {
	at := QuoteIfNeeded(strings.TrimSuffix(root+"/"+dir.Raw(), "/"))
	switch path.Base(dir.Raw()) {
	case "rebase-merge", "rebase-apply", "sequencer":
		return at + ": git rebase --continue runs what it lists, which is untrusted"
	}
	return at + ": its hooks are untrusted"
}

// NetText says which network a command has.
func NetText(c *control.Confined) string {
	var parts []string
	switch hosts := Plural(len(c.Hosts), "approved host") + " (" + strings.Join(c.Hosts, ", ") + ")"; {
	case len(c.Hosts) > 0 && c.Asks:
		parts = append(parts, "a network of "+hosts+"; others are asked about")
	case len(c.Hosts) > 0:
		parts = append(parts, "a network of "+hosts)
	case c.Asks:
		parts = append(parts, "a network whose hosts are asked about")
	}
	if len(c.Secrets) > 0 {
		parts = append(parts, Plural(len(c.Secrets), "secret")+" ("+strings.Join(c.Secrets, ", ")+")")
	}
	switch {
	case c.Net:
		return "the host's network"
	case len(parts) > 0:
		return strings.Join(parts, ", ")
	}
	return "no network"
}
