package fleetcli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/fleet"
	"github.com/rootsfs/rootsfs/guard/names"
)

func invite(ctx context.Context, p *cli.Printer, f *cli.FleetFlags, args []string) error {
	if err := fleet.CheckName("a machine", args[0]); err != nil {
		return err
	}
	o, err := fleet.OpenOwner()
	if err != nil {
		return err
	}
	defer o.Close()
	inv, err := o.Invite(ctx, args[0], f.Expires)
	if err != nil {
		return err
	}
	return p.Report(inv, func() { p.Say("rootsfs fleet join %s", names.ShellWord(inv.Token)) })
}

// removeReport is the output of remove.
type removeReport struct {
	Machine string `json:"machine"`
}

func remove(ctx context.Context, p *cli.Printer, _ *cli.FleetFlags, args []string) error {
	o, err := fleet.OpenOwner()
	if err != nil {
		return err
	}
	defer o.Close()
	if err := o.Remove(ctx, args[0]); err != nil {
		return err
	}
	return p.Report(removeReport{args[0]}, func() { p.Say("%s is no machine of %s any more", args[0], o.Names.Name()) })
}

// machineList is the output of machines.
type machineList struct {
	Fleet    string          `json:"fleet"`
	Machines []fleet.Machine `json:"machines"`
}

// watchTime is the pause between two queries of machines --watch.
const watchTime = 2 * time.Second

func machines(ctx context.Context, p *cli.Printer, f *cli.FleetFlags, _ []string) error {
	o, err := fleet.OpenOwner()
	if err != nil {
		return err
	}
	defer o.Close()
	ctx, stop := cli.Until(ctx)
	defer stop()
	if !f.Watch {
		done := p.Waiting("waiting for machines")
		all, err := o.Machines(ctx, f.Wait)
		done()
		if err != nil {
			return err
		}
		warnRestored(p, o)
		if err := p.Report(machineList{o.Names.Name(), all}, func() { printMachines(p, all) }); err != nil {
			return err
		}
		if slices.ContainsFunc(all, func(m fleet.Machine) bool { return !m.InOrder() }) {
			return cli.Failed()
		}
		return nil
	}
	for last := ""; ; {
		all, err := o.Machines(ctx, f.Wait)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if now := comparedText(all); now != last {
			last = now
			if err := p.Line(machineList{o.Names.Name(), all}, func() { printMachines(p, all) }); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchTime):
		}
	}
}

// warnRestored warns if a keeper was restored from an older copy, and says what other owners have to
// do then.
func warnRestored(p *cli.Printer, o *fleet.Owner) {
	if o.HasRestoredOrders {
		p.Warn("the keeper was restored from an older copy. It has this owner's orders again; let other owners run this, too")
	}
}

// comparedText returns the text that machines --watch compares to find out whether anything has
// changed. The text has no times, because times always change.
func comparedText(all []fleet.Machine) (text string) {
	for _, m := range all {
		text += fmt.Sprintln(m.Name, m.StateText(), m.Key)
		if m.MachineStatus != nil {
			text += fmt.Sprintln(m.Version, m.Sessions)
		}
	}
	return text
}

func printMachines(p *cli.Printer, all []fleet.Machine) {
	if len(all) == 0 {
		p.Say("the fleet has no machine; let one join: rootsfs fleet invite NAME")
		return
	}
	rows := [][]string{{"NAME", "LAST HEARD", "LEASE", "STATE", "SESSIONS", "ROOTS", "QUESTIONS", "KEY"}}
	for _, m := range all {
		heard, sessions, roots, questions := "-", "-", "-", "-"
		if !m.Heard.IsZero() {
			heard = time.Since(m.Heard).Round(time.Second).String() + " ago"
		}
		if m.MachineStatus != nil {
			heard, sessions = "now", strconv.Itoa(len(m.Sessions))
			var r, q int
			for _, s := range m.Sessions {
				r, q = r+s.Roots, q+s.Questions
			}
			roots, questions = strconv.Itoa(r), strconv.Itoa(q)
		}
		rows = append(rows, []string{m.Name, heard, leaseText(m), m.StateText(), sessions, roots, questions, m.Key})
	}
	p.Table(rows)
}

// leaseText returns the time that is left of a machine's lease. It returns "-" if the machine has not
// reported its lease, and "no end" for more than longestLease.
func leaseText(m fleet.Machine) string {
	if m.MachineStatus == nil || m.Standing == nil {
		return "-"
	}
	left := time.Duration(m.Standing.LeftMS) * time.Millisecond
	if left > longestLease {
		return "no end"
	}
	return left.Round(time.Second).String()
}
