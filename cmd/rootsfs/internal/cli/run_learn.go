package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// learnLog has the observations of `run --learn`: the paths that the command looked for outside
// of its roots, and the refusals in its roots. On a nil *learnLog, begin and propose do nothing.
type learnLog struct {
	mu       sync.Mutex     // guards the fields below
	begun    bool           // see begin
	sought   map[string]int // how often the command looked for a path
	overflow bool           // there were more paths than maxSought
	refused  map[refusedKind]*refusedOps
	links    map[guard.Path]bool // links that leave their root
}

// refusedKind is the key of refused operations that are reported together: operations of one type,
// in one root, that need the same rights.
type refusedKind struct {
	root   guard.RootName
	op     guard.Op
	rights guard.Rights
}

// refusedOps are the refused operations of one kind.
type refusedOps struct {
	first guard.Request
	order int // number of the kind, in the order of the first refusals
	times int
}

// missingRights has the rights that were missing in one root.
type missingRights struct {
	rights  guard.Rights
	times   int
	example string
}

// The largest numbers of paths and of links that are noted: a command may look for any number.
const (
	maxSought       = 10_000
	maxRefusedLinks = 1000
)

func newLearnLog() *learnLog {
	return &learnLog{sought: map[string]int{}, refused: map[refusedKind]*refusedOps{}, links: map[guard.Path]bool{}}
}

// begin is called when the command is about to start. Look-ups before this call are not noted: they
// come from the command's init, which is a part of rootsfs.
func (l *learnLog) begin() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun = true
}

// missing notes that the command looked for a path that is in no root and does not exist in the
// mount.
func (l *learnLog) missing(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.begun {
		return
	}
	if _, known := l.sought[path]; !known && len(l.sought) >= maxSought {
		l.overflow = true
		return
	}
	l.sought[path]++
}

// observe notes refused links, and refusals that a missing right may have caused. A refusal with a
// rule has another cause.
func (l *learnLog) observe(e guard.Event) {
	rec := e.Record
	if rec == nil || rec.Path.Root == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if isLinkRefused(rec) && len(l.links) < maxRefusedLinks {
		l.links[rec.Path] = true
	}
	if rec.Verdict != guard.Refused || rec.Kind != names.ReadOnly && rec.Kind != names.Permission || rec.Rule != "" {
		return
	}
	kind := refusedKind{rec.Path.Root, rec.Op, rec.Rights}
	have := l.refused[kind]
	if have == nil {
		have = &refusedOps{first: guard.RequestOf(rec), order: len(l.refused)}
		l.refused[kind] = have
	}
	have.times++
}

// unseenOf says which accesses of the command rootsfs does not see, and why. It returns "" if
// rootsfs sees all of them.
func unseenOf(box *sandbox.Options, level sandbox.Level) string {
	const looked = "what it looked for beside its roots"
	switch {
	case level == sandbox.None:
		return looked + " is not seen with a command that is not confined"
	case level == sandbox.Landlock:
		return looked + ", or on the network, is not seen with confinement by landlock"
	case box.Map == sandbox.Flat:
		return looked + " is not seen with --map flat"
	}
	return ""
}

// propose prints the roots and rights that would have sufficed, as far as the refusals show. It
// grants nothing. hosts are the hosts without a rule that the command tried to reach, and times
// is how often it tried. unseen is the text of unseenOf.
func (l *learnLog) propose(a *app, s *session.Session, hosts []string, times int, unseen string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.proposal(s.Registry(), func(req guard.Request) guard.Explanation { return s.Explain(context.Background(), req) })
	if len(hosts) > 0 {
		p.add("--net="+names.ShellWord(strings.Join(hosts, ",")), plural(times, "connection")+" refused")
	}
	switch {
	case len(p.lines) > 0:
		a.warn("learned: to allow what was refused in this run, add (nothing has been granted):")
		for _, line := range p.lines {
			a.warn("  %s", line)
		}
		a.warn("leave out what the command can do without; what it looks for inside a new root shows in another --learn run")
	case len(p.notes) > 0:
		a.warn("learned: nothing is proposed")
	case unseen != "":
		a.warn("learned: nothing was refused in its roots; %s", unseen)
		return
	default:
		a.warn("learned: nothing was refused that a root or a right would have allowed")
	}
	if unseen != "" {
		a.warn("%s", unseen)
	}
	if l.overflow {
		a.warn("it looked for more than %d paths; the rest is not listed", maxSought)
	}
	for _, text := range p.notes {
		a.warn("%s", text)
	}
}

