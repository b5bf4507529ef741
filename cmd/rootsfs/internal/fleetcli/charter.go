package fleetcli

import (
	"context"
	"path/filepath"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/fleet"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard/names"
)

// charterReport is the output of charter.
type charterReport struct {
	Fleet   string        `json:"fleet"`
	Number  uint64        `json:"number"`
	Parties []fleet.Party `json:"parties"`
}

func charter(ctx context.Context, p *cli.Printer, _ *cli.FleetFlags, _ []string) error {
	return asOwner(func(o *fleet.Owner) error {
		list, err := o.Parties(ctx)
		if err != nil {
			return err
		}
		return p.Report(charterReport{o.Names.Name(), o.Charter.Number, list}, func() {
			rows := [][]string{{"ROLE", "KEY", "SERVER"}}
			for _, one := range list {
				server := one.Server
				if one.Self {
					server = "(you)"
				}
				rows = append(rows, []string{one.Role, one.Key, server})
			}
			p.Table(rows)
		})
	})
}

// asOwner opens the fleet's owner with this user's keys and calls act with it.
func asOwner(act func(*fleet.Owner) error) error {
	o, err := fleet.OpenOwner()
	if err != nil {
		return err
	}
	defer o.Close()
	return act(o)
}

// newDir returns the path of a directory for keys. It refuses one that programs can change.
func newDir(arg string) (string, error) {
	dir, err := filepath.Abs(arg)
	if err == nil {
		err = writabledirs.NewJudge().File(dir)
	}
	return dir, err
}

// addReport is the output of adding a keeper or an owner.
type addReport struct {
	Dir    string `json:"dir"`
	Key    string `json:"key,omitempty"`
	Serves bool   `json:"serves,omitempty"` // the keeper runs, and is one of the fleet
}

func addKeeper(ctx context.Context, p *cli.Printer, f *cli.FleetFlags, args []string) error {
	dir, err := newDir(args[0])
	if err != nil {
		return err
	}
	return asOwner(func(o *fleet.Owner) error {
		serves, err := o.AddKeeper(ctx, fleet.ServerDir(dir), f.Server)
		if err != nil {
			return err
		}
		return p.Report(addReport{Dir: dir, Serves: serves}, func() {
			if serves {
				p.Say("the keeper at %s is one of %s; keepers: %d", names.EscapeQuoted(f.Server), o.Names.Name(), len(o.Charter.Keepers))
				return
			}
			p.Say("no keeper runs at %s yet; copy %s there, start it: rootsfs fleet serve --dir DIR, and give this command again", names.EscapeQuoted(f.Server), names.ShellWord(dir))
		})
	})
}

func addOwner(ctx context.Context, p *cli.Printer, _ *cli.FleetFlags, args []string) error {
	dir, err := newDir(args[0])
	if err != nil {
		return err
	}
	return asOwner(func(o *fleet.Owner) error {
		key, err := o.AddOwner(ctx, dir)
		if err != nil {
			return err
		}
		return p.Report(addReport{Dir: dir, Key: key}, func() {
			p.Say("owner %s of %s; move %s to the owner's machine, as ~/.local/state/rootsfs/fleet/owner", key, o.Names.Name(), names.ShellWord(dir))
		})
	})
}

func removeKeeper(ctx context.Context, p *cli.Printer, _ *cli.FleetFlags, args []string) error {
	return amend(ctx, p, fleet.RemoveKeeper(args[0]), args[0])
}

func removeOwner(ctx context.Context, p *cli.Printer, _ *cli.FleetFlags, args []string) error {
	return amend(ctx, p, fleet.RemoveOwner(args[0]), args[0])
}

// amend changes the charter, and says which key is no longer in it.
func amend(ctx context.Context, p *cli.Printer, change fleet.Amendment, key string) error {
	return asOwner(func(o *fleet.Owner) error {
		if err := o.Amend(ctx, change); err != nil {
			return err
		}
		return p.Report(charterReport{Fleet: o.Names.Name(), Number: o.Charter.Number}, func() {
			p.Say("%s has no part in %s any more", names.EscapeQuoted(key), o.Names.Name())
		})
	})
}
