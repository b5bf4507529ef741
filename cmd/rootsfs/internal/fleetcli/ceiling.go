package fleetcli

import (
	"context"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/fleet"
	"github.com/rootsfs/rootsfs/guard/names"
)

func setCeiling(ctx context.Context, p *cli.Printer, f *cli.FleetFlags, args []string) error {
	text, _, err := config.ReadCeiling(args[0])
	if err != nil {
		return cli.Usage(err)
	}
	set := string(text)
	return give(ctx, p, f, fleet.Order{Ceiling: &set}, "bound")
}

func removeCeiling(ctx context.Context, p *cli.Printer, f *cli.FleetFlags, _ []string) error {
	none := ""
	return give(ctx, p, f, fleet.Order{Ceiling: &none}, "no longer bound by this ceiling")
}

// ceilingReport is the output of ceiling show.
type ceilingReport struct {
	Fleet    string                 `json:"fleet"`
	Ceilings []fleet.CurrentCeiling `json:"ceilings"`
}

func showCeiling(ctx context.Context, p *cli.Printer, f *cli.FleetFlags, _ []string) error {
	o, err := fleet.OpenOwner()
	if err != nil {
		return err
	}
	defer o.Close()
	list, err := o.Ceilings(ctx, f.Machines)
	if err != nil {
		return err
	}
	return p.Report(ceilingReport{o.Names.Name(), list}, func() {
		if len(list) == 0 {
			p.Say("there is no ceiling; set one: rootsfs fleet ceiling set FILE")
		}
		for _, c := range list {
			p.Say("# ceiling %d for %s, by owner %s", c.Number, c.For, c.By)
			for _, line := range c.Lines() {
				p.Say("%s", names.EscapeQuoted(line))
			}
		}
	})
}
