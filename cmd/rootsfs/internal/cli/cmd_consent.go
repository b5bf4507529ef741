package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/rootspec"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

const consentLong = `Answer the MCP servers that ask, through files/consent, for paths that nobody
approved, and the commands of "run --net-ask" that connect to hosts without a rule. A
question that nobody answers in time is denied (files.consent_timeout of the
configuration, 2m; run.net_timeout, 1m). What you allow is a root, or a rule, of the
session.`

const consentExamples = `  rootsfs consent list
  rootsfs consent approve 4kq --mode ro --for 1h
  rootsfs consent deny 4kq
  rootsfs consent denials`

func (a *app) newConsentCmd() *cobra.Command {
	return group(&cobra.Command{
		Use:     "consent",
		Short:   "Answer servers and commands that ask for files or hosts",
		Long:    consentLong,
		Example: consentExamples,
	}, newConsentListCmd(a), newConsentApproveCmd(a), newConsentDenyCmd(a), newConsentDenialsCmd(a), newConsentForgetCmd(a))
}

const consentListLong = `Show who asks for what, the reason in the server's own words, where each path leads
(that very directory would be granted), and how long the question waits. Of a host:
its port, the program that connects, and what the command has reached so far. Control
and bidirectional characters are shown as escapes.

With --watch, show questions as they come and go; with --json as one object a line:
"event" is asked or over, and "question" the question.`

const consentListExamples = `  rootsfs consent list
  rootsfs consent list --watch
  rootsfs consent list --json | jq '.[].items[].resolved'`

func newConsentListCmd(a *app) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "Show the questions that wait for an answer",
		Long:    consentListLong,
		Example: consentListExamples,
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on showing questions as they come")
	show(a, cmd, control.ListQuestions, func(ans control.QuestionsAnswer) []control.Question { return ans.Questions }, a.printQuestions)
	once := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if watch {
			return a.streamQuestions(cmd.Context())
		}
		return once(cmd, args)
	}
	return cmd
}

func (a *app) printQuestions(list []control.Question) {
	if len(list) == 0 {
		a.say("no question waits; see them come: rootsfs consent list --watch")
	}
	for i := range list {
		if i > 0 {
			a.say("")
		}
		a.printQuestion(&list[i])
	}
}

// printQuestion prints a question. The foreign texts in its heading and lines are escaped
// already.
func (a *app) printQuestion(q *control.Question) {
	a.say("question %s, %s", quoteIfNeeded(q.ID), timeLeft(q.Until))
	for line := range strings.Lines(q.Heading.Raw()) {
		a.fold(strings.TrimSuffix(line, "\n"))
	}
	for i, line := range q.Lines {
		a.fold(fmt.Sprintf("%d. %s", i+1, line))
	}
	if q.Host != nil {
		a.say("  answer: rootsfs consent approve %s [--for 1h] [--save], or: rootsfs consent deny %s", shortID(q.ID), shortID(q.ID))
		return
	}
	a.say("  answer: rootsfs consent approve %s [--mode ro] [--for 1h] [--idle 10m] [--only N], or: rootsfs consent deny %s", shortID(q.ID), shortID(q.ID))
}

// shortID returns the first 8 characters of an id. They have 40 random bits, enough to tell the ids
// of a session apart.
func shortID(id string) string { return quoteIfNeeded(id[:min(len(id), 8)]) }

// timeLeft returns the time that a question still waits, as text.
func timeLeft(until time.Time) string {
	d := time.Until(until)
	if d < time.Second {
		return "about to be denied, unanswered"
	}
	return durationText(d.Truncate(time.Second)) + " left"
}

// questionEvent is one line of consent list --watch --json.
type questionEvent struct {
	Event    string           `json:"event"` // asked, over
	Question control.Question `json:"question"`
}

// streamQuestions shows questions as they come and go.
func (a *app) streamQuestions(ctx context.Context) error {
	var have []control.Question
	return stream(ctx, a, func(u control.Update) error {
		if u.Waiting == nil {
			return nil
		}
		err := a.printChanges(have, u.Waiting.Questions)
		have = u.Waiting.Questions
		return err
	})
}

// printChanges shows the differences of two lists of questions.
func (a *app) printChanges(old, now []control.Question) error {
	in := func(list []control.Question, id string) bool {
		return slices.ContainsFunc(list, func(q control.Question) bool { return q.ID == id })
	}
	for _, q := range old {
		if in(now, q.ID) {
			continue
		}
		if err := a.lineOr(questionEvent{"over", q}, func() { a.say("question %s is over", quoteIfNeeded(q.ID)) }); err != nil {
			return err
		}
	}
	for i := range now {
		if in(old, now[i].ID) {
			continue
		}
		if err := a.lineOr(questionEvent{"asked", now[i]}, func() { a.printQuestion(&now[i]) }); err != nil {
			return err
		}
	}
	return nil
}

