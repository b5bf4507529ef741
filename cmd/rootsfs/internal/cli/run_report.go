package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostconfig"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// record records how the command is confined. If that fails, it ends the command.
func (r *runner) record() error {
	rep := r.report
	how := "confined by " + rep.Name
	if rep.Level == sandbox.None {
		how = "not confined"
	}
	for _, l := range rep.Layers {
		if r.lacks(l) {
			how += ", without " + l.Name
		}
	}
	if ports := r.plan.box.Listen; len(ports) > 0 {
		how += fmt.Sprintf(", may listen on ports %v", ports)
	}
	err := r.reg.NoteFacts(names.OpRun, guard.Allowed, guard.Facts{Level: rep.Name}, fmt.Sprintf("%s, uid %d", how, rep.UID))
	if err == nil {
		return nil
	}
	_ = r.proc.Kill()
	r.proc.AbandonOutput()
	_, _ = r.proc.Wait() // the outcome does not matter
	return fmt.Errorf("the command was ended: that it was started cannot be recorded: %w", err)
}

// lacks reports whether an expected layer is missing. A memory limit is expected only with
// --memory-max; without the flag, a missing limit is only shown by status.
func (r *runner) lacks(l sandbox.Layer) bool {
	return l.State == sandbox.NotAvailable && (l.Name != sandbox.MemoryLimit || r.plan.memoryGiven)
}

// refusal notes that the command cannot be confined as required, and returns the error for the
// owner.
func (r *runner) refusal(err error) error {
	r.refused = true
	what := "leave --level out for the strongest that there is"
	switch {
	case errors.Is(err, sandbox.ErrNotConfined):
		what = "nothing weaker was tried, since this machine has that level; remove the cause and start again"
	case r.plan.pinFile != "":
		what = fmt.Sprintf("%s demands this level (run.level)", names.Quote(r.plan.pinFile))
	case r.plan.box.Level == 0:
		what = "`rootsfs doctor` says what would help; --unconfined starts it without any confinement"
	}
	return &control.Error{Text: "nothing was started: " + err.Error() + "; " + what, Class: control.System}
}

// publish passes the confinement of the command to `rootsfs status`, and warns the user of
// missing parts.
func (r *runner) publish(box *sandbox.Options) {
	rep := r.report
	c := control.Confined{
		Command: names.List[names.Foreign](box.Args), PID: r.proc.PID(), Started: time.Now(), UID: rep.UID, Confinement: rep.Name,
		Map: "same", Net: box.Net, Layers: []control.Layer{}, Holes: names.List[names.Text](rep.Holes),
		Interpreters: names.List[names.Foreign](r.plan.implicit), Notes: names.List[names.Text](rep.Notes),
		Follows: names.List[names.Foreign](rep.Follows), Closed: names.List[names.Foreign](rep.Closed), PrivateBytes: rep.TmpSize,
	}
	if box.Map == sandbox.Flat {
		c.Map = "flat"
	}
	for _, l := range rep.Layers {
		c.Layers = append(c.Layers, control.Layer{Name: l.Name, State: string(l.State), Detail: names.Text(l.Detail)})
	}
	c.Hosts, c.Secrets, c.Asks = textsOf(r.plan.net.Rules), textsOf(r.plan.secrets), r.plan.net.Ask != nil
	r.confined = c
	r.s.SetServer(c)
	for _, l := range rep.Layers {
		if r.lacks(l) {
			r.a.warn("%s: not available: %s", l.Name, l.Detail)
		}
	}
	switch {
	case rep.Level == sandbox.Namespaces:
		return // the flags ask for the remaining gaps; status shows them
	case rep.Level == sandbox.None:
		r.a.warn("NOT CONFINED, as --unconfined says (without it, as strongly as this machine can):")
	case len(rep.Holes) == 0:
		r.a.warn("confined by %s; nothing is known that this does not stop", rep.Name)
	default:
		r.a.warn("confined by %s only; not stopped:", rep.Name)
	}
	for _, h := range rep.Holes {
		r.a.warn("  %s", h)
	}
}

// hints prints facts that the user may not know, or may have forgotten.
func (r *runner) hints(box *sandbox.Options) {
	for _, dir := range r.plan.implicit {
		r.a.warn("shown as well, read-only, so that the command runs: %s", quoteIfNeeded(dir))
	}
	if r.plan.agent != "" {
		r.hintPreset(box)
	}
	if hidden := slices.DeleteFunc(sandbox.Hidden(r.report.Level), r.plan.covered); len(hidden) > 0 {
		r.a.warn("not shown, because they hold a credential: %s", names.Escape(strings.Join(hidden, ", ")))
	}
	for _, note := range r.plan.notes {
		r.a.warn("%s", note)
	}
	r.a.warnContinued(r.s)
	r.hintNames()
	if box.Level == sandbox.None {
		return
	}
	if len(r.plan.session.Roots) == len(r.plan.implicit) && !r.plan.learn {
		path := "PATH"
		if _, written := proposedRoot(); written != "" {
			path = written
		}
		r.a.warn("no root: the command is shown nothing of yours; write --root %s before --, or, while it runs: rootsfs roots add PATH --session %s", names.ShellWord(path), names.ShellWord(r.s.Name()))
	}
	if r.plan.net.Ask != nil {
		r.a.warn("you are asked about other hosts that it connects to: answer in rootsfs console, or with: rootsfs consent list --watch --session %s", names.ShellWord(r.s.Name()))
	}
	if name := hostconfig.FetcherOf(box.Args); name != "" && !box.Net && (box.Network == nil || box.Network.Offline) {
		// The fetcher's own error says only that it cannot reach its registry.
		r.a.warn("%s has no network to fetch anything from: if it does not find what it is to run, add --net (and --home DIR, so that it is fetched once)", names.Escape(name))
	}
}

// hintPreset prints a line about the preset of an agent.
func (r *runner) hintPreset(box *sandbox.Options) {
	var parts []string
	for _, g := range r.plan.session.Roots {
		if !g.Implicit {
			parts = append(parts, quoteIfNeeded(g.Dir)+" ("+g.Policy.Rights.String()+")")
		}
	}
	parts = append(parts, "HOME kept in "+quoteIfNeeded(box.Home))
	parts = append(parts, netText(&r.confined))
	r.a.warn("for %s: %s; see: rootsfs help agents", r.plan.agent, strings.Join(parts, ", "))
}
