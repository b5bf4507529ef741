package fleetcli

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/fleet"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/writabledirs"
	"github.com/rootsfs/rootsfs/guard/names"
)

// The bounds of the lease that an owner may choose, apart from 0.
const (
	shortestLease = 30 * time.Second
	longestLease  = 24 * time.Hour
)

func serverDir(f *cli.FleetFlags) (fleet.ServerDir, error) {
	if f.Dir == "" {
		return fleet.DefaultServerDir()
	}
	dir, err := filepath.Abs(f.Dir)
	if err == nil { // unlike the default directory, this directory may lie in a root
		err = writabledirs.NewJudge().File(dir)
	}
	return fleet.ServerDir(dir), err
}

func initFleet(_ context.Context, p *cli.Printer, f *cli.FleetFlags, args []string) error {
	if f.Lease != 0 && (f.Lease < shortestLease || f.Lease > longestLease) {
		return cli.Usage(fmt.Errorf("--lease %v: write a duration of %v to %v, or 0", f.Lease, shortestLease, longestLease))
	}
	plan := fleet.Plan{Name: args[0], Server: f.Server, Lease: f.Lease}
	if f.NATS != "" {
		creds, err := fleet.ReadCreds(f.Creds)
		if err != nil {
			return err
		}
		plan.Creds, plan.Server = creds, natsServer(f.NATS)
	}
	if plan.Server == "" {
		host, err := os.Hostname()
		if err != nil {
			return err
		}
		plan.Server = net.JoinHostPort(host, fleet.DefaultPort)
	}
	dir, err := serverDir(f)
	if err != nil {
		return err
	}
	made, err := fleet.Create(dir, plan)
	if err != nil {
		return err
	}
	return p.Report(made, func() {
		p.Say("fleet %s: machines reach it at %s", made.Fleet, made.Server)
		p.Say("the owner's keys are in %q, those of the server in %q: keep copies", made.Owner, made.Dir)
		p.Say("start the server: rootsfs fleet serve --dir %s", names.ShellWord(made.Dir))
	})
}

// natsServer returns the HOST:PORT of each of the URLs, with commas between them.
func natsServer(urls string) string {
	list := strings.Split(urls, ",")
	for i, url := range list {
		list[i] = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(url), "nats://"), "tls://")
		if _, _, err := net.SplitHostPort(list[i]); err != nil {
			list[i] = net.JoinHostPort(list[i], fleet.DefaultPort)
		}
	}
	return strings.Join(list, ",")
}

// serveReport is the output of serve when the server is ready.
type serveReport struct {
	Fleet  string `json:"fleet"`
	ID     string `json:"id"`
	Listen string `json:"listen"`
}

func serve(ctx context.Context, p *cli.Printer, f *cli.FleetFlags, _ []string) error {
	dir, err := serverDir(f)
	if err != nil {
		return err
	}
	// The keys of the fleet are in this process's memory. Prevent a core file, and access by other
	// processes of the user.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	ctx, stop := cli.Until(ctx)
	defer stop()
	s, err := fleet.Start(dir, f.Listen, p.Log(f.Verbose))
	if err != nil {
		return err
	}
	defer s.Stop()
	ready := serveReport{s.Names.Name(), s.Names.ID, s.Addr}
	if err := p.Line(ready, func() { p.Say("fleet %s: serving at %s", ready.Fleet, ready.Listen) }); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