// approveFlags are the flags of `rootsfs consent approve`.
type approveFlags struct {
	control.AnswerRequest
	path          string
	forTime, idle time.Duration
}

const consentApproveLong = `Allow what a question asks for, as a root of the session. ID is the question's, or
enough of its beginning. The flags allow less than was asked for: one directory below
it, a narrower mode, an earlier end, or some of the paths; the others are denied.
Asking for more is refused, and the question goes on waiting.

A host is allowed at the port that was asked for, as with "rootsfs net add". Of the
flags, --for and --save are for hosts: --save also writes the host to the configuration,
for later runs of the same name.`

const consentApproveExamples = `  rootsfs consent approve 4kq
  rootsfs consent approve 4kq --mode ro --for 30m
  rootsfs consent approve 4kq --idle 10m
  rootsfs consent approve 7wz --save      # a host, for later runs, too
  rootsfs consent approve 4kq --only 1 --path ~/src/app/docs`

func newConsentApproveCmd(a *app) *cobra.Command {
	f := &approveFlags{AnswerRequest: control.AnswerRequest{Approve: true}}
	cmd := &cobra.Command{
		Use:               "approve ID",
		Short:             "Allow what a question asks for, or less",
		Long:              consentApproveLong,
		Example:           consentApproveExamples,
		Args:              argCount(1, 1, "a question's id"),
		ValidArgsFunction: a.completeQuestions,
	}
	fs := cmd.Flags()
	pathVar(fs, &f.path, "path", "allow only this `path`, below what was asked for")
	fs.StringVar(&f.Mode, "mode", "", "allow only this `mode`: ro, rw, stage or a list of rights")
	fs.DurationVar(&f.forTime, "for", 0, "revoke it after this `duration`, such as 30m (default: when the session ends)")
	fs.DurationVar(&f.idle, "idle", 0, "revoke it when nothing has used it for this `duration`, such as 10m; an open file alone is no use")
	fs.IntSliceVar(&f.Only, "only", nil, "allow only the paths with these numbers, from 1: a `number` or a list")
	fs.BoolVar(&f.Save, "save", false, "write the host to the configuration as well, for runs of the same name")
	fixedWords(cmd, "mode", "ro", "rw", "stage")
	return do(a, cmd, control.AnswerQuestion, func(args []string) (control.AnswerRequest, error) {
		return f.request(cmd, args[0])
	}, a.printAnswered)
}

func (f *approveFlags) request(cmd *cobra.Command, id string) (control.AnswerRequest, error) {
	req := f.AnswerRequest
	req.ID, req.ForMS, req.IdleMS = id, f.forTime.Milliseconds(), f.idle.Milliseconds()
	given := cmd.Flags().Changed
	switch {
	case id == "":
		return req, usage(errors.New("the id is empty; see: rootsfs consent list"))
	case given("for") && f.forTime < time.Second:
		return req, usage(fmt.Errorf("--for %v: write a duration of a second or more, such as 30m", f.forTime))
	case given("idle") && (f.idle < time.Second || f.idle > config.MaxIdle):
		return req, usage(fmt.Errorf("--idle %v: write a duration from 1s to %v, such as 10m", f.idle, config.MaxIdle))
	case given("only") && len(f.Only) == 0:
		return req, usage(errors.New("--only is empty: write the number of a path, as rootsfs consent list shows it"))
	}
	if f.Mode != "" {
		if _, err := rules.ParseMode(f.Mode); err != nil {
			return req, usage(fmt.Errorf("--mode: %w", err))
		}
	}
	if f.path != "" {
		g, err := fromSpec(rootspec.Spec{Path: f.path, Name: "x"}) // makes the path absolute
		if err != nil {
			return req, err
		}
		req.Path = g.Dir.Raw()
	}
	return req, nil
}

const consentDenyLong = `Deny what a question asks for, or every question that waits. ID is the question's, or
enough of its beginning. The server learns that it was denied, and nothing else.

With --remember, what the same server asks for there, and below, is denied without a
question until the session ends, or until "rootsfs consent forget". The denial of a
host is always remembered, since programs try again.`

const consentDenyExamples = `  rootsfs consent deny 4kq
  rootsfs consent deny 4kq --remember
  rootsfs consent deny --all`

