package fleetcli

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/fleet"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard/audit"
)

// openArchive opens the archive that the arguments name, and its owner, which the caller closes.
func openArchive(f *cli.FleetFlags, args []string) (*fleet.Archive, error) {
	open := fleet.OpenOwner
	if f.Offline {
		open = fleet.ReadOwner
	}
	o, err := open()
	if err != nil {
		return nil, err
	}
	a := &fleet.Archive{Owner: o, Machines: f.Machines}
	if len(args) > 0 {
		if a.Dir, err = filepath.Abs(args[0]); err == nil { // no root may touch the default, but may touch this
			err = writabledirs.NewJudge().File(a.Dir)
		}
	} else {
		a.Dir, err = o.ArchiveDir()
	}
	if err != nil {
		o.Close()
		return nil, err
	}
	return a, nil
}

// pullReport is the output of pull.
type pullReport struct {
	Fleet    string         `json:"fleet"`
	Machines []fleet.Pulled `json:"machines"`
}

func pull(ctx context.Context, p *cli.Printer, f *cli.FleetFlags, args []string) error {
	a, err := openArchive(f, args)
	if err != nil {
		return err
	}
	defer a.Owner.Close()
	ctx, stop := cli.Until(ctx)
	defer stop()
	done := p.Waiting("copying records")
	got, err := a.Pull(ctx, nil)
	done()
	if err != nil {
		return err
	}
	if err := p.Report(pullReport{a.Owner.Names.Name(), got}, func() { printPulled(p, got) }); err != nil {
		return err
	}
	return issuesFail(got)
}

func printPulled(p *cli.Printer, got []fleet.Pulled) {
	if len(got) == 0 {
		p.Say("no machine has sent records; its agent does: rootsfs fleet agent")
	}
	for _, m := range got {
		p.Say("%s: %d new records in %q", m.Machine, m.Records, m.Dir)
	}
	printIssues(got, p.Say)
}

// printIssues prints what the keeper has and machines have not signed.
func printIssues(got []fleet.Pulled, say func(string, ...any)) {
	for _, m := range got {
		for _, is := range m.Issues {
			switch {
			case is.File == "":
				say("%s: %s: %s", m.Machine, is.State, is.Problem)
			default:
				say("%s: session %s: %s at the keeper: %s: %s", m.Machine, is.Session, is.State, is.File, is.Problem)
			}
		}
	}
}

// issuesFail returns the error of the exit code.
func issuesFail(got []fleet.Pulled) error {
	if slices.ContainsFunc(got, func(m fleet.Pulled) bool { return len(m.Issues) > 0 }) {
		return cli.Failed()
	}
	return nil
}

// followTime is how often follow asks the keeper.
const followTime = time.Second

func follow(ctx context.Context, p *cli.Printer, f *cli.FleetFlags, args []string) error {
	a, err := openArchive(f, args)
	if err != nil {
		return err
	}
	defer a.Owner.Close()
	ctx, stop := cli.Until(ctx)
	defer stop()
	var issues []fleet.Pulled
	for {
		got, err := a.Pull(ctx, func(machine string, e *audit.Entry) error { return p.Record(machine, e) })
		if ctx.Err() != nil {
			return issuesFail(issues)
		}
		if err != nil {
			return err
		}
		printIssues(got, p.Warn)
		issues = append(issues, slices.DeleteFunc(got, func(m fleet.Pulled) bool { return len(m.Issues) == 0 })...)
		issues = issues[:min(len(issues), 1)] // one is enough to decide the exit code
		select {
		case <-ctx.Done():
		case <-time.After(followTime):
		}
	}
}

// verifyReport is the output of verify.
type verifyReport struct {
	Fleet    string               `json:"fleet"`
	Sessions []fleet.RecordReport `json:"sessions"`
	Keeper   []fleet.Pulled       `json:"keeper,omitempty"` // machines of which the keeper has something else
	Unsure   []fleet.Unsure       `json:"unsure,omitempty"`
}

// askTime bounds how long verify waits for the answers of machines.
const askTime = 2 * time.Second

func verify(ctx context.Context, p *cli.Printer, f *cli.FleetFlags, args []string) error {
	a, err := openArchive(f, args)
	if err != nil {
		return err
	}
	defer a.Owner.Close()
	ctx, stop := cli.Until(ctx)
	defer stop()
	defer p.Waiting("reading the records")()
	report := verifyReport{Fleet: a.Owner.Names.Name()}
	if !f.Offline {
		if report.Unsure, err = a.AskMachines(ctx, askTime); err != nil {
			return err
		}
		got, err := a.Pull(ctx, nil)
		if err != nil {
			return err
		}
		report.Keeper = slices.DeleteFunc(got, func(m fleet.Pulled) bool { return len(m.Issues) == 0 })
	}
	if report.Sessions, err = a.Verify(); err != nil {
		return err
	}
	if err := p.Report(report, func() { printVerified(p, report) }); err != nil {
		return err
	}
	if slices.ContainsFunc(report.Sessions, func(r fleet.RecordReport) bool { return !r.OK() }) {
		return cli.Failed()
	}
	return issuesFail(report.Keeper)
}

func printVerified(p *cli.Printer, report verifyReport) {
	if len(report.Sessions) == 0 {
		p.Say("there are no records")
	}
	for _, r := range report.Sessions {
		if r.State == fleet.RecordsWhole {
			p.Say("%s: session %s: whole, %d records, numbers %d to %d, signed %s by %s", r.Machine, r.Session, r.Records, r.From, r.To, r.Signed.Local().Format(time.DateTime), r.Key)
		} else {
			p.Say("%s: session %s: %s: %s", r.Machine, r.Session, r.State, r.Problem)
		}
	}
	printIssues(report.Keeper, p.Say)
	for _, m := range report.Unsure {
		if m.Wait != "" {
			p.Say("%s: its newest records wait there: %s", m.Machine, m.Wait)
		} else {
			p.Say("%s: no answer: whether the keeper has its newest records is unknown", m.Machine)
		}
	}
}