// learnedFlags is the report at the end: the flags to add, each with a line for the reason, and
// notes without a flag.
type learnedFlags struct{ lines, notes []string }

// add proposes a flag. The reason is not a comment on the same line: zsh at its prompt would
// run the comment as words of the command.
func (p *learnedFlags) add(flag, why string) { p.lines = append(p.lines, flag, "    "+why) }

// proposal returns the flags that would have allowed the refused operations. explain returns the
// session's verdict on an operation.
func (l *learnLog) proposal(reg *guard.Registry, explain func(guard.Request) guard.Explanation) (p learnedFlags) {
	lacked := l.lacked(explain)
	for _, name := range slices.Sorted(maps.Keys(lacked)) {
		st, ok := reg.Lookup(name)
		if !ok {
			continue
		}
		lack := lacked[name]
		mode := st.Grant.Policy.Rights | lack.rights
		p.add("--root "+names.ShellWord(names.Foreign(name)+"="+st.Grant.Dir+":"+names.Foreign(mode.String())), plural(lack.times, "refusal")+", such as "+lack.example)
	}
	homes := homeDirs()
	isHome := func(path string) bool {
		return slices.ContainsFunc(homes, func(dir string) bool { return names.Under(dir, path) })
	}
	var roots []string
	found, skipped := l.existing(isHome)
	for _, path := range skipped {
		p.notes = append(p.notes, fmt.Sprintf("it looked for %s, which is or holds a home directory and is not proposed: name directories inside", quoteIfNeeded(path)))
	}
	for _, path := range found {
		roots = append(roots, path)
		p.add("--root "+names.ShellWord(path+":ro"), "looked for "+plural(l.sought[path], "time"))
	}
	for _, r := range l.refusedLinks(reg) {
		_, err := os.Lstat(r.dest.Raw())
		switch {
		case reg.Holds("", r.dest.Raw()), sandbox.Namespaces.Shows(r.dest.Raw()):
			p.notes = append(p.notes, fmt.Sprintf("%v, which was refused; --links visible shows such a link", r))
		case err != nil, isHome(r.dest.Raw()), slices.ContainsFunc(roots, func(dir string) bool { return names.Under(r.dest.Raw(), dir) }):
			p.notes = append(p.notes, fmt.Sprintf("%v, which was refused", r))
		default:
			roots = append(roots, r.dest.Raw())
			p.add("--root "+names.ShellWord(r.dest+":ro"), fmt.Sprintf("the link %s leads to %s", names.ShellWord(r.at), names.ShellWord(r.text)))
		}
	}
	return p
}

// lacked returns, by root, the rights that the refused operations lack. It leaves out an operation
// that lacks none: the file's own permissions refused that operation.
func (l *learnLog) lacked(explain func(guard.Request) guard.Explanation) map[guard.RootName]*missingRights {
	out := map[guard.RootName]*missingRights{}
	byOrder := func(a, b *refusedOps) int { return cmp.Compare(a.order, b.order) }
	for _, ops := range slices.SortedFunc(maps.Values(l.refused), byOrder) {
		e := explain(ops.first)
		if e.Lacks == 0 {
			continue
		}
		lack := out[e.Root]
		if lack == nil {
			lack = &missingRights{example: ops.first.Op.String() + " " + names.ShellWord(ops.first.Path.String())}
			out[e.Root] = lack
		}
		lack.rights |= e.Lacks
		lack.times += ops.times
	}
	return out
}

// existing returns the sought paths that exist on the host, without paths below another one.
// Paths for which skip is true are returned separately.
func (l *learnLog) existing(skip func(path string) bool) (found, skipped []string) {
	for _, path := range slices.Sorted(maps.Keys(l.sought)) {
		if _, err := os.Lstat(path); err != nil {
			continue
		}
		if skip(path) {
			skipped = append(skipped, path)
			continue
		}
		if !slices.ContainsFunc(found, func(dir string) bool { return names.Under(path, dir) }) {
			found = append(found, path)
		}
	}
	return found, skipped
}