func newConsentDenyCmd(a *app) *cobra.Command {
	var all, remember bool
	cmd := &cobra.Command{
		Use:               "deny ID | --all",
		Short:             "Deny what a question asks for",
		Long:              consentDenyLong,
		Example:           consentDenyExamples,
		Args:              idOrAll(&all, "question to deny", "rootsfs consent list"),
		ValidArgsFunction: a.completeQuestions,
	}
	cmd.Flags().BoolVar(&all, "all", false, "every question that waits")
	cmd.Flags().BoolVar(&remember, "remember", false, "deny the same without a question while the session lives")
	return do(a, cmd, control.AnswerQuestion, func(args []string) (control.AnswerRequest, error) {
		if all && remember {
			return control.AnswerRequest{}, usage(errors.New("--all and --remember cannot be combined: name the question"))
		}
		return control.AnswerRequest{All: all, Remember: remember, ID: strings.Join(args, "")}, nil // no id with --all
	}, a.printAnswered)
}

// idOrAll checks the arguments of a command that takes an id or --all. what is the noun for the
// thing with the id, and see is the command that shows ids.
func idOrAll(all *bool, what, see string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := oneOf("an id and --all", fmt.Sprintf("name the %s, or use --all; see: %s", what, see), len(args) > 0 && args[0] != "", *all); err != nil {
			return err
		}
		return argCount(0, 1, "")(cmd, args)
	}
}

// printAnswered prints what an answer to questions allowed and denied.
func (a *app) printAnswered(ans control.AnswerAnswer) {
	if len(ans.Answered) == 0 {
		a.say("no question waits")
	}
	for _, one := range ans.Answered {
		for _, p := range one.Allowed {
			a.say("allowed: %s", p)
		}
		for _, p := range one.Denied {
			a.say("denied: %s", p)
		}
	}
	if ans.Saved != "" {
		a.say("saved in %s", quoteIfNeeded(ans.Saved))
	}
}

// completeQuestions offers the ids of waiting questions.
func (a *app) completeQuestions(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return offer(a, control.ListQuestions, func(ans control.QuestionsAnswer) (out []string, err error) {
		for _, q := range ans.Questions {
			out = append(out, cobra.CompletionWithDesc(q.ID, names.Join(q.Lines, "; ")))
		}
		return out, nil
	})
}

const consentDenialsLong = `Show the denials that you asked to remember, and those of hosts: since when, which
server or command, and the path or host. What that server asks for there, and below, is
denied without a question.`

const consentDenialsExamples = `  rootsfs consent denials
  rootsfs consent denials --json | jq -r '.[] | .host // .path'`

func newConsentDenialsCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "denials",
		Short:   "Show the denials that are remembered",
		Long:    consentDenialsLong,
		Example: consentDenialsExamples,
	}
	return show(a, cmd, control.ListDenials, func(ans control.DenialsAnswer) []control.Denial { return ans.Denials }, a.printDenials)
}

func (a *app) printDenials(list []control.Denial) {
	if len(list) == 0 {
		a.say("no denial is remembered; remember one: rootsfs consent deny ID --remember")
		return
	}
	rows := [][]string{{"ID", "SINCE", "SERVER", "DENIED, AND BELOW"}}
	for _, d := range list {
		rows = append(rows, []string{shortID(d.ID), d.Since.Local().Format(time.TimeOnly), deniedTo(d), quoteIfNeeded(d.What())})
	}
	a.table(rows)
	a.say("to be asked again: rootsfs consent forget %s", shortID(list[0].ID))
}

// deniedTo returns the name of the server or command that a denial is about, as text.
func deniedTo(d control.Denial) string {
	if d.Subject == "" {
		return "(no name)"
	}
	return quoteIfNeeded(d.Subject)
}

const consentForgetLong = `Lift a denial that is remembered, or every one of the session. ID is the denial's, or
enough of its beginning. Nothing is granted: the server may ask again, and then you
are asked.`

const consentForgetExamples = `  rootsfs consent forget 4kq
  rootsfs consent forget --all`

func newConsentForgetCmd(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:               "forget ID | --all",
		Short:             "Lift a denial that is remembered",
		Long:              consentForgetLong,
		Example:           consentForgetExamples,
		Args:              idOrAll(&all, "denial to lift", "rootsfs consent denials"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&all, "all", false, "every denial that is remembered")
	return do(a, cmd, control.ForgetDenial, func(args []string) (control.ForgetRequest, error) {
		return control.ForgetRequest{All: all, ID: strings.Join(args, "")}, nil // no id with --all
	}, func(ans control.ForgetAnswer) {
		if len(ans.Forgotten) == 0 {
			a.say("no denial is remembered")
		}
		for _, d := range ans.Forgotten {
			a.say("%s may ask again: %s", deniedTo(d), quoteIfNeeded(d.What()))
		}
	})
}
