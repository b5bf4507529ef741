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
	"github.com/rootsfs/rootsfs/guard/names"
)

// openArchive opens the archive that the arguments name. The caller must close its Owner.
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
		// Unlike the default directory, this directory may lie in a root. File refuses it then.
		if a.Dir, err = filepath.Abs(args[0]); err == nil {
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
	Fleet    string               `json:"fleet"`
	Machines []fleet.Pulled       `json:"machines"`
	Keepers  []fleet.KeeperReport `json:"keepers,omitempty"` // none if the fleet has one keeper
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
	report := pullReport{a.Owner.Names.Name(), got, a.Keepers(nil)}
	if err := p.Report(report, func() { printPulled(p, report) }); err != nil {
		return err
	}
	return issuesError(got)
}

func printPulled(p *cli.Printer, report pullReport) {
	if len(report.Machines) == 0 {
		p.Say("no machine has sent records; its agent does: rootsfs fleet agent")
	}
	for _, m := range report.Machines {
		p.Say("%s: %d new records in %q", m.Machine, m.Records, m.Dir)
	}
	printIssues(report.Machines, p.Say)
	printKeepers(report.Keepers, p.Say)
}

// printKeepers prints how keepers differ from the copies.
func printKeepers(all []fleet.KeeperReport, say func(string, ...any)) {
	for _, k := range all {
		if k.Problem != "" {
			say("keeper %s: not everything that it has was copied: %s", k.Key, k.Problem)
		}
		for _, l := range k.Lacks {
			say("keeper %s lacks records %d to %d of %s, session %s", k.Key, l.From, l.To, l.Machine, l.Session)
		}
	}
}

// printIssues prints the files of keepers that are not as the machines have signed them.
func printIssues(got []fleet.Pulled, say func(string, ...any)) {
	for _, m := range got {
		for _, is := range m.Issues {
			keeper := "the keeper"
			if is.Keeper != "" {
				keeper += " " + is.Keeper
			}
			switch {
			case is.File == "":
				say("%s: %s at %s: %s", m.Machine, is.State, keeper, is.Problem)
			default:
				say("%s: session %s: %s at %s: %s: %s", m.Machine, is.Session, is.State, keeper, is.File, is.Problem)
			}
		}
	}
}

// issuesError returns an error for the exit code if there are issues.
func issuesError(got []fleet.Pulled) error {
	if slices.ContainsFunc(got, func(m fleet.Pulled) bool { return len(m.Issues) > 0 }) {
		return cli.Failed()
	}
	return nil
}

// followTime is how long follow waits before it asks the keepers again.
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
	problems := map[string]names.Foreign{} // of keepers
	for {
		got, err := a.Pull(ctx, func(machine string, e *audit.Entry) error { return p.Record(machine, e) })
		if ctx.Err() != nil {
			return issuesError(issues)
		}
		if err != nil {
			return err
		}
		printIssues(got, p.Warn)
		for _, k := range a.Keepers(nil) {
			if k.Problem != problems[k.Key] {
				printKeepers([]fleet.KeeperReport{k}, p.Warn)
			}
			problems[k.Key] = k.Problem
		}
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
	Issues   []fleet.Pulled       `json:"issues,omitempty"`  // only the machines with issues
	Keepers  []fleet.KeeperReport `json:"keepers,omitempty"` // none if the fleet has one keeper
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
		report.Issues = slices.DeleteFunc(got, func(m fleet.Pulled) bool { return len(m.Issues) == 0 })
	}
	if report.Sessions, err = a.Verify(); err != nil {
		return err
	}
	report.Keepers = a.Keepers(report.Sessions)
	if err := p.Report(report, func() { printVerified(p, report) }); err != nil {
		return err
	}
	if slices.ContainsFunc(report.Sessions, func(r fleet.RecordReport) bool { return !r.OK() }) {
		return cli.Failed()
	}
	return issuesError(report.Issues)
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
	printIssues(report.Issues, p.Say)
	printKeepers(report.Keepers, p.Say)
	for _, m := range report.Unsure {
		if m.Wait != "" {
			p.Say("%s: its newest records wait there: %s", m.Machine, m.Wait)
		} else {
			p.Say("%s: no answer: whether a keeper has its newest records is unknown", m.Machine)
		}
	}
}