// linkRule decides whether the command may read a link that leaves its root. The rule is only for
// the private mount of a run, which only the command walks. With levels namespaces and bubblewrap,
// the command's root directory is the sandbox's, so the kernel resolves links inside the sandbox;
// visible treats the other levels differently. If the mount has a place on the host, links are
// harmless there too: only the owner can enter that place, and the owner can follow the links of
// the source anyway.
type linkRule struct {
	level atomic.Uint32              // the level of confinement, a sandbox.Level
	last  atomic.Pointer[guard.Path] // the link that was refused last; nil: none
}

// isLinkRefused reports whether a record is about a link that was refused because it leaves its
// root.
func isLinkRefused(rec *guard.Record) bool {
	return rec.Op == names.OpReadlink && rec.Kind == names.Escaped && rec.Path.Root != ""
}

// observe notes the last refused link.
func (l *linkRule) observe(e guard.Event) {
	if e.Record != nil && isLinkRefused(e.Record) {
		path := e.Record.Path
		l.last.Store(&path)
	}
}

// refusedLink is a link on the host that the mount did not let the command read.
type refusedLink struct {
	at, text names.Foreign // the path of the link, and its target as it is written
	dest     names.Foreign // the target as an absolute path
}

func (r refusedLink) String() string {
	return fmt.Sprintf("the link %q leads to %q", r.at, r.text)
}

// readRefused reads the link at p on the host as it is now. It reports whether that worked.
func readRefused(reg *guard.Registry, p guard.Path) (refusedLink, bool) {
	dir, ok := reg.Dir(p.Root)
	if !ok {
		return refusedLink{}, false
	}
	at := filepath.Join(dir, p.Rel())
	text, err := os.Readlink(at)
	if err != nil {
		return refusedLink{}, false
	}
	r := refusedLink{at: names.Foreign(at), text: names.Foreign(text), dest: names.Foreign(filepath.Clean(text))}
	if !filepath.IsAbs(text) {
		r.dest = names.Foreign(filepath.Join(filepath.Dir(at), text))
	}
	return r, true
}

// refusedLinks returns the links that were refused, as they are now, sorted by path.
func (l *learnLog) refusedLinks(reg *guard.Registry) (out []refusedLink) {
	for p := range l.links {
		if r, ok := readRefused(reg, p); ok {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b refusedLink) int { return cmp.Compare(a.at, b.at) })
	return out
}

// explain adds the last refused link to the error of a command that could not be executed. Such a
// command never ran, so only the attempt to start it can have read that link.
func (l *linkRule) explain(reg *guard.Registry, name string, err error) error {
	last := l.last.Load()
	if last == nil || !errors.Is(err, sandbox.ErrNotExecutable) {
		return err
	}
	r, ok := readRefused(reg, *last)
	if !ok {
		return err
	}
	remedy := "approve that too, with --root " + names.ShellWord(r.dest+":ro")
	if sandbox.Level(l.level.Load()).Shows(r.dest.Raw()) {
		remedy = "--links visible shows such a link"
	}
	return &exitError{Code: exitNotExecutable, Err: fmt.Errorf("the command %s cannot be executed: %v, which is refused; %s", names.Quote(name), r, remedy)}
}

// setLevel sets the level of confinement, before the command is started.
func (l *linkRule) setLevel(level sandbox.Level) { l.level.Store(uint32(level)) }

// visible is mount.Options.Visible of the run: it reports whether a link that leaves its root to
// dest is shown. dest "" stands for any path in a root. The answer depends on the level of
// confinement.
func (l *linkRule) visible(dest string, relative bool) bool {
	switch level := sandbox.Level(l.level.Load()); level {
	case sandbox.Namespaces, sandbox.Bubblewrap:
		return dest == "" || level.Shows(dest)
	case sandbox.Landlock:
		// The command has the host's root directory, and the roots are in the mount. So only a
		// relative link can lead from one root to another, and no such link leads out of the
		// mount.
		if dest == "" {
			return relative
		}
		return !relative && level.Shows(dest)
	}
	return false // not confined: the host resolves the link
}
