package fleetcli

import (
	"context"
	"fmt"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/fleet"
	"github.com/rootsfs/rootsfs/guard/names"
)

func revoke(ctx context.Context, p *cli.Printer, f *cli.FleetFlags, args []string) error {
	r := fleet.Revocation{Session: f.Session, Subject: f.Subject, Net: f.Net, All: f.All}
	order := fleet.Order{Lock: f.Lock}
	for _, root := range args {
		r.Root = root
		order.Revoke = append(order.Revoke, r)
	}
	if len(args) == 0 {
		order.Revoke = []fleet.Revocation{r}
	}
	return give(ctx, p, f, order, "dead")
}

func lock(ctx context.Context, p *cli.Printer, f *cli.FleetFlags, args []string) error {
	if args[0] == "" {
		return cli.Usage(fmt.Errorf("the reason is empty: say why the machines are locked"))
	}
	return give(ctx, p, f, fleet.Order{Lock: args[0]}, "locked")
}

func unlock(ctx context.Context, p *cli.Printer, f *cli.FleetFlags, _ []string) error {
	return give(ctx, p, f, fleet.Order{Unlock: true}, "unlocked")
}

// give gives an order, and prints its outcome on each machine. state is the word for a machine that has
// carried out the order, such as "dead".
func give(ctx context.Context, p *cli.Printer, f *cli.FleetFlags, order fleet.Order, state string) error {
	o, err := fleet.OpenOwner()
	if err != nil {
		return err
	}
	defer o.Close()
	ctx, stop := cli.Until(ctx)
	defer stop()
	order.Machines = f.Machines
	done := p.Waiting("waiting for machines")
	out, err := o.Give(ctx, order, f.Wait)
	done()
	warnRestored(p, o)
	if err != nil {
		return err
	}
	if err := p.Report(out, func() { printOutcome(p, out, state) }); err != nil {
		return err
	}
	if !out.Done() {
		return cli.Failed()
	}
	return nil
}

func printOutcome(p *cli.Printer, out fleet.Outcome, state string) {
	if len(out.Machines) == 0 {
		p.Say("the fleet has no machine; the order is for those that join")
	}
	for _, m := range out.Machines {
		switch {
		case m.State == fleet.OrderNoAnswer && out.DeadBy != nil:
			p.Say("%s: no answer; %s by %s at the latest", m.Name, state, out.DeadBy.Local().Format(time.TimeOnly))
		case m.State == fleet.OrderNoAnswer:
			p.Say("%s: no answer; it is %s when it hears the order", m.Name, state)
		case state == "unlocked" && m.Locked != "":
			p.Say("%s: still locked by another order: %q; see: rootsfs fleet unlock --machine %s", m.Name, m.Locked, names.ShellWord(m.Name))
		case state == "bound":
			p.Say("%s: bound in %.1f ms, roots ended: %d", m.Name, m.TookMS, len(m.Ended)+m.More)
		case state == "dead":
			p.Say("%s: dead in %.1f ms, roots: %d", m.Name, m.TookMS, len(m.Ended)+m.More)
		default:
			p.Say("%s: %s in %.1f ms", m.Name, state, m.TookMS)
		}
		for _, e := range m.Ended {
			if e.Error != "" {
				p.Say("%s: session %s, %s: not everything could be taken back: %s", m.Name, e.Session, e.Root, e.Error)
			}
		}
	}
}
