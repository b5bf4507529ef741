package fleetcli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/fleet"
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
	return p.Report(inv, func() { p.Say("rootsfs fleet join %s", inv.Token) })
}

// removed is what remove prints.
type removed struct {
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
	return p.Report(removed{args[0]}, func() { p.Say("%s is no machine of %s any more", args[0], o.Names.Name()) })
}

// machineList is what machines prints.
type machineList struct {
	Fleet    string          `json:"fleet"`
	Machines []fleet.Machine `json:"machines"`
}

// watchTime is how often machines --watch asks.
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
		return p.Report(machineList{o.Names.Name(), all}, func() { printMachines(p, all) })
	}
	for last := ""; ; {
		all, err := o.Machines(ctx, f.Wait)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if now := changes(all); now != last {
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

// changes returns what machines --watch compares: all but the time that the answers took.
func changes(all []fleet.Machine) (text string) {
	for _, m := range all {
		text += fmt.Sprintln(m.Name, m.State, m.Key, m.MachineStatus)
	}
	return text
}

func printMachines(p *cli.Printer, all []fleet.Machine) {
	if len(all) == 0 {
		p.Say("the fleet has no machine; let one join: rootsfs fleet invite NAME")
		return
	}
	rows := [][]string{{"NAME", "STATE", "SESSIONS", "ROOTS", "QUESTIONS", "KEY"}}
	for _, m := range all {
		state, sessions, roots, questions := "no answer", "-", "-", "-"
		if m.MachineStatus != nil {
			state, sessions = "live", strconv.Itoa(len(m.Sessions))
			var r, q int
			for _, s := range m.Sessions {
				r, q = r+s.Roots, q+s.Questions
			}
			roots, questions = strconv.Itoa(r), strconv.Itoa(q)
		}
		rows = append(rows, []string{m.Name, state, sessions, roots, questions, m.Key})
	}
	p.Table(rows)
}
