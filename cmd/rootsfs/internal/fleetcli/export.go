package fleetcli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/export"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/fleet"
	"github.com/rootsfs/rootsfs/guard/names"
)

func exportRecords(ctx context.Context, p *cli.Printer, f *cli.FleetFlags, args []string) (err error) {
	ctx, stop := cli.Until(ctx)
	defer stop()
	o := export.Options{Machine: machineName(), AnchorOf: config.AnchorPath}
	if len(args) > 0 {
		o.AnchorOf = nil // the anchors are on the machine that wrote the files
		o.Dir, err = filepath.Abs(args[0])
	} else {
		o.Dir, err = config.StateDir("audit")
	}
	if err != nil {
		return err
	}
	if o.Cursor, err = cursorOf(f, o.Dir); err != nil {
		return err
	}
	if f.OTLP != "" {
		o.Sink, err = export.NewCollector(ctx, f.OTLP)
	} else {
		o.Sink, err = export.NewLines(f.OCSF)
	}
	if err != nil {
		return cli.Usage(err)
	}
	defer func() { err = cmp.Or(err, o.Sink.Close()) }()
	var counts export.Counts
	if f.Watch {
		counts, err = export.Follow(ctx, o, func(err error) { p.Warn("the records wait: %s", names.Escape(err.Error())) })
	} else {
		counts, err = export.Run(ctx, o)
	}
	if err != nil {
		return err
	}
	if f.OCSF == "-" {
		p.Warn("%d records handed on", counts.Records)
	} else if err := p.Report(counts, func() { p.Say("%d records handed on", counts.Records) }); err != nil {
		return err
	}
	if counts.Tampering > 0 {
		p.Warn("%d gaps or changes in the records that are not known to be the log's own; see: rootsfs audit verify", counts.Tampering)
		return cli.Failed()
	}
	return nil
}

// machineName returns this machine's name in its fleet, or else the host's name.
func machineName() string {
	if m, err := fleet.OpenMember(); err == nil {
		return m.Machine
	}
	host, _ := os.Hostname() // "": the events name no machine
	return host
}

// cursorOf returns the path of the cursor file of an export. By default there is one for each directory
// and target.
func cursorOf(f *cli.FleetFlags, dir string) (string, error) {
	if f.Cursor != "" {
		return filepath.Abs(f.Cursor)
	}
	target := f.OTLP
	if f.OCSF != "" && f.OCSF != "-" {
		file, err := filepath.Abs(f.OCSF)
		if err != nil {
			return "", err
		}
		target = file
	}
	sum := sha256.Sum256([]byte(dir + "\x00" + target))
	file, err := config.StateDir("exports", hex.EncodeToString(sum[:8])+".json")
	if err != nil {
		return "", err
	}
	return file, os.MkdirAll(filepath.Dir(file), 0o700)
}
